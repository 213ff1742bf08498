//! What answers tell browsers (CORS, Fetch standard §3.2): whether pages of the request's origin may
//! read them. Credentials of the browser, such as cookies, are never allowed along: keys are in headers
//! that a page sets itself.

use smg_core::http1::{Header, Method};

use crate::config::AllowedOrigins;
use crate::http::route::Route;

/// Headers of answers that a page may read besides those that every page may.
const EXPOSED: &[u8] = b"x-request-id, x-smg-error-code, x-smg-routed-worker-id, retry-after";
/// Headers a page may send if it does not say which it wants to.
const USUAL_HEADERS: &[u8] = b"authorization, content-type, x-api-key";
/// How long a browser may remember the answer to its question, in seconds.
const MAX_AGE_SECS: &[u8] = b"3600";

/// What the answers to one request say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Cors {
    /// Nothing: `--cors-allowed-origins` is not set.
    #[default]
    Off,
    /// Every page may read them.
    Any,
    /// Pages of this origin may; nobody's if `None`.
    Origin(Option<Box<[u8]>>),
}

impl Cors {
    /// For a request with these headers.
    pub fn of(allowed: Option<&AllowedOrigins>, buf: &[u8], headers: &[Header]) -> Self {
        match allowed {
            None => Self::Off,
            Some(AllowedOrigins::Any) => Self::Any,
            Some(AllowedOrigins::Listed(listed)) => {
                let origin = the_only(buf, headers, b"origin").filter(|given| {
                    listed.iter().any(|origin| given.eq_ignore_ascii_case(origin.as_bytes()))
                });
                Self::Origin(origin.map(Box::from))
            }
        }
    }

    /// What an answer says, in place of whatever a worker says about the same.
    pub fn headers(&self) -> Vec<(&'static str, &[u8])> {
        let mut said = Vec::new();
        if let Some(origin) = self.allowed() {
            said.push(("access-control-allow-origin", origin));
            said.push(("access-control-expose-headers", EXPOSED));
        }
        if let Self::Origin(_) = self {
            said.push(("vary", &b"origin"[..]));
        }
        said
    }

    /// What the answer to a browser's question says: may a page send a request with this method and
    /// these headers? `None` if `method` and `headers` do not ask that.
    pub fn preflight<'a>(
        &'a self,
        route: Route,
        method: Method,
        buf: &'a [u8],
        headers: &[Header],
    ) -> Option<Vec<(&'static str, &'a [u8])>> {
        let asks = *self != Self::Off
            && method == Method::Options
            && route != Route::Unknown
            && the_only(buf, headers, b"origin").is_some()
            && the_only(buf, headers, b"access-control-request-method").is_some();
        if !asks {
            return None;
        }
        let mut said = Vec::new();
        if let Some(origin) = self.allowed() {
            let wanted = the_only(buf, headers, b"access-control-request-headers");
            said.push(("access-control-allow-origin", origin));
            said.push(("access-control-allow-methods", route.allow().as_bytes()));
            said.push((
                "access-control-allow-headers",
                wanted.filter(|wanted| !wanted.is_empty()).unwrap_or(USUAL_HEADERS),
            ));
            said.push(("access-control-max-age", MAX_AGE_SECS));
        }
        said.push((
            "vary",
            &b"origin, access-control-request-method, access-control-request-headers"[..],
        ));
        Some(said)
    }

    fn allowed(&self) -> Option<&[u8]> {
        match self {
            Self::Off => None,
            Self::Any => Some(b"*"),
            Self::Origin(origin) => origin.as_deref(),
        }
    }
}

/// Value of a header that stands there once.
fn the_only<'a>(buf: &'a [u8], headers: &[Header], name: &[u8]) -> Option<&'a [u8]> {
    let mut values = headers.iter().filter(|header| header.name.of(buf).eq_ignore_ascii_case(name));
    let value = values.next()?.value.of(buf);
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smg_core::http1::parse_request;

    /// What an answer to a request with these header lines says, and what one to its question does.
    fn said(allowed: Option<&AllowedOrigins>, lines: &str) -> (Vec<String>, Option<Vec<String>>) {
        let buf = format!("OPTIONS /v1/models HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let mut headers = Vec::new();
        let head = parse_request(&buf, &mut headers).unwrap().unwrap();
        let cors = Cors::of(allowed, &buf, &headers);
        let text = |said: Vec<(&str, &[u8])>| {
            let line = |(name, value): (&str, &[u8])| {
                format!("{name}: {}", std::str::from_utf8(value).unwrap())
            };
            said.into_iter().map(line).collect()
        };
        let route = Route::of(b"/v1/models");
        let question = cors.preflight(route, head.method, &buf, &headers).map(text);
        assert_eq!(cors.preflight(Route::Unknown, head.method, &buf, &headers), None);
        assert_eq!(cors.preflight(route, Method::Get, &buf, &headers), None);
        (text(cors.headers()), question)
    }

    fn listed() -> AllowedOrigins {
        AllowedOrigins::Listed(vec!["https://a".into(), "https://b:8".into()])
    }

    const ASKS: &str = "Access-Control-Request-Method: POST\r\n";

    #[test]
    fn without_the_flag_nothing_is_said() {
        let lines = format!("Origin: https://a\r\n{ASKS}");
        assert_eq!(said(None, &lines), (vec![], None));
    }

    #[test]
    fn a_listed_origin_is_told_so_by_its_name() {
        let lines = format!(
            "oRIGIN: https://B:8\r\n{ASKS}Access-Control-Request-Headers: x-api-key,x-custom\r\n"
        );
        let (answer, question) = said(Some(&listed()), &lines);
        let exposed = "access-control-expose-headers: x-request-id, x-smg-error-code, \
                       x-smg-routed-worker-id, retry-after";
        assert_eq!(answer, ["access-control-allow-origin: https://B:8", exposed, "vary: origin"]);
        assert_eq!(
            question.unwrap(),
            [
                "access-control-allow-origin: https://B:8",
                "access-control-allow-methods: GET, HEAD",
                "access-control-allow-headers: x-api-key,x-custom",
                "access-control-max-age: 3600",
                "vary: origin, access-control-request-method, access-control-request-headers",
            ]
        );
    }

    #[test]
    fn another_origin_is_told_nothing_but_that_answers_differ() {
        for origin in [
            "",
            "Origin: https://c\r\n",
            "Origin: https://a.evil\r\n",
            "Origin: null\r\n",
            "Origin: https://a, https://b:8\r\n",
            "Origin: https://a\r\nOrigin: https://c\r\n",
        ] {
            let (answer, question) = said(Some(&listed()), &format!("{origin}{ASKS}"));
            assert_eq!(answer, ["vary: origin"], "{origin}");
            let is_one = origin.matches("Origin").count() == 1;
            assert_eq!(question.is_some(), is_one, "{origin}");
            assert!(question.is_none_or(|said| said.len() == 1), "{origin}");
        }
    }

    #[test]
    fn everybody_is_a_star() {
        let (answer, _) = said(Some(&AllowedOrigins::Any), "");
        assert_eq!(answer[0], "access-control-allow-origin: *");
        let (_, question) = said(Some(&AllowedOrigins::Any), &format!("Origin: null\r\n{ASKS}"));
        let question = question.unwrap();
        assert_eq!(question[0], "access-control-allow-origin: *");
        let usual = "access-control-allow-headers: authorization, content-type, x-api-key";
        assert_eq!(question[2], usual);
        // A request with OPTIONS that is not a browser's question.
        assert_eq!(said(Some(&AllowedOrigins::Any), "Origin: https://a\r\n").1, None);
    }
}
