//! Bodies of `POST`, `PUT` and `PATCH /workers` against `serde_json` and the rules written down once
//! more.

use std::str::FromStr;

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value};
use smg_core::policy::PolicyKind;
use smg_io::admin::spec;
use smg_io::config::WorkerUrl;
use smg_io::control::Update;

/// Longest refusal in bytes: what it repeats is bounded.
const LONGEST_REFUSAL: usize = 4096;

/// `data` is a body, and also the choices that make one.
pub fn run(data: &[u8]) {
    check(data);
    let mut body = Vec::new();
    // Where the choices end the first of each is taken, so there is always a body.
    let _ = write_object(&mut Unstructured::new(data), &mut body);
    check(&body);
}

fn check(body: &[u8]) {
    let value = serde_json::from_slice::<Value>(body).ok();
    let object = value.as_ref().and_then(Value::as_object);
    check_whole(spec::whole(body), object);
    check_patch(spec::patch(body), object);
}

fn check_whole(
    found: std::result::Result<smg_io::fleet::WorkerSpec, String>,
    object: Option<&Map<String, Value>>,
) {
    let expected = object.and_then(whole);
    let spec = match (found, expected) {
        (Ok(found), Some(expected)) => (found, expected),
        (Err(error), None) => return assert_one_line(&error),
        (found, expected) => panic!("{found:?} is not {expected:?} of {object:?}"),
    };
    let (found, expected) = spec;
    assert_eq!(found.url.as_str(), expected.url.as_ref().expect("required").as_str());
    assert_eq!(
        (found.priority, found.cost),
        (expected.priority.unwrap_or(50), expected.cost.unwrap_or(1.0))
    );
    assert_eq!(found.api_key.as_ref().map(|key| key.expose().to_owned()), expected.api_key);
    let labels = found.labels.iter().map(|(name, value)| (name.clone(), value.clone()));
    assert_eq!(sorted(labels.collect()), sorted(expected.labels));
    assert_eq!((found.model, found.runtime), (expected.model, expected.runtime));
    let overload = expected.overload.unwrap_or_default();
    assert_eq!((found.overload.waiting_requests, found.overload.token_usage), overload);
}

fn check_patch(found: std::result::Result<Update, String>, object: Option<&Map<String, Value>>) {
    match (found, object.and_then(common)) {
        (Ok(Update::Patch { url, priority, cost, labels, api_key, overload }), Some(expected)) => {
            let as_str = |url: &WorkerUrl| url.as_str().to_owned();
            assert_eq!(url.as_ref().map(as_str), expected.url.as_ref().map(as_str));
            assert_eq!(
                (priority, cost, api_key),
                (expected.priority, expected.cost, expected.api_key)
            );
            assert_eq!(sorted(labels), sorted(expected.labels));
            let overload = overload.map(|own| (own.waiting_requests, own.token_usage));
            assert_eq!(overload, expected.overload);
        }
        (Err(error), None) => assert_one_line(&error),
        (Ok(_), expected) => panic!("accepted, and {expected:?}"),
        (Err(error), expected) => panic!("{error}, and {expected:?}"),
    }
}

/// A refusal is read in a log and in a terminal.
fn assert_one_line(error: &str) {
    assert!(!error.is_empty() && error.len() <= LONGEST_REFUSAL, "{} bytes", error.len());
    assert!(!error.contains(char::is_control), "{error:?}");
}

fn sorted(mut labels: Vec<(String, String)>) -> Vec<(String, String)> {
    labels.sort();
    labels
}

#[derive(Debug, Default)]
struct Expected {
    url: Option<WorkerUrl>,
    priority: Option<u32>,
    cost: Option<f64>,
    labels: Vec<(String, String)>,
    api_key: Option<String>,
    overload: Option<(Option<u32>, Option<f64>)>,
    model: Option<String>,
    runtime: Option<String>,
}

/// What a whole spec says; `None` if it is to be refused.
fn whole(object: &Map<String, Value>) -> Option<Expected> {
    object.get("url")?.as_str()?;
    let mut expected = common(object)?;
    // An empty URL is none, which a change of a worker may have.
    expected.url.as_ref()?;
    let runtimes = [text(object, "runtime_type")?, text(object, "runtime")?];
    expected.runtime = runtimes.into_iter().flatten().next();
    let kind = text(object, "worker_type")?;
    if kind.is_some_and(|kind| kind != "regular") {
        return None;
    }
    expected.model = match given(object, "models") {
        None => text(object, "model_id")?,
        Some(models) => match models.as_array()?.first() {
            None => None,
            Some(card) => text(card.as_object()?, "id")?,
        },
    };
    Some(expected)
}

