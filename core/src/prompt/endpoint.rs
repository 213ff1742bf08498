//! The serving endpoints whose requests are routed.

/// A serving endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI text completions.
    Completions,
    /// Anthropic messages.
    Messages,
    /// SGLang native generation.
    Generate,
    /// OpenAI responses.
    Responses,
    /// OpenAI embeddings.
    Embeddings,
    /// Classification.
    Classify,
    /// `/rerank`.
    Rerank,
    /// `/v1/rerank`.
    RerankV1,
    /// OpenAI audio transcriptions; the only one whose body is multipart.
    Transcriptions,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 10] = [
        Self::Chat,
        Self::Completions,
        Self::Messages,
        Self::Generate,
        Self::Responses,
        Self::Embeddings,
        Self::Classify,
        Self::Rerank,
        Self::RerankV1,
        Self::Transcriptions,
    ];

    /// The endpoint served at `path` (no query string), compared exactly.
    pub fn from_path(path: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|endpoint| endpoint.path().as_bytes() == path)
    }

    /// The path it is served at.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Messages => "/v1/messages",
            Self::Generate => "/generate",
            Self::Responses => "/v1/responses",
            Self::Embeddings => "/v1/embeddings",
            Self::Classify => "/v1/classify",
            Self::Rerank => "/rerank",
            Self::RerankV1 => "/v1/rerank",
            Self::Transcriptions => "/v1/audio/transcriptions",
        }
    }

    /// The value of the `endpoint` metric label (`smg-gateway.md` §6.3).
    pub fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Messages => "messages",
            Self::Generate => "generate",
            Self::Responses => "responses",
            Self::Embeddings | Self::Classify => "other",
            Self::Rerank | Self::RerankV1 => "rerank",
            Self::Transcriptions => "audio_transcriptions",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn every_path_leads_back_to_its_endpoint() {
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::from_path(endpoint.path().as_bytes()), Some(endpoint));
        }
    }

    #[test]
    fn the_two_rerank_paths_are_told_apart() {
        assert_eq!(Endpoint::from_path(b"/rerank"), Some(Endpoint::Rerank));
        assert_eq!(Endpoint::from_path(b"/v1/rerank"), Some(Endpoint::RerankV1));
    }

    #[test]
    fn other_paths_are_no_endpoint() {
        for path in [
            &b""[..],
            b"/",
            b"/v1/chat/completions/",
            b"/v1/Chat/completions",
            b"/v1/completions?x=1",
            b"/v1/generate",
            b"\xff",
        ] {
            assert_eq!(Endpoint::from_path(path), None);
        }
    }

    #[test]
    fn embeddings_and_classify_share_the_label_other() {
        let labels = Endpoint::ALL.map(Endpoint::label);
        assert_eq!(
            labels,
            [
                "chat",
                "completions",
                "messages",
                "generate",
                "responses",
                "other",
                "other",
                "rerank",
                "rerank",
                "audio_transcriptions"
            ]
        );
    }
}
