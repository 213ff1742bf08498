//! What each endpoint routes on: one test per row of the table and per consequence.

use super::super::namespace;
use super::{Endpoint, Extractor, extract, text};
use Endpoint::*;

#[test]
fn chat_joins_contents_in_order_without_roles() {
    let body = r#"{"messages":[{"role":"system","content":"sys"},{"role":"user","content":"q1"},
        {"role":"assistant","content":"a1"},{"role":"developer","content":"dev"},
        {"role":"tool","tool_call_id":"1","content":"res"},{"role":"function","content":"fn"},
        {"role":"user","name":"bob","content":"q2"}]}"#;
    assert_eq!(text(Chat, body), "sys q1 a1 dev res fn q2");
}

#[test]
fn chat_reasoning_follows_an_assistants_content_only() {
    let body = r#"{"messages":[{"role":"assistant","reasoning_content":"why","content":"ans"},
        {"role":"user","content":"q","reasoning_content":"not mine"},
        {"role":"assistant","content":null,"reasoning_content":"only"},
        {"role":"assistant","content":"","reasoning_content":""}]}"#;
    assert_eq!(text(Chat, body), "ans why q only");
}

#[test]
fn chat_skips_empty_pieces() {
    let body = r#"{"messages":[{"role":"user","content":""},{"role":"user","content":"a"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"user"},
        {"role":"user","content":[]},{"role":"user","content":[{"type":"text","text":""}]},
        {"role":"user","content":"b"}]}"#;
    assert_eq!(text(Chat, body), "a b");
}

#[test]
fn chat_takes_the_text_parts_of_arrays() {
    let body = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"one"},
        {"type":"image_url","image_url":{"url":"http://h/x.png"}},{"text":"two","type":"text"},
        {"type":"input_audio","input_audio":{"data":"AA=="}},{"type":"future","text":"no"},
        {"type":"text"},{"type":"text","text":5},"bare"]},{"role":"user","content":"three"}]}"#;
    assert_eq!(text(Chat, body), "one two bare three");
}

#[test]
fn chat_tools_and_sampling_do_not_route() {
    let plain = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;
    let tools = r#"{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"seed":7,
        "messages":[{"role":"user","content":"q"}],"tool_choice":"auto","user":"u"}"#;
    assert_eq!(extract(Chat, plain).unwrap(), extract(Chat, tools).unwrap());
}

