//! Prompts that are handed from the thread that read them to another.

use super::{Endpoint, Extractor, Found, Prompt, PromptError, Want};

/// A [`Prompt`] that owns what it says.
#[derive(Default)]
pub struct OwnedPrompt(Found);

impl OwnedPrompt {
    /// What it says.
    pub fn prompt(&self) -> Prompt<'_> {
        self.0.prompt()
    }

    /// Bytes of memory it takes, roughly.
    pub fn bytes(&self) -> usize {
        self.0.text.capacity() + self.0.tokens.capacity() * size_of::<u32>()
    }
}

impl std::fmt::Debug for OwnedPrompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.prompt().fmt(f)
    }
}

impl Extractor {
    /// As [`Extractor::extract`] or, wanting the head, [`Extractor::extract_head`]; the prompt leaves
    /// the extractor. A large body is not read to its end once it is `abandoned`.
    ///
    /// # Errors
    /// As those, and [`PromptError::Abandoned`].
    pub fn extract_owned(
        &mut self,
        endpoint: Endpoint,
        body: &[u8],
        want: Want,
        abandoned: &dyn Fn() -> bool,
    ) -> Result<OwnedPrompt, PromptError> {
        self.read(endpoint, body, want, abandoned)?;
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
