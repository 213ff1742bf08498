//! Answers in the shapes vLLM and SGLang give them.

use std::io::Write;

use super::request::Api;
use crate::engine::answer_token;

/// One request's answer, to be written whole or token by token.
#[derive(Debug, Clone)]
pub(super) struct Answer<'a> {
    pub api: Api,
    /// Request identity without the API's prefix.
    pub id: &'a str,
    /// Unix seconds.
    pub created: u64,
    /// The model's name as a JSON string, quotes included.
    pub model_json: &'a str,
    pub prompt_tokens: u32,
    pub answer_tokens: u32,
    pub seed: u64,
}

const FINGERPRINT: &str = "smg-loadtest";

impl Answer<'_> {
    /// The JSON body of a non-stream answer.
    pub fn whole(&self, cached_tokens: u32) -> Vec<u8> {
        let text: String = (0..self.answer_tokens).map(|index| self.token(index)).collect();
        let Self { id, created, model_json, .. } = self;
        let usage = self.usage(cached_tokens);
        match self.api {
            Api::Chat => format!(
                r#"{{"id":"chatcmpl-{id}","object":"chat.completion","created":{created},"model":{model_json},"choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}}],"service_tier":null,"system_fingerprint":"{FINGERPRINT}",{usage},"prompt_logprobs":null,"kv_transfer_params":null}}"#
            ),
            Api::Completions => format!(
                r#"{{"id":"cmpl-{id}","object":"text_completion","created":{created},"model":{model_json},"choices":[{{"index":0,"text":"{text}","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null}}],"service_tier":null,"system_fingerprint":"{FINGERPRINT}",{usage},"kv_transfer_params":null}}"#
            ),
            Api::Generate => format!(
                r#"{{"text":"{text}",{}}}"#,
                self.meta_info(self.answer_tokens, cached_tokens)
            ),
        }
        .into_bytes()
    }

    /// Appends the events of token `index` to a chunked SSE body, one HTTP chunk per event. The
    /// first token of a chat is preceded by the role event, as vLLM does. `sent_ns` is the sending
    /// time on the machine's monotonic clock, an addition of ours for measuring delays.
    pub fn push_token(&self, out: &mut Vec<u8>, index: u32, cached_tokens: u32, sent_ns: u64) {
        let Self { id, created, model_json, .. } = self;
        let token = self.token(index);
        let last = index + 1 == self.answer_tokens;
        let finish = if last { r#""length""# } else { "null" };
        match self.api {
            Api::Chat => {
                let head = format!(
                    r#"{{"id":"chatcmpl-{id}","object":"chat.completion.chunk","created":{created},"model":{model_json},"#
                );
                if index == 0 {
                    let role = r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#;
                    push_event(out, format_args!("{head}{role}"));
                }
                push_event(
                    out,
                    format_args!(
                        r#"{head}"choices":[{{"index":0,"delta":{{"content":"{token}"}},"logprobs":null,"finish_reason":{finish},"token_ids":null}}],"sent_ns":{sent_ns}}}"#
                    ),
                );
            }
            Api::Completions => push_event(
                out,
                format_args!(
                    r#"{{"id":"cmpl-{id}","object":"text_completion","created":{created},"model":{model_json},"choices":[{{"index":0,"text":"{token}","logprobs":null,"finish_reason":{finish},"stop_reason":null,"token_ids":null}}],"sent_ns":{sent_ns}}}"#
                ),
            ),
            Api::Generate => {
                let text: String = (0..=index).map(|index| self.token(index)).collect();
                let meta = self.meta_info(index + 1, cached_tokens);
                push_event(out, format_args!(r#"{{"text":"{text}",{meta},"sent_ns":{sent_ns}}}"#));
            }
        }
    }

    /// Appends the usage event of a stream, if it was asked for and the API has one.
    pub fn push_usage(&self, out: &mut Vec<u8>, include_usage: bool, cached_tokens: u32) {
        let Self { id, created, model_json, .. } = self;
        let (prefix, object) = match self.api {
            Api::Chat => ("chatcmpl", "chat.completion.chunk"),
            _ => ("cmpl", "text_completion"),
        };
        if include_usage && self.api != Api::Generate {
            let usage = self.usage(cached_tokens);
            push_event(
                out,
                format_args!(
                    r#"{{"id":"{prefix}-{id}","object":"{object}","created":{created},"model":{model_json},"choices":[],{usage},"system_fingerprint":"{FINGERPRINT}"}}"#
                ),
            );
        }
    }

    fn token(&self, index: u32) -> String {
        answer_token(self.seed, index).map(char::from).iter().collect()
    }

    fn usage(&self, cached_tokens: u32) -> String {
        let Self { prompt_tokens, answer_tokens, .. } = self;
        let total = u64::from(*prompt_tokens) + u64::from(*answer_tokens);
        format!(
            r#""usage":{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{answer_tokens},"prompt_tokens_details":{{"cached_tokens":{cached_tokens}}},"completion_tokens_details":null}}"#
        )
    }

    fn meta_info(&self, generated: u32, cached_tokens: u32) -> String {
        let finish = if generated == self.answer_tokens {
            format!(r#"{{"type":"length","length":{generated}}}"#)
        } else {
            "null".into()
        };
        format!(
            r#""meta_info":{{"id":"{}","finish_reason":{finish},"prompt_tokens":{},"weight_version":"default","completion_tokens":{generated},"cached_tokens":{cached_tokens},"dp_rank":null}}"#,
            self.id, self.prompt_tokens
        )
    }
}

/// Appends the end of a stream: a comment if there is one, `[DONE]`, the last chunk.
pub(super) fn push_end(out: &mut Vec<u8>, comment: Option<&str>) {
    if let Some(comment) = comment {
        push_chunk(out, comment);
    }
    push_event(out, format_args!("[DONE]"));
    out.extend_from_slice(smg_core::http1::LAST_CHUNK);
}

/// What the chunks in `out` carry, chunk by chunk; it has whole ones only.
pub(super) fn payloads(mut out: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let line = memchr::memmem::find(out, b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&out[..line]).ok()?, 16).ok()?;
        let (payload, rest) = out.get(line + 2..)?.split_at_checked(length)?;
        out = rest.get(2..)?;
        Some(payload)
    })
}

