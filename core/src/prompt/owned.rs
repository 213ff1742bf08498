//! Prompts that are handed from the thread that read them to another.

use super::{
    BYTE_ORDER_MARK, Endpoint, Extractor, Found, PRUNE_ABOVE_BYTES, Prompt, PromptError, Want,
    prune,
};

/// A [`Prompt`] that owns what it says.
#[derive(Default)]
pub struct OwnedPrompt(Found);

impl OwnedPrompt {
    /// What it says.
    pub fn prompt(&self) -> Prompt<'_> {
        self.0.prompt()
    }
}

impl std::fmt::Debug for OwnedPrompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.prompt().fmt(f)
    }
}

impl Extractor {
    /// As [`Extractor::extract`] or, wanting the head, [`Extractor::extract_head`]; the prompt leaves
    /// the extractor.
    ///
    /// # Errors
    /// As those.
    pub fn extract_owned(
        &mut self,
        endpoint: Endpoint,
        body: &[u8],
        want: Want,
    ) -> Result<OwnedPrompt, PromptError> {
        self.read(endpoint, body, want)?;
        Ok(self.hand_out())
    }

    /// As [`Extractor::extract_owned`], of a body that nobody needs any more: a large one is freed
    /// once it is pruned.
    ///
    /// # Errors
    /// As [`Extractor::extract_owned`].
    pub fn consume(
        &mut self,
        endpoint: Endpoint,
        body: Vec<u8>,
        want: Want,
    ) -> Result<OwnedPrompt, PromptError> {
        if endpoint == Endpoint::Transcriptions || body.len() <= PRUNE_ABOVE_BYTES {
            return self.extract_owned(endpoint, &body, want);
        }
        self.found.clear();
        let json = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&body);
        let pruned = prune::prune(json, &mut self.scratch);
        drop(body);
        let outcome = pruned.and_then(|()| self.parse_pruned(endpoint, want));
        self.trim();
        outcome?;
        Ok(self.hand_out())
    }

    fn hand_out(&mut self) -> OwnedPrompt {
        let mut found = std::mem::take(&mut self.found);
        // It may wait for its decision; what grew by doubling does not.
        found.text.shrink_to_fit();
        found.tokens.shrink_to_fit();
        OwnedPrompt(found)
    }
}
