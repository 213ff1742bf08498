//! The body of `POST` and `PUT /workers`, checked.

use serde_json::Value;
use smg_core::policy::PolicyKind;

use crate::config::{OverloadConfig, Secret};
use crate::control::{MODEL_LABELS, Update};
use crate::fleet::{WorkerSpec, check_name};

/// Most labels of one worker.
const MAX_LABELS: usize = 64;
/// Longest label or key in bytes.
const MAX_TEXT: usize = 1024;

/// Reads a whole spec. The error names the field and what it should be.
pub fn whole(body: &[u8]) -> Result<WorkerSpec, String> {
    let value = object(body)?;
    let url = match &value["url"] {
        Value::String(url) => url,
        Value::Null => return Err("url is required, such as \"http://10.0.0.7:8000\"".into()),
        _ => return Err("url must be a string".into()),
    };
    let url = url.parse().map_err(|error| format!("url: {error}"))?;
    let mut spec = WorkerSpec::new(url);
    spec.api_key = text(&value, "api_key")?.map(Secret::new);
    spec.labels.extend(labels(&value)?);
    spec.priority = whole_number(&value, "priority")?.unwrap_or(spec.priority);
    spec.cost = number(&value, "cost")?.unwrap_or(spec.cost);
    spec.runtime = name(&value, "runtime_type")?.or(name(&value, "runtime")?);
    spec.model = model(&value)?;
    spec.overload = overload(&value)?.unwrap_or_default();
    if let Some(kind) = text(&value, "worker_type")?
        && kind != "regular"
    {
        return Err(format!("worker_type \"{kind}\" is not available; only \"regular\" is"));
    }
    Ok(spec)
}

/// Reads the fields of a `PATCH`.
pub fn patch(body: &[u8]) -> Result<Update, String> {
    let value = object(body)?;
    let url = text(&value, "url")?.map(|url| url.parse()).transpose();
    Ok(Update::Patch {
        url: url.map_err(|error| format!("url: {error}"))?,
        priority: whole_number(&value, "priority")?,
        cost: number(&value, "cost")?,
        labels: labels(&value)?,
        api_key: text(&value, "api_key")?,
        overload: overload(&value)?,
    })
}

fn object(body: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("the body must be a JSON object".into()),
        Err(error) => Err(format!("the body is not JSON: {error}")),
    }
}

fn text(value: &Value, field: &str) -> Result<Option<String>, String> {
    match &value[field] {
        Value::Null => Ok(None),
        Value::String(text) if text.len() > MAX_TEXT => {
            Err(format!("{field} is longer than {MAX_TEXT} bytes"))
        }
        // What goes into a header must not end it.
        Value::String(text) if text.chars().any(char::is_control) => {
            Err(format!("{field} must not contain control characters"))
        }
        Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        _ => Err(format!("{field} must be a string")),
    }
}

fn name(value: &Value, field: &str) -> Result<Option<String>, String> {
    let name = text(value, field)?;
    name.as_deref().map_or(Ok(()), |name| check_name(field, name))?;
    Ok(name)
}

fn whole_number(value: &Value, field: &str) -> Result<Option<u32>, String> {
    match &value[field] {
        Value::Null => Ok(None),
        number => number
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .map(Some)
            .ok_or_else(|| format!("{field} must be a whole number from 0 to {}", u32::MAX)),
    }
}

fn number(value: &Value, field: &str) -> Result<Option<f64>, String> {
    match &value[field] {
        Value::Null => Ok(None),
        number => number
            .as_f64()
            .filter(|number| number.is_finite())
            .map(Some)
            .ok_or_else(|| format!("{field} must be a number")),
    }
}

fn labels(value: &Value) -> Result<Vec<(String, String)>, String> {
    let labels = match &value["labels"] {
        Value::Null => return Ok(Vec::new()),
        Value::Object(labels) if labels.len() <= MAX_LABELS => labels,
        Value::Object(_) => return Err(format!("labels has more than {MAX_LABELS} entries")),
        _ => return Err("labels must be an object of strings".into()),
    };
    labels
        .iter()
        .map(|(name, value)| match value {
            Value::String(text) if text.len() + name.len() <= MAX_TEXT => {
                if name == "policy" && text.parse::<PolicyKind>().is_err() {
                    let names = PolicyKind::ALL.map(PolicyKind::as_str).join(", ");
                    return Err(format!(
                        "labels.policy: no policy is named {text:?}; there are {names}"
                    ));
                }
                if MODEL_LABELS.contains(&name.as_str()) {
                    check_name(&format!("labels.{name}"), text)?;
                }
                Ok((name.clone(), text.clone()))
            }
            Value::String(_) => Err(format!("a label is longer than {MAX_TEXT} bytes")),
            _ => Err("labels must be an object of strings".into()),
        })
        .collect()
}

