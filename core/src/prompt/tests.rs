//! Tests of the whole extraction.

mod bodies;
mod bounds;
mod buffers;
mod endpoints;
mod owned;
mod properties;
mod readers;

use super::{Endpoint, Extractor, Namespace, Prompt, PromptError};

/// A [`Prompt`] that outlives its extractor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Owned {
    model: Option<String>,
    stream: bool,
    text: String,
    tokens: Vec<u32>,
    namespace: Option<Namespace>,
    rid: Option<String>,
}

impl From<Prompt<'_>> for Owned {
    fn from(prompt: Prompt<'_>) -> Self {
        Self {
            model: prompt.model.map(str::to_owned),
            stream: prompt.stream,
            text: prompt.text.to_owned(),
            tokens: prompt.tokens.to_vec(),
            namespace: prompt.namespace,
            rid: prompt.rid.map(str::to_owned),
        }
    }
}

fn extract(endpoint: Endpoint, body: impl AsRef<[u8]>) -> Result<Owned, PromptError> {
    Extractor::new().extract(endpoint, body.as_ref()).map(Owned::from)
}

/// The routing text of a body that must be accepted.
fn text(endpoint: Endpoint, body: impl AsRef<[u8]>) -> String {
    extract(endpoint, body).unwrap().text
}