#[test]
fn chat_ignores_messages_of_other_shapes() {
    for messages in [r#""hi""#, "5", "null", "{}", r#"{"content":"hi"}"#, r#"["hi",1,null,[]]"#] {
        assert_eq!(text(Chat, format!(r#"{{"messages":{messages}}}"#)), "", "{messages}");
    }
    assert_eq!(text(Chat, r#"{"messages":[1,{"content":"a"},{"content":7}]}"#), "a");
    assert_eq!(text(Chat, "{}"), "");
}

#[test]
fn completions_take_a_string_or_join_strings() {
    assert_eq!(text(Completions, r#"{"prompt":"once"}"#), "once");
    assert_eq!(text(Completions, r#"{"prompt":["a","b","c d"]}"#), "a b c d");
    assert_eq!(text(Completions, r#"{"prompt":["","b",""]}"#), " b ");
}

#[test]
fn completions_of_token_ids_have_no_text() {
    for prompt in ["[1,2,3,4000000000]", "[[1,2],[3]]", "null", "7"] {
        let prompt = extract(Completions, format!(r#"{{"prompt":{prompt}}}"#)).unwrap();
        assert_eq!((prompt.text.as_str(), prompt.tokens.len()), ("", 0));
    }
}

#[test]
fn messages_put_the_system_first() {
    let body = r#"{"messages":[{"role":"user","content":"hey"},{"role":"assistant","content":"a"}],
        "system":"sys"}"#;
    assert_eq!(text(Messages, body), "sys hey a");
}

#[test]
fn messages_take_only_text_blocks() {
    let body = r#"{"system":[{"type":"text","text":"s1"},{"type":"text","text":"s2"}],"messages":[
        {"role":"user","content":[{"type":"text","text":"u","cache_control":{"type":"ephemeral"}}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"t"},
            {"type":"tool_use","id":"1","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"RR"},
            {"type":"image","source":{}},{"type":"text","text":"ok"}]}]}"#;
    assert_eq!(text(Messages, body), "s1 s2 u ok");
}

#[test]
fn generate_takes_the_text() {
    assert_eq!(text(Generate, r#"{"text":"once"}"#), "once");
    assert_eq!(text(Generate, r#"{"text":["a","b"]}"#), "a b");
    assert_eq!(text(Generate, r#"{"prompt":"no"}"#), "");
}

#[test]
fn generate_ids_win_over_the_text() {
    let prompt = extract(Generate, r#"{"text":"t","input_ids":[1,2,3]}"#).unwrap();
    assert_eq!((prompt.tokens, prompt.text.as_str()), (vec![1, 2, 3], ""));
}

#[test]
fn generate_batches_route_on_the_first_sequence() {
    let prompt = extract(Generate, r#"{"input_ids":[[1,2],[3],["x"]]}"#).unwrap();
    assert_eq!(prompt.tokens, [1, 2]);
}

#[test]
fn generate_without_usable_ids_routes_on_the_text() {
    let bad = ["[]", "[[]]", "[[],[1]]", "null", "7", "{}", r#"["1"]"#, "[1.0]", "[1,[2]]"];
    let range = ["[4294967296]", "[-2147483649]", "[1,1e3]", "[123456789012345678901234567890]"];
    for ids in bad.into_iter().chain(range) {
        let prompt = extract(Generate, format!(r#"{{"input_ids":{ids},"text":"t"}}"#)).unwrap();
        assert_eq!((prompt.tokens.len(), prompt.text.as_str()), (0, "t"), "{ids}");
    }
}

#[test]
fn generate_keeps_the_bits_of_negative_ids() {
    let prompt = extract(Generate, r#"{"input_ids":[-1,-2147483648,4294967295,0]}"#).unwrap();
    assert_eq!(prompt.tokens, [u32::MAX, 0x8000_0000, u32::MAX, 0]);
}

#[test]
fn input_ids_route_on_generate_only() {
    let prompt = extract(Completions, r#"{"input_ids":[1,2],"prompt":"p"}"#).unwrap();
    assert_eq!((prompt.tokens.len(), prompt.text.as_str()), (0, "p"));
}

#[test]
fn responses_take_the_input_without_instructions() {
    assert_eq!(text(Responses, r#"{"instructions":"INS","input":"r"}"#), "r");
}

#[test]
fn responses_join_the_text_of_items_empty_ones_included() {
    let body = r#"{"instructions":"INS","input":[
        {"type":"message","role":"user","content":[{"type":"input_text","text":"u"},
            {"type":"input_image","image_url":"x"},{"type":"input_text","text":""}]},
        {"role":"user","content":"simple"},
        {"type":"function_call","name":"f","arguments":"{}"},
        {"type":"function_call_output","output":"no"},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"o"}]},
        {"type":"reasoning","summary":[{"type":"summary_text","text":"no"}],
            "content":[{"type":"reasoning_text","text":"why"}]},
        {"role":"user","content":""}]}"#;
    assert_eq!(text(Responses, body), "u  simple o why ");
}

#[test]
fn embeddings_and_classify_join_strings() {
    for endpoint in [Embeddings, Classify] {
        assert_eq!(text(endpoint, r#"{"input":"e"}"#), "e");
        assert_eq!(text(endpoint, r#"{"input":["e","e2"]}"#), "e e2");
        assert_eq!(text(endpoint, r#"{"input":[[1,2],[3]]}"#), "");
        assert_eq!(text(endpoint, r#"{"input":[1,2]}"#), "");
    }
}

#[test]
fn rerank_takes_the_query() {
    for endpoint in [Rerank, RerankV1] {
        assert_eq!(text(endpoint, r#"{"query":"q","documents":["a","b"]}"#), "q");
        assert_eq!(text(endpoint, r#"{"query":["q"],"documents":[]}"#), "");
    }
}

#[test]
fn transcriptions_take_the_form_fields() {
    let form = "--X1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
        Content-Type: audio/wav\r\n\r\nRIFF\0\r\n--X\r\n\r\n--X1\r\n\
        content-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--X1\r\n\
        Content-Disposition: form-data; name=prompt\r\n\r\na b\r\nc\r\n--X1\r\n\
        Content-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--X1--\r\n";
    let prompt = extract(Transcriptions, form).unwrap();
    assert_eq!(prompt.model.as_deref(), Some("whisper"));
    assert_eq!(prompt.text, "a b\r\nc");
    assert!(prompt.stream);
    let mut extractor = Extractor::new();
    let head = extractor.extract_head(Transcriptions, form.as_bytes()).unwrap();
    assert_eq!((head.model, head.text), (Some("whisper"), ""));
}

#[test]
fn transcriptions_are_never_refused() {
    for body in [
        &b""[..],
        b"--",
        b"--\r\n",
        b"--X\r\n",
        b"--X",
        b"{\"model\":\"m\"}",
        b"--X\r\nno headers\r\n--X--",
        b"--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ncut",
        b"--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\xff\r\n--X--",
    ] {
        assert_eq!(extract(Transcriptions, body).unwrap(), super::Owned::default());
    }
}

#[test]
fn a_model_that_can_name_none_is_told_from_one_that_is_not_given() {
    for model in ["5", "\"\"", "{}", "[\"m\"]", "true"] {
        let body = format!(r#"{{"model":{model},"stream":true}}"#);
        let mut extractor = Extractor::new();
        assert!(extractor.extract(Chat, body.as_bytes()).unwrap().model_is_unusable, "{body}");
    }
    for body in [r#"{}"#, r#"{"model":null}"#, r#"{"model":"m"}"#] {
        let mut extractor = Extractor::new();
        assert!(!extractor.extract(Chat, body.as_bytes()).unwrap().model_is_unusable, "{body}");
    }
}

#[test]
fn model_stream_and_rid() {
    let prompt = extract(Chat, r#"{"model":"m1","stream":true,"rid":"r_t1"}"#).unwrap();
    assert_eq!(prompt.model.as_deref(), Some("m1"));
    assert_eq!(prompt.rid.as_deref(), Some("r_t1"));
    assert!(prompt.stream);
}

#[test]
fn fields_of_unexpected_types_are_unset() {
    let prompt = extract(Chat, r#"{"model":5,"stream":"true","rid":["a","b"]}"#).unwrap();
    assert_eq!(prompt, super::Owned::default());
    assert_eq!(extract(Chat, r#"{"model":""}"#).unwrap().model, None);
    assert_eq!(extract(Chat, r#"{"model":null,"stream":null}"#).unwrap().model, None);
}

#[test]
fn the_last_of_repeated_keys_counts() {
    let body = r#"{"model":"a","stream":true,"messages":[{"content":"x"}],"model":"b",
        "messages":[{"content":"y","content":"z"}],"stream":false}"#;
    let prompt = extract(Chat, body).unwrap();
    assert_eq!((prompt.model.as_deref(), prompt.stream), (Some("b"), false));
    assert_eq!(prompt.text, "z");
}

#[test]
fn only_top_level_fields_count() {
    let body = r#"{"x":{"model":"yy","stream":true},"messages":[{"role":"user","model":"zz",
        "content":"\"model\":\"zz\",\"stream\":true}]}"}],"model":"m1"}"#;
    let prompt = extract(Chat, body).unwrap();
    assert_eq!((prompt.model.as_deref(), prompt.stream), (Some("m1"), false));
    assert_eq!(prompt.text, r#""model":"zz","stream":true}]}"#);
}

#[test]
fn the_head_leaves_out_text_and_tokens_only() {
    let body =
        r#"{"model":"m","stream":true,"rid":"r","cache_salt":"s","input_ids":[1],"text":"t"}"#;
    let full = extract(Generate, body).unwrap();
    let mut extractor = Extractor::new();
    let head = super::Owned::from(extractor.extract_head(Generate, body.as_bytes()).unwrap());
    assert!(head.text.is_empty() && head.tokens.is_empty() && full.tokens == [1]);
    assert_eq!(head, super::Owned { tokens: Vec::new(), ..full });
}

#[test]
fn four_endpoints_are_partitioned_alike() {
    let body = r#"{"cache_salt":"s","extra_key":"k","lora_path":"l"}"#;
    let expected = namespace(Some("s"), Some("k"), Some("l"));
    assert!(expected.is_some());
    for endpoint in Endpoint::ALL {
        let is_partitioned = matches!(endpoint, Chat | Completions | Messages | Generate);
        let found = extract(endpoint, body).unwrap().namespace;
        assert_eq!(found, if is_partitioned { expected } else { None }, "{endpoint:?}");
    }
}

#[test]
fn partition_fields_that_are_empty_or_not_strings_are_unset() {
    for body in [
        "{}",
        r#"{"cache_salt":""}"#,
        r#"{"cache_salt":5,"extra_key":{},"lora_path":[null,"x"],"lora_id":true}"#,
        r#"{"cache_salt":null,"extra_key":null,"lora_path":null}"#,
        r#"{"lora_path":"","lora_id":""}"#,
    ] {
        assert_eq!(extract(Generate, body).unwrap().namespace, None, "{body}");
    }
}

#[test]
fn the_adapter_on_generate_is_lora_path_else_lora_id() {
    let of = |endpoint, body: &str| extract(endpoint, body).unwrap().namespace;
    let (x, y) = (namespace(None, None, Some("X")), namespace(None, None, Some("Y")));
    assert_eq!(of(Generate, r#"{"lora_id":"X"}"#), x);
    assert_eq!(of(Generate, r#"{"lora_path":"X"}"#), x);
    assert_eq!(of(Generate, r#"{"lora_path":"Y","lora_id":"X"}"#), y);
    assert_eq!(of(Generate, r#"{"lora_path":"","lora_id":"X"}"#), x);
    assert_eq!(of(Generate, r#"{"lora_path":null,"lora_id":"X"}"#), x);
    assert_eq!(of(Chat, r#"{"lora_id":"X"}"#), None);
}