/// A worker's own thresholds of overload protection.
fn overload(value: &Value) -> Result<Option<OverloadConfig>, String> {
    let block = match &value["overload"] {
        Value::Null => return Ok(None),
        block @ Value::Object(_) => block,
        _ => return Err("overload must be an object of waiting_requests and token_usage".into()),
    };
    let waiting_requests =
        whole_number(block, "waiting_requests").map_err(|error| format!("overload.{error}"))?;
    if waiting_requests == Some(0) {
        return Err("overload.waiting_requests must be at least 1".into());
    }
    let token_usage = number(block, "token_usage").map_err(|error| format!("overload.{error}"))?;
    if token_usage.is_some_and(|usage| usage <= 0.0 || usage > 1.0) {
        return Err("overload.token_usage must be above 0 and at most 1".into());
    }
    Ok(Some(OverloadConfig { waiting_requests, token_usage }))
}

fn model(value: &Value) -> Result<Option<String>, String> {
    match &value["models"] {
        Value::Null => name(value, "model_id"),
        Value::Array(models) => match models.first() {
            None => Ok(None),
            Some(card @ Value::Object(_)) => {
                name(card, "id").map_err(|error| format!("models: {error}"))
            }
            Some(_) => Err("models must be a list of objects with an id".into()),
        },
        _ => Err("models must be a list of objects with an id".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_enough() {
        let spec = whole(br#"{"url":"http://a:1/"}"#).unwrap();
        assert_eq!((spec.url.as_str(), spec.priority, spec.cost), ("http://a:1", 50, 1.0));
    }

    #[test]
    fn overload_thresholds_may_be_given_one_by_one() {
        let spec = whole(br#"{"url":"http://a","overload":{"waiting_requests":3}}"#).unwrap();
        let expected = OverloadConfig { waiting_requests: Some(3), token_usage: None };
        assert_eq!(spec.overload, expected);
        let spec = whole(br#"{"url":"http://a","overload":{"token_usage":1.0}}"#).unwrap();
        assert_eq!(spec.overload.token_usage, Some(1.0));
    }

    #[test]
    fn a_policy_may_be_written_as_elsewhere() {
        let spec = whole(br#"{"url":"http://a","labels":{"policy":"CacheAware"}}"#).unwrap();
        assert_eq!(spec.labels["policy"], "CacheAware");
    }

    #[test]
    fn names_are_bounded() {
        let (longest, longer) = ("m".repeat(512), "m".repeat(513));
        let bodies = |name: &str| {
            [
                format!(r#"{{"url":"http://a","model_id":"{name}"}}"#),
                format!(r#"{{"url":"http://a","models":[{{"id":"{name}"}}]}}"#),
                format!(r#"{{"url":"http://a","labels":{{"model_path":"{name}"}}}}"#),
                format!(r#"{{"url":"http://a","runtime":"{name}"}}"#),
            ]
        };
        for body in bodies(&longest) {
            assert!(whole(body.as_bytes()).is_ok(), "{body}");
        }
        for body in bodies(&longer) {
            let error = whole(body.as_bytes()).unwrap_err();
            assert!(error.contains("is longer than 512 bytes"), "{error}");
        }
        let error = whole(br#"{"url":"http://a","labels":{"model_id":"a\nb"}}"#).unwrap_err();
        assert!(error.contains("labels.model_id must not contain control"), "{error}");
    }

    #[test]
    fn errors_name_the_field() {
        for (body, says) in [
            (&b"{"[..], "not JSON"),
            (b"[]", "JSON object"),
            (b"{}", "url is required"),
            (br#"{"url":7}"#, "url must be a string"),
            (br#"{"url":"a:1"}"#, "url: URL must start with http:// or https://"),
            (br#"{"url":"http://a","priority":-1}"#, "priority must be a whole number"),
            (br#"{"url":"http://a","labels":{"a":1}}"#, "labels must be"),
            (br#"{"url":"http://a","labels":{"policy":"cache_awre"}}"#, "is named \"cache_awre\""),
            (br#"{"url":"http://a","api_key":"a\nb"}"#, "api_key must not contain control"),
            (br#"{"url":"http://a","worker_type":"prefill"}"#, "worker_type \"prefill\""),
            (br#"{"url":"http://a","models":{}}"#, "models must be a list"),
            (br#"{"url":"http://a","models":["m"]}"#, "models must be a list"),
            (br#"{"url":"http://a","overload":7}"#, "overload must be an object"),
            (br#"{"url":"http://a","overload":{"waiting_requests":0}}"#, "at least 1"),
            (br#"{"url":"http://a","overload":{"token_usage":1.5}}"#, "overload.token_usage"),
        ] {
            let error = whole(body).unwrap_err();
            assert!(error.contains(says), "{error} lacks {says}");
        }
    }
}
