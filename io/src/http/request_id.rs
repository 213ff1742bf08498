//! Request ids: the client's, or one made here.

use std::rc::Rc;

use smg_core::http1::{Header, eq_ignore_case, is_field_value};
use smg_core::prompt::Endpoint;
use smg_core::rng::Rng;

use crate::http::route::Route;

/// Longest id taken over from a client; a longer one is replaced.
const LONGEST: usize = 256;
/// Random characters of an id made here.
const RANDOM_CHARS: usize = 24;

/// The first id the client sent in one of the headers `names` (lower case), or a new one.
pub fn choose(
    buf: &[u8],
    headers: &[Header],
    names: &[String],
    route: Route,
    rng: &mut Rng,
) -> Rc<[u8]> {
    for name in names {
        let given = headers
            .iter()
            .find(|header| eq_ignore_case(header.name.of(buf), name.as_bytes()))
            .map(|header| header.value.of(buf))
            .filter(|id| !id.is_empty() && id.len() <= LONGEST && is_field_value(id));
        if let Some(id) = given {
            return id.into();
        }
    }
    generate(route, rng)
}

fn generate(route: Route, rng: &mut Rng) -> Rc<[u8]> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AB";
    let prefix: &[u8] = match route {
        Route::Inference(Endpoint::Chat) => b"chatcmpl-",
        Route::Inference(Endpoint::Completions) => b"cmpl-",
        Route::Inference(Endpoint::Generate) => b"gnt-",
        Route::Inference(Endpoint::Responses) => b"resp-",
        Route::Inference(Endpoint::Messages) => b"msg_",
        _ => b"req-",
    };
    let mut id = Vec::with_capacity(prefix.len() + RANDOM_CHARS);
    id.extend_from_slice(prefix);
    while id.len() < prefix.len() + RANDOM_CHARS {
        let mut bits = rng.next_u64();
        for _ in 0..8 {
            id.push(ALPHABET[(bits & 63) as usize]);
            bits >>= 6;
        }
    }
    id.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use smg_core::http1::parse_request;

    fn id(lines: &str, names: &[&str]) -> String {
        let buf = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let mut headers = Vec::new();
        parse_request(&buf, &mut headers).unwrap().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let route = Route::Inference(Endpoint::Chat);
        String::from_utf8(choose(&buf, &headers, &names, route, &mut Rng::new(1)).to_vec()).unwrap()
    }

    #[test]
    fn the_first_listed_header_wins() {
        let lines = "X-Trace-Id: t\r\nX-My-Id: m\r\n";
        assert_eq!(id(lines, &["x-my-id", "x-trace-id"]), "m");
        assert_eq!(id("X-Trace-Id: t\r\n", &["x-my-id", "x-trace-id"]), "t");
    }

    #[test]
    fn a_made_id_names_the_endpoint() {
        let made = id("X-Request-Id: \r\n", &["x-request-id"]);
        assert!(made.starts_with("chatcmpl-") && made.len() == 9 + 24, "{made}");
    }
}
