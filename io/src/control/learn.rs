//! What a worker serves, by the engine's own routes.

use serde_json::Value;

use crate::fleet::check_name;

/// The routes that are asked, in this order.
pub const ROUTES: [&str; 3] = ["/v1/models", "/get_model_info", "/get_server_info"];
/// Labels that name the model of a worker, in this order.
pub const MODEL_LABELS: [&str; 3] = ["served_model_name", "model_id", "model_path"];

/// What the answers said so far.
#[derive(Default)]
pub struct Learned {
    /// Name of the model.
    pub model: Option<String>,
    /// Kind of the engine.
    pub runtime: Option<String>,
    /// Further facts, by name.
    pub labels: Vec<(String, String)>,
}

impl Learned {
    /// Takes what the body of an answer from `path` says; one that is not JSON says nothing.
    ///
    /// # Errors
    /// Which name in it cannot be one. What is good is taken all the same.
    pub fn take(&mut self, path: &str, body: &[u8]) -> Result<(), String> {
        let Ok(value) = serde_json::from_slice::<Value>(body) else { return Ok(()) };
        let taken = match path {
            "/v1/models" => self.take_models(&value),
            _ => self.take_info(&value),
        };
        taken.map_err(|error| format!("the answer to GET {path}: {error}"))
    }

    fn take_models(&mut self, value: &Value) -> Result<(), String> {
        let first = &value["data"][0];
        self.runtime = match first["owned_by"].as_str() {
            Some("sglang" | "nvidia") => Some("sglang".to_owned()),
            Some("vllm") => Some("vllm".to_owned()),
            _ => None,
        };
        if let Some(length) = first["max_model_len"].as_u64() {
            self.labels.push(("max_model_len".to_owned(), length.to_string()));
        }
        let model = name("the model's id", &first["id"])?;
        self.model = self.model.take().or(model);
        Ok(())
    }

    fn take_info(&mut self, value: &Value) -> Result<(), String> {
        let mut wrong = Ok(());
        let mut model = None;
        for field in ["served_model_name", "model_path", "dp_size", "tp_size", "version"] {
            let text = match &value[field] {
                Value::Number(number) => Ok(Some(number.to_string())),
                other => name(field, other),
            };
            match text {
                Ok(Some(text)) => {
                    if MODEL_LABELS.contains(&field) && value[field].is_string() {
                        model.get_or_insert_with(|| text.clone());
                    }
                    self.labels.push((field.to_owned(), text));
                }
                Ok(None) => {}
                Err(error) => wrong = wrong.and(Err(error)),
            }
        }
        self.model = self.model.take().or(model);
        wrong
    }
}

/// A text that is not empty; the error says why it cannot be a name.
fn name(what: &str, value: &Value) -> Result<Option<String>, String> {
    match value.as_str().filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => check_name(what, text).map(|()| Some(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::MAX_NAME_BYTES;

    #[test]
    fn each_engines_way_to_name_its_model() {
        for (path, body, model) in [
            ("/v1/models", r#"{"data":[{"id":"a","owned_by":"vllm"},{"id":"b"}]}"#, Some("a")),
            ("/v1/models", r#"{"data":[{"id":""}]}"#, None),
            ("/v1/models", r#"{"data":[]}"#, None),
            ("/v1/models", "<html>", None),
            ("/get_model_info", r#"{"model_path":"p","is_generation":true}"#, Some("p")),
            ("/get_server_info", r#"{"served_model_name":"s","model_path":"p"}"#, Some("s")),
            ("/get_server_info", r#"{"served_model_name":7,"model_path":"p"}"#, Some("p")),
        ] {
            let mut learned = Learned::default();
            learned.take(path, body.as_bytes()).unwrap();
            assert_eq!(learned.model.as_deref(), model, "{path} {body}");
        }
    }

    #[test]
    fn names_are_bounded() {
        let models = |id: &str| serde_json::json!({"data": [{"id": id}]}).to_string();
        let mut learned = Learned::default();
        let longest = "m".repeat(MAX_NAME_BYTES);
        learned.take("/v1/models", models(&longest).as_bytes()).unwrap();
        assert_eq!(learned.model, Some(longest));
        for (id, says) in [
            ("m".repeat(MAX_NAME_BYTES + 1), "the model's id is longer than 512 bytes"),
            ("a\nb".to_owned(), "the model's id must not contain control characters"),
        ] {
            let mut learned = Learned::default();
            let error = learned.take("/v1/models", models(&id).as_bytes()).unwrap_err();
            assert!(error.contains(says) && error.contains("/v1/models"), "{error}");
            assert_eq!(learned.model, None);
        }
        let long = "p".repeat(MAX_NAME_BYTES + 1);
        let info = serde_json::json!({"model_path": long, "version": "1"}).to_string();
        let mut learned = Learned::default();
        let error = learned.take("/get_server_info", info.as_bytes()).unwrap_err();
        assert!(error.contains("model_path is longer"), "{error}");
        assert_eq!(learned.labels, [("version".to_owned(), "1".to_owned())]);
    }
}
