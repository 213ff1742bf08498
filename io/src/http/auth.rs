//! Who may use which route.

use smg_core::http1::{Header, Known, eq_ignore_case, find};

use crate::config::{ApiKeys, Secret};
use crate::http::exchange::Credentials;
use crate::http::route::Route;

/// Checks the keys of a request. `None` when the route's key is configured and not given.
///
/// The first `Authorization` and the first `x-api-key` count. Whatever else a request says in either
/// header, a key of the gateway among it is found, so that no worker sees it.
pub fn check(keys: &ApiKeys, route: Route, buf: &[u8], headers: &[Header]) -> Option<Credentials> {
    let credentials = Credentials {
        authorization_is_ours: holds_ours(keys, buf, headers, Known::Authorization),
        x_api_key_is_ours: holds_ours(keys, buf, headers, Known::XApiKey),
    };
    let needed = match route {
        Route::Inference(_) => keys.inference(),
        Route::Own(own) if own.admin() => keys.admin(),
        Route::Own(_) | Route::Unknown => return Some(credentials),
    };
    if needed.is_empty() {
        return Some(credentials);
    }
    let value = |known| find(headers, known).map(|header: &Header| header.value.of(buf));
    let given = [value(Known::Authorization).and_then(bearer), value(Known::XApiKey)];
    let allowed = given
        .into_iter()
        .flatten()
        .fold(false, |found, key| found | matches_any(key, needed.iter()));
    allowed.then_some(credentials)
}

/// Whether a header of that name has one of the gateway's keys as its value, with a scheme or without.
fn holds_ours(keys: &ApiKeys, buf: &[u8], headers: &[Header], known: Known) -> bool {
    let values = headers.iter().filter(|header| header.known == known);
    values.map(|header| header.value.of(buf)).fold(false, |found, value| {
        let bare = bearer(value).is_some_and(|key| matches_any(key, keys.all()));
        found | bare | matches_any(value, keys.all())
    })
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    const SCHEME: usize = "Bearer ".len();
    let (scheme, key) = value.split_at_checked(SCHEME)?;
    eq_ignore_case(scheme, b"bearer ").then(|| key.trim_ascii())
}

/// Compares with every key, whichever it is.
fn matches_any<'a>(given: &[u8], keys: impl Iterator<Item = &'a Secret>) -> bool {
    keys.fold(false, |found, key| found | same(given, key.expose().as_bytes()))
}

/// Compares in time that depends on the lengths alone.
fn same(given: &[u8], key: &[u8]) -> bool {
    if given.len() != key.len() {
        return false;
    }
    let differences = given.iter().zip(key).fold(0u8, |differences, (a, b)| differences | (a ^ b));
    // The optimizer must not turn the fold into an early exit.
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::http::route::Own;
    use smg_core::http1::parse_request;
    use smg_core::prompt::Endpoint;

    fn allowed(config: &Config, route: Route, lines: &str) -> Option<Credentials> {
        let buf = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let mut headers = Vec::new();
        parse_request(&buf, &mut headers).unwrap().unwrap();
        check(&ApiKeys::of(config), route, &buf, &headers)
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
    fn the_admin_key_replaces_the_other_on_admin_routes() {
        let config = keyed("sk-1", Some("adm"));
        assert!(allowed(&config, WORKERS, "Authorization: Bearer adm\r\n").is_some());
        assert_eq!(allowed(&config, WORKERS, "Authorization: Bearer sk-1\r\n"), None);
        assert_eq!(allowed(&config, CHAT, "Authorization: Bearer adm\r\n"), None);
        assert!(allowed(&keyed("sk-1", None), WORKERS, "x-api-key: sk-1\r\n").is_some());
    }

    #[test]
    fn any_key_of_several_opens_and_none_of_them_is_left_in_the_request() {
        let mut config = keyed("sk-1", Some("adm"));
        let keys = vec![Secret::new("sk-2".into()), Secret::new("sk-33".into())];
        config.api_key_file = Some(crate::config::KeyFile { path: "keys".into(), keys });
        for key in ["sk-1", "sk-2", "sk-33"] {
            let line = format!("Authorization: Bearer {key}\r\n");
            assert!(allowed(&config, CHAT, &line).unwrap().authorization_is_ours, "{key}");
            assert_eq!(allowed(&config, WORKERS, &line), None, "{key}");
        }
        for line in ["x-api-key: sk-3\r\n", "x-api-key: sk-333\r\n", "x-api-key: adm\r\n"] {
            assert_eq!(allowed(&config, CHAT, line), None, "{line}");
        }
        // Ours wherever it stands: behind another one, without a scheme, the admin routes' key.
        for line in [
            "Authorization: Bearer other\r\nAuthorization: Bearer sk-2\r\nx-api-key: sk-1\r\n",
            "Authorization: sk-2\r\nx-api-key: sk-1\r\n",
            "Authorization: Bearer adm\r\nx-api-key: sk-1\r\n",
            "Authorization: Bearer sk-33\r\nx-api-key: Bearer sk-2\r\n",
        ] {
            let found = allowed(&config, CHAT, line).unwrap();
            assert!(found.authorization_is_ours && found.x_api_key_is_ours, "{line}");
        }
        let line = "Authorization: Bearer theirs\r\nx-api-key: sk-1\r\n";
        assert!(!allowed(&config, CHAT, line).unwrap().authorization_is_ours);
    }

    #[test]
    fn probes_are_always_open() {
        assert!(allowed(&keyed("sk-1", None), Route::Own(Own::Readiness), "").is_some());
    }
}