fn common(object: &Map<String, Value>) -> Option<Expected> {
    let url = match text(object, "url")? {
        None => None,
        Some(url) => Some(WorkerUrl::from_str(&url).ok()?),
    };
    let overload = match given(object, "overload") {
        None => None,
        Some(block) => {
            let block = block.as_object()?;
            let waiting = whole_number(block, "waiting_requests")?;
            let usage = number(block, "token_usage")?;
            if waiting == Some(0) || !usage.is_none_or(|usage| usage > 0.0 && usage <= 1.0) {
                return None;
            }
            Some((waiting, usage))
        }
    };
    Some(Expected {
        url,
        priority: whole_number(object, "priority")?,
        cost: number(object, "cost")?,
        labels: labels(object)?,
        api_key: text(object, "api_key")?,
        overload,
        ..Expected::default()
    })
}

fn given<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// `None` if it is to be refused; an empty text is none.
fn text(object: &Map<String, Value>, name: &str) -> Option<Option<String>> {
    let Some(value) = given(object, name) else { return Some(None) };
    let text =
        value.as_str().filter(|text| text.len() <= 1024 && !text.contains(char::is_control))?;
    Some(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

fn whole_number(object: &Map<String, Value>, name: &str) -> Option<Option<u32>> {
    let Some(value) = given(object, name) else { return Some(None) };
    value.as_u64()?.try_into().ok().map(Some)
}

fn number(object: &Map<String, Value>, name: &str) -> Option<Option<f64>> {
    let Some(value) = given(object, name) else { return Some(None) };
    value.as_f64().map(Some)
}

fn labels(object: &Map<String, Value>) -> Option<Vec<(String, String)>> {
    let Some(value) = given(object, "labels") else { return Some(Vec::new()) };
    let labels = value.as_object().filter(|labels| labels.len() <= 64)?;
    let label = |(name, value): (&String, &Value)| {
        let value = value.as_str().filter(|value| name.len() + value.len() <= 1024)?;
        let is_sound = name != "policy" || value.parse::<PolicyKind>().is_ok();
        is_sound.then(|| (name.clone(), value.to_owned()))
    };
    labels.iter().map(label).collect()
}

const FIELDS: &[&str] = &[
    "url",
    "url",
    "api_key",
    "labels",
    "priority",
    "cost",
    "runtime_type",
    "runtime",
    "models",
    "model_id",
    "overload",
    "worker_type",
    "waiting_requests",
    "token_usage",
    "policy",
    "id",
];

const VALUES: &[&str] = &[
    "null",
    "\"http://a:1\"",
    "\"https://[::1]:8/x\"",
    "\"regular\"",
    "\"cache_aware\"",
    "\"\"",
    "\"a\\nb\"",
    "\"\u{85}\"",
    "0",
    "1",
    "50",
    "-1",
    "4294967296",
    "0.5",
    "1e400",
    "1.0",
    "[]",
    "[7]",
    "[{\"id\":\"m\"}]",
    "true",
    "\"decode\"",
    "18446744073709551616",
];

fn write_object(choices: &mut Unstructured<'_>, body: &mut Vec<u8>) -> Result<()> {
    body.push(b'{');
    let outcome = write_fields(choices, body, 0);
    body.push(b'}');
    outcome
}

fn write_fields(choices: &mut Unstructured<'_>, body: &mut Vec<u8>, depth: usize) -> Result<()> {
    body.extend_from_slice(b"\"url\":\"http://a\"");
    while !choices.ratio(1, 8)? {
        body.push(b',');
        body.extend_from_slice(format!("\"{}\":", choices.choose(FIELDS)?).as_bytes());
        if depth < 2 && choices.ratio(1, 4)? {
            body.push(b'{');
            let outcome = write_fields(choices, body, depth + 1);
            body.push(b'}');
            outcome?;
        } else if choices.ratio(1, 16)? {
            let length = choices.int_in_range(1000..=1100)?;
            body.extend_from_slice(format!("\"{}\"", "x".repeat(length)).as_bytes());
        } else {
            // Where the choices end a value is still needed.
            let value = choices.choose(VALUES).copied().unwrap_or("null");
            body.extend_from_slice(value.as_bytes());
        }
    }
    Ok(())
}
