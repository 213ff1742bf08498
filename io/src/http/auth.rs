//! Who may use which route.

use smg_core::http1::{Header, Known, eq_ignore_case};

use crate::config::{Config, Secret};
use crate::http::exchange::Credentials;
use crate::http::route::Route;

/// Checks the keys of a request. `None` when the route's key is configured and not given.
pub fn check(config: &Config, route: Route, buf: &[u8], headers: &[Header]) -> Option<Credentials> {
    let given = Given::of(buf, headers);
    let inference = config.api_key.as_ref();
    let admin = config.admin_api_key.as_ref();
    let credentials = Credentials {
        authorization_is_ours: holds_ours([inference, admin], buf, headers, Known::Authorization),
        x_api_key_is_ours: holds_ours([inference, admin], buf, headers, Known::XApiKey),
    };
    let needed = match route {
        Route::Inference(_) => [inference, None],
        Route::Own(own) if own.admin() => [admin.or(inference), None],
        Route::Own(_) | Route::Unknown => return Some(credentials),
    };
    if needed[0].is_none() {
        return Some(credentials);
    }
    let allowed = [given.bearer, given.x_api_key]
        .into_iter()
        .flatten()
        .fold(false, |found, key| found | matches_any(key, needed));
    allowed.then_some(credentials)
}

/// Whether any header of that name has one of the gateway's keys as its value, with a scheme or
/// without: a worker is sent all of them or none.
fn holds_ours(keys: [Option<&Secret>; 2], buf: &[u8], headers: &[Header], known: Known) -> bool {
    let values = headers.iter().filter(|header| header.known == known);
    values.map(|header| header.value.of(buf)).fold(false, |found, value| {
        let key = bearer(value).unwrap_or(value);
        found | matches_any(key, keys) | matches_any(value, keys)
    })
}

struct Given<'a> {
    bearer: Option<&'a [u8]>,
    x_api_key: Option<&'a [u8]>,
}

impl<'a> Given<'a> {
    fn of(buf: &'a [u8], headers: &[Header]) -> Self {
        let value = |known| {
            smg_core::http1::find(headers, known).map(|header: &Header| header.value.of(buf))
        };
        Self {
            bearer: value(Known::Authorization).and_then(bearer),
            x_api_key: value(Known::XApiKey),
        }
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    const SCHEME: usize = "Bearer ".len();
    let (scheme, key) = value.split_at_checked(SCHEME)?;
    eq_ignore_case(scheme, b"bearer ").then(|| key.trim_ascii())
}

fn matches_any(given: &[u8], keys: [Option<&Secret>; 2]) -> bool {
    keys.into_iter()
        .flatten()
        .fold(false, |found, key| found | same(given, key.expose().as_bytes()))
}

/// Compares in time that depends on the lengths alone.
fn same(given: &[u8], key: &[u8]) -> bool {
    let differences =
        given.iter().zip(key.iter().cycle()).fold(0u8, |differences, (a, b)| differences | (a ^ b));
    // The optimizer must not turn the fold into an early exit.
    std::hint::black_box(differences) == 0 && given.len() == key.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::Own;
    use smg_core::http1::parse_request;
    use smg_core::prompt::Endpoint;

    fn allowed(config: &Config, route: Route, lines: &str) -> Option<Credentials> {
        let buf = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let mut headers = Vec::new();
        parse_request(&buf, &mut headers).unwrap().unwrap();
        check(config, route, &buf, &headers)
    }

    const CHAT: Route = Route::Inference(Endpoint::Chat);
    const WORKERS: Route = Route::Own(Own::Workers);

    fn keyed(api: &str, admin: Option<&str>) -> Config {
        Config {
            api_key: Some(Secret::new(api.into())),
            admin_api_key: admin.map(|key| Secret::new(key.into())),
            ..Config::default()
        }
    }

    #[test]
    fn without_a_key_everything_is_open() {
        assert_eq!(allowed(&Config::default(), CHAT, ""), Some(Credentials::default()));
        assert!(allowed(&Config::default(), WORKERS, "").is_some());
    }

    #[test]
    fn the_key_comes_as_bearer_or_x_api_key() {
        let config = keyed("sk-1", None);
        for line in ["Authorization: Bearer sk-1\r\n", "authorization: bearer sk-1\r\n"] {
            assert!(allowed(&config, CHAT, line).unwrap().authorization_is_ours, "{line}");
        }
        assert!(allowed(&config, CHAT, "x-api-key: sk-1\r\n").unwrap().x_api_key_is_ours);
        for line in
            ["", "Authorization: sk-1\r\n", "Authorization: Bearer sk-12\r\n", "x-api-key: \r\n"]
        {
            assert_eq!(allowed(&config, CHAT, line), None, "{line}");
        }
    }

    #[test]
    fn a_key_of_ours_is_found_wherever_it_stands() {
        let config = keyed("sk-1", Some("adm"));
        let with = |lines: &str| allowed(&config, CHAT, &format!("x-api-key: sk-1\r\n{lines}"));
        for line in ["Bearer adm", "adm", "bearer  sk-1"] {
            let lines = format!("Authorization: Bearer theirs\r\nAuthorization: {line}\r\n");
            assert!(with(&lines).unwrap().authorization_is_ours, "{line}");
        }
        assert!(!with("Authorization: Bearer theirs\r\n").unwrap().authorization_is_ours);
        let lines = "Authorization: Bearer sk-1\r\nx-api-key: theirs\r\nx-api-key: adm\r\n";
        assert!(allowed(&config, CHAT, lines).unwrap().x_api_key_is_ours);
    }

    #[test]
    fn the_admin_key_replaces_the_other_on_admin_routes() {
        let config = keyed("sk-1", Some("adm"));
        assert!(allowed(&config, WORKERS, "Authorization: Bearer adm\r\n").is_some());
        assert_eq!(allowed(&config, WORKERS, "Authorization: Bearer sk-1\r\n"), None);
        assert_eq!(allowed(&config, CHAT, "Authorization: Bearer adm\r\n"), None);
        assert!(allowed(&keyed("sk-1", None), WORKERS, "x-api-key: sk-1\r\n").is_some());
    }

    #[test]
    fn probes_are_always_open() {
        assert!(allowed(&keyed("sk-1", None), Route::Own(Own::Readiness), "").is_some());
    }
}
