//! What an engine reads from a request body.

use std::borrow::Cow;

use serde::Deserialize;

use crate::engine::{Profile, Sequence, SequenceBuilder};

/// The API a request came in by; it decides the shape of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    Completions,
    /// SGLang's native API.
    Generate,
}

impl Api {
    /// The API behind a request path.
    pub fn of_path(path: &[u8]) -> Option<Self> {
        match path {
            b"/v1/chat/completions" => Some(Self::Chat),
            b"/v1/completions" => Some(Self::Completions),
            b"/generate" => Some(Self::Generate),
            _ => None,
        }
    }
}

/// A request the engine can run.
#[derive(Debug)]
pub(super) struct Generation {
    pub stream: bool,
    /// Send a usage event at the end of a stream.
    pub include_usage: bool,
    pub sequence: Sequence,
}

/// Why a body is not a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadRequest {
    Json(String),
    /// The prompt of the API is missing.
    Missing(&'static str),
    UnknownModel(String),
}

/// vLLM's default for `/v1/completions` and SGLang's for `/generate`.
const COMPLETION_TOKENS: u32 = 16;
const GENERATE_TOKENS: u32 = 128;

impl Generation {
    /// Reads a body. Of a batch of prompts only the first is run.
    pub fn parse(
        api: Api,
        body: &[u8],
        model: &str,
        profile: &Profile,
    ) -> Result<Self, BadRequest> {
        let body: Body<'_> =
            serde_json::from_slice(body).map_err(|error| BadRequest::Json(error.to_string()))?;
        if let Some(asked) = body.model.as_deref().filter(|asked| *asked != model)
            && api != Api::Generate
        {
            return Err(BadRequest::UnknownModel(asked.chars().take(256).collect()));
        }
        let salt = body.cache_salt.as_deref().or(body.extra_key.as_deref()).unwrap_or("");
        let mut prompt = SequenceBuilder::new(profile.block_tokens, salt);
        match api {
            Api::Chat => {
                let messages = body.messages.as_ref().ok_or(BadRequest::Missing("messages"))?;
                for message in messages {
                    message.add_to(&mut prompt);
                }
                prompt.message_start("assistant");
            }
            Api::Completions => {
                body.prompt.as_ref().ok_or(BadRequest::Missing("prompt"))?.add_to(&mut prompt)
            }
            Api::Generate => body
                .input_ids
                .as_ref()
                .or(body.text.as_ref())
                .ok_or(BadRequest::Missing("text"))?
                .add_to(&mut prompt),
        }
        let default = match api {
            Api::Chat => profile.default_answer_tokens,
            Api::Completions => COMPLETION_TOKENS,
            Api::Generate => GENERATE_TOKENS,
        };
        let asked = match api {
            Api::Generate => body.sampling_params.and_then(|params| params.max_new_tokens),
            _ => body.max_completion_tokens.or(body.max_tokens),
        };
        Ok(Self {
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.is_some_and(|options| options.include_usage),
            sequence: prompt.finish(asked.unwrap_or(default).min(profile.max_model_len)),
        })
    }
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(borrow)]
    prompt: Option<Prompt<'a>>,
    #[serde(borrow)]
    text: Option<Prompt<'a>>,
    #[serde(borrow)]
    input_ids: Option<Prompt<'a>>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    sampling_params: Option<SamplingParams>,
    #[serde(borrow)]
    cache_salt: Option<Cow<'a, str>>,
    #[serde(borrow)]
    extra_key: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct SamplingParams {
    max_new_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<Content<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    #[serde(borrow)]
    Parts(Vec<Part<'a>>),
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

impl Message<'_> {
    fn add_to(&self, prompt: &mut SequenceBuilder) {
        prompt.message_start(&self.role);
        match &self.content {
            Some(Content::Text(text)) => prompt.text(text),
            Some(Content::Parts(parts)) => {
                for text in parts.iter().filter_map(|part| part.text.as_deref()) {
                    prompt.text(text);
                }
            }
            None => {}
        }
        prompt.message_end();
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Tokens(Vec<i64>),
    #[serde(borrow)]
    Texts(Vec<Cow<'a, str>>),
    TokenLists(Vec<Vec<i64>>),
}

impl Prompt<'_> {
    fn add_to(&self, prompt: &mut SequenceBuilder) {
        match self {
            Self::Text(text) => prompt.text(text),
            Self::Texts(texts) => prompt.text(texts.first().map_or("", AsRef::as_ref)),
            Self::Tokens(ids) => add_tokens(ids, prompt),
            Self::TokenLists(lists) => add_tokens(lists.first().map_or(&[], Vec::as_slice), prompt),
        }
    }
}

fn add_tokens(ids: &[i64], prompt: &mut SequenceBuilder) {
    for id in ids {
        prompt.token(*id as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(api: Api, body: &str) -> Result<Generation, BadRequest> {
        Generation::parse(api, body.as_bytes(), "m", &Profile::named("demo").unwrap())
    }

    #[test]
    fn a_chat_prompt_is_its_messages_with_markers() {
        let one = parse(
            Api::Chat,
            r#"{"model":"m","messages":[{"role":"user","content":"12345678"}],"max_tokens":5}"#,
        );
        let sequence = one.unwrap().sequence;
        // role, two tokens, end, generation prompt
        assert_eq!((sequence.prompt_tokens, sequence.answer_tokens), (5, 5));
        let parts = parse(
            Api::Chat,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"1234"},
                {"type":"text","text":"5678"},{"type":"image_url","image_url":{"url":"x"}}]},
                {"role":"assistant","content":null}],"max_completion_tokens":7,"stream":true,
                "stream_options":{"include_usage":true}}"#,
        )
        .unwrap();
        assert_eq!((parts.sequence.prompt_tokens, parts.sequence.answer_tokens), (7, 7));
        assert!(parts.stream && parts.include_usage);
    }

    #[test]
    fn completions_and_generate_take_text_and_token_ids() {
        let tokens = |api, body: &str| parse(api, body).unwrap().sequence.prompt_tokens;
        assert_eq!(tokens(Api::Completions, r#"{"model":"m","prompt":"123456789"}"#), 3);
        assert_eq!(tokens(Api::Completions, r#"{"model":"m","prompt":[1,2,3,4]}"#), 4);
        assert_eq!(tokens(Api::Completions, r#"{"prompt":["12345","1"]}"#), 2);
        assert_eq!(tokens(Api::Generate, r#"{"text":"1234"}"#), 1);
        assert_eq!(tokens(Api::Generate, r#"{"text":"1234","input_ids":[5,6]}"#), 2);
        assert_eq!(tokens(Api::Generate, r#"{"input_ids":[[5,6,7],[1]]}"#), 3);
        let limit = parse(Api::Generate, r#"{"text":"a","sampling_params":{"max_new_tokens":9}}"#);
        assert_eq!(limit.unwrap().sequence.answer_tokens, 9);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(matches!(parse(Api::Chat, "{"), Err(BadRequest::Json(_))));
        assert_eq!(parse(Api::Chat, "{}").unwrap_err(), BadRequest::Missing("messages"));
        let nope = parse(Api::Chat, r#"{"model":"x","messages":[]}"#).unwrap_err();
        assert_eq!(nope, BadRequest::UnknownModel("x".into()));
    }
}
