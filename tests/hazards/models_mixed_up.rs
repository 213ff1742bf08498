//! Several models behind one gateway.

use crate::harness::{Client, Gateway, Response, Worker, post};

/// A worker that says which model it serves.
fn worker_of(model: &'static str) -> Worker {
    Worker::serving(model, move |exchange| exchange.answer(200, model.as_bytes()))
}

#[test]
fn each_model_is_served_by_its_own_workers() {
    let workers = [worker_of("llama"), worker_of("qwen"), worker_of("llama")];
    let gateway =
        Gateway::before(&workers).flags("--model-alias gpt-4=qwen --policy round_robin").start();
    let mut client = Client::connect(&gateway);

    for _ in 0..6 {
        assert_eq!(ask(&mut client, r#"{"model":"llama","prompt":"x"}"#).text(), "llama");
        assert_eq!(ask(&mut client, r#"{"model":"qwen","prompt":"x"}"#).text(), "qwen");
        assert_eq!(ask(&mut client, r#"{"model":"gpt-4","prompt":"x"}"#).text(), "qwen");
    }
    assert_eq!(workers.each_ref().map(Worker::dispatched), [3, 12, 3]);

    for (body, status, code) in [
        (r#"{"model":"mistral","prompt":"x"}"#, 404, "model_not_found"),
        // The case of a name counts.
        (r#"{"model":"Llama","prompt":"x"}"#, 404, "model_not_found"),
        (r#"{"prompt":"x"}"#, 400, "missing_model"),
    ] {
        let response = ask(&mut client, body);
        assert_eq!((response.status(), response.error_code()), (status, Some(code)), "{body}");
        let error: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(error["error"]["code"], code);
    }
    assert_eq!(workers.iter().map(Worker::dispatched).sum::<usize>(), 18, "errors reach nobody");

    let models = client.get("/v1/models").expect("the models");
    let models: serde_json::Value = serde_json::from_slice(&models.body).expect("JSON");
    let mut names: Vec<_> =
        models["data"].as_array().expect("a list").iter().map(|model| &model["id"]).collect();
    names.sort_by_key(|name| name.to_string());
    assert_eq!(names, ["llama", "qwen"]);
}

fn ask(client: &mut Client, body: &str) -> Response {
    client.send(&post("/v1/completions", body.as_bytes()));
    client.response()
}
