//! What identifies a client or a conversation in a request, for the policies that hash it or pin it to
//! a worker.

use smg_core::http1::Known;
use smg_core::policy::PolicyKind;
use smg_core::policy::consistent_hashing::HashedRequest;
use smg_core::policy::sticky::{header_key, routing_key as without_turns};

use crate::config::Config;
use crate::http::exchange::Credentials;
use crate::http::request::Request;
use crate::owner::Session;

/// The header that names a routing key, whatever `--routing-key-headers` adds.
const ROUTING_KEY: &str = "x-smg-routing-key";

/// Under `--routing-key-override`, the conversation of a request: its `rid`, else a header. `manual`
/// and `consistent_hashing` have keys of their own.
pub(super) fn session<'a>(
    config: &Config,
    policy: PolicyKind,
    request: &'a Request,
    rid: Option<&'a str>,
) -> Option<Session<'a>> {
    let own_keys = matches!(policy, PolicyKind::Manual | PolicyKind::ConsistentHashing);
    if !config.sticky.enabled || own_keys {
        return None;
    }
    if let Some(key) = rid.and_then(|rid| without_turns(rid.as_bytes())) {
        return Some(Session { key, from_rid: true });
    }
    let key = header(config, request, without_turns)?;
    Some(Session { key, from_rid: false })
}

/// The routing-key header of `manual` and `prefix_hash`.
pub(super) fn routing_key<'a>(
    config: &Config,
    policy: PolicyKind,
    request: &'a Request,
) -> Option<&'a [u8]> {
    match policy {
        PolicyKind::Manual => header(config, request, header_key),
        PolicyKind::PrefixHash => {
            header(config, request, |value| (!value.is_empty()).then_some(value))
        }
        _ => None,
    }
}

/// What `consistent_hashing` reads.
pub(super) fn hashed<'a>(
    config: &Config,
    policy: PolicyKind,
    request: &'a Request,
    credentials: Credentials,
    rid: Option<&'a str>,
) -> HashedRequest<'a> {
    if policy != PolicyKind::ConsistentHashing {
        return HashedRequest::default();
    }
    HashedRequest {
        target_worker: request.header(Known::SmgTargetWorker),
        rid: rid.filter(|_| config.sticky.enabled).map(str::as_bytes),
        // The policy takes the suffixes off.
        routing_key: header(config, request, |value| without_turns(value).map(|_| value)),
        // The gateway's own key is the same for every client and tells none of them apart.
        authorization: request
            .header(Known::Authorization)
            .filter(|_| !credentials.authorization_is_ours),
        forwarded_for: request.header(Known::XForwardedFor),
        cookie: named(request, "cookie"),
    }
}

/// The first routing-key header that is usable.
fn header<'a>(
    config: &Config,
    request: &'a Request,
    usable: impl Fn(&'a [u8]) -> Option<&'a [u8]>,
) -> Option<&'a [u8]> {
    let names = config.sticky.headers.iter().map(String::as_str);
    names.chain([ROUTING_KEY]).find_map(|name| usable(named(request, name)?))
}

/// Value of the first header of that name.
fn named<'a>(request: &'a Request, name: &str) -> Option<&'a [u8]> {
    let header = request
        .headers
        .iter()
        .find(|header| header.name.of(&request.buf).eq_ignore_ascii_case(name.as_bytes()))?;
    Some(header.value.of(&request.buf))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Instant;

    use smg_core::http1::parse_request;

    use super::*;
    use crate::http::route::Route;

    fn request(lines: &str) -> Request {
        let buf = format!("POST /generate HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let mut headers = Vec::new();
        let head = parse_request(&buf, &mut headers).unwrap().unwrap();
        let body = head.len..head.len;
        let route = Route::of(b"/generate");
        let started = Instant::now();
        Request {
            buf: Rc::new(buf.into()),
            head,
            headers,
            body_len: body.len(),
            body,
            route,
            id: Rc::default(),
            codings: Vec::new(),
            cors: crate::http::cors::Cors::Off,
            started,
        }
    }

    fn overriding(headers: &[&str]) -> Config {
        let mut config = Config::default();
        config.sticky.enabled = true;
        config.sticky.headers = headers.iter().map(|&name| name.to_owned()).collect();
        config
    }

    const THEIRS: Credentials =
        Credentials { authorization_is_ours: false, x_api_key_is_ours: false };
    const RANDOM: PolicyKind = PolicyKind::Random;

    #[test]
    fn a_session_needs_the_flag_and_a_policy_without_keys_of_its_own() {
        let request = request("X-SMG-Routing-Key: a_t1\r\n");
        assert_eq!(session(&Config::default(), RANDOM, &request, None), None);
        let config = overriding(&[ROUTING_KEY]);
        let found = session(&config, RANDOM, &request, None);
        assert_eq!(found, Some(Session { key: b"a", from_rid: false }));
        for policy in [PolicyKind::Manual, PolicyKind::ConsistentHashing] {
            assert_eq!(session(&config, policy, &request, None), None);
        }
    }

    #[test]
    fn the_rid_comes_first_unless_it_is_too_long() {
        let request = request("x-smg-routing-key: k\r\n");
        let config = overriding(&[ROUTING_KEY]);
        let found = session(&config, RANDOM, &request, Some("conv_t2_r1"));
        assert_eq!(found, Some(Session { key: b"conv", from_rid: true }));
        let long = "r".repeat(129);
        let found = session(&config, RANDOM, &request, Some(&long));
        assert_eq!(found, Some(Session { key: b"k", from_rid: false }));
    }

    #[test]
    fn headers_are_searched_in_the_order_given() {
        let config = overriding(&["x-session-id", "x-user-id"]);
        let key = |lines: &str| {
            let request = request(lines);
            session(&config, RANDOM, &request, None).map(|session| session.key.to_vec())
        };
        assert_eq!(key("X-User-Id: u\r\nx-session-id: s\r\n"), Some(b"s".to_vec()));
        assert_eq!(key("X-User-Id: u\r\nx-session-id: \r\n"), Some(b"u".to_vec()));
        assert_eq!(key("x-smg-routing-key: k\r\n"), Some(b"k".to_vec()));
        assert_eq!(key("x-other: o\r\n"), None);
    }

    #[test]
    fn the_gateways_own_key_is_not_hashed() {
        let policy = PolicyKind::ConsistentHashing;
        let config = Config::default();
        let request = request("Authorization: Bearer key\r\n");
        let ours = Credentials { authorization_is_ours: true, ..THEIRS };
        assert_eq!(hashed(&config, policy, &request, ours, None).authorization, None);
        let found = hashed(&config, policy, &request, THEIRS, None).authorization;
        assert_eq!(found, Some(&b"Bearer key"[..]));
    }

    #[test]
    fn the_rid_is_hashed_only_under_the_override() {
        let request = request("x-smg-routing-key: a_t1\r\nCookie: c=1\r\n");
        let policy = PolicyKind::ConsistentHashing;
        let plain = hashed(&Config::default(), policy, &request, THEIRS, Some("r"));
        assert_eq!((plain.rid, plain.routing_key), (None, Some(&b"a_t1"[..])));
        assert_eq!(plain.cookie, Some(&b"c=1"[..]));
        let config = overriding(&[ROUTING_KEY]);
        assert_eq!(hashed(&config, policy, &request, THEIRS, Some("r")).rid, Some(&b"r"[..]));
        assert_eq!(hashed(&config, RANDOM, &request, THEIRS, None).routing_key, None);
    }
}