/// Appends one `data:` event as one HTTP chunk.
fn push_event(out: &mut Vec<u8>, data: std::fmt::Arguments<'_>) {
    push_chunk(out, &format!("data: {data}\n\n"));
}

fn push_chunk(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{:x}\r\n{text}\r\n", text.len());
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use smg_core::http1::ChunkedDecoder;

    use super::*;

    fn answer(api: Api) -> Answer<'static> {
        Answer {
            api,
            id: "abc",
            created: 1_700_000_000,
            model_json: r#""m\"x""#,
            prompt_tokens: 40,
            answer_tokens: 3,
            seed: 9,
        }
    }

    fn text(seed: u64) -> String {
        (0..3).flat_map(|i| answer_token(seed, i)).map(char::from).collect()
    }

    #[test]
    fn whole_answers_are_json_with_usage() {
        let chat: Value = serde_json::from_slice(&answer(Api::Chat).whole(32)).unwrap();
        assert_eq!(chat["choices"][0]["message"]["content"], text(9));
        assert_eq!(chat["model"], "m\"x");
        assert_eq!(chat["usage"]["prompt_tokens"], 40);
        assert_eq!(chat["usage"]["total_tokens"], 43);
        assert_eq!(chat["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
        let text_answer: Value =
            serde_json::from_slice(&answer(Api::Completions).whole(0)).unwrap();
        assert_eq!(text_answer["choices"][0]["text"], text(9));
        let generate: Value = serde_json::from_slice(&answer(Api::Generate).whole(16)).unwrap();
        assert_eq!(generate["text"], text(9));
        assert_eq!(generate["meta_info"]["cached_tokens"], 16);
        assert_eq!(generate["meta_info"]["finish_reason"]["length"], 3);
    }

    #[test]
    fn streams_are_chunked_events_that_end_with_done() {
        for (api, events) in [(Api::Chat, 6), (Api::Completions, 5), (Api::Generate, 4)] {
            let answer = answer(api);
            let mut body = Vec::new();
            (0..3).for_each(|index| answer.push_token(&mut body, index, 16, 77));
            answer.push_usage(&mut body, true, 16);
            let carried = payloads(&body).collect::<Vec<_>>().concat();
            push_end(&mut body, Some(": x\n\n"));
            let mut decoder = ChunkedDecoder::new();
            let decoded = decoder.decode(&mut body).unwrap();
            assert!(decoded.done);
            let text_body = std::str::from_utf8(&body[..decoded.payload]).unwrap();
            let (before, end) = text_body.split_at(carried.len());
            assert_eq!((before.as_bytes(), end), (&carried[..], ": x\n\ndata: [DONE]\n\n"));
            let text_body = text_body.replace(": x\n\n", "");
            let data: Vec<_> = text_body
                .split_terminator("\n\n")
                .map(|event| event.strip_prefix("data: ").unwrap())
                .collect();
            assert_eq!(data.len(), events, "{api:?}");
            assert_eq!(data.last(), Some(&"[DONE]"));
            for event in &data[..data.len() - 1] {
                let _: Value = serde_json::from_str(event).unwrap();
            }
        }
    }
}
