//! The URL of a worker: its name everywhere, and where to connect.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Longest worker URL in bytes.
const MAX_URL_BYTES: usize = 2048;

/// A checked `http` or `https` URL of one worker.
///
/// The text is kept as given except for trailing slashes, the letter case of the host, zeros an IPv6
/// address can do without, and the port if it is the scheme's (80, 443), so that one endpoint has one name. It is the
/// worker's identity in metrics, logs and the admin routes. Names are not looked up: `localhost` and
/// `127.0.0.1` are two workers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerUrl {
    text: String,
    tls: bool,
    /// End of the authority in `text`, where the base path begins.
    authority_end: usize,
    /// End of the host in `text`.
    host_end: usize,
    port: u16,
}

const PLAIN: &str = "http://";
const SECURE: &str = "https://";

impl WorkerUrl {
    /// The normal form, for example `http://10.0.0.7:8000/engine`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Host and port as they go into the `Host` header; the port only if it is not the scheme's.
    pub fn authority(&self) -> &str {
        &self.text[scheme(self.tls).0.len()..self.authority_end]
    }

    /// Host name or IP literal, an IPv6 one without its brackets.
    pub fn host(&self) -> &str {
        let host = &self.text[scheme(self.tls).0.len()..self.host_end];
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Port to connect to; the scheme's unless given.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What goes before a request's path: empty, or a path with a leading and no trailing slash.
    pub fn base_path(&self) -> &str {
        &self.text[self.authority_end..]
    }
}

impl fmt::Display for WorkerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for WorkerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Why a text is not the URL of a worker. The message says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerUrlError {
    /// Empty, too long, or with a byte that has no place in a URL.
    Malformed,
    /// No scheme.
    NoScheme,
    /// gRPC workers.
    GrpcNotAvailable,
    /// ZMQ workers.
    IpcNotAvailable,
    /// Any other scheme.
    UnknownScheme,
    /// A user name or password before the host.
    UserInfo,
    /// A query or fragment.
    QueryOrFragment,
    /// Nothing before the port or path.
    NoHost,
    /// Not a host name, IPv4 address or bracketed IPv6 address.
    BadHost,
    /// Not a number from 1 to 65535.
    BadPort,
}

impl fmt::Display for WorkerUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "Must be a URL such as http://10.0.0.7:8000",
            Self::NoScheme => "URL must start with http:// or https://",
            Self::GrpcNotAvailable => {
                "gRPC workers are not available in this version of smg; use the engine's http:// port"
            }
            Self::IpcNotAvailable => {
                "ipc (ZMQ) workers are not available in this version of smg; use the engine's http:// port"
            }
            Self::UnknownScheme => "URL must start with http:// or https:// (in lower case)",
            Self::UserInfo => {
                "URL must not contain a user name or password; give the worker an api_key instead"
            }
            Self::QueryOrFragment => "URL must not contain a query or fragment",
            Self::NoHost => "URL has no host",
            Self::BadHost => {
                "Host must be a name, an IPv4 address or an IPv6 address in brackets"
            }
            Self::BadPort => "Port must be between 1 and 65535",
        })
    }
}

impl std::error::Error for WorkerUrlError {}

impl FromStr for WorkerUrl {
    type Err = WorkerUrlError;

    fn from_str(given: &str) -> Result<Self, WorkerUrlError> {
        if given.is_empty()
            || given.len() > MAX_URL_BYTES
            || !given.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(WorkerUrlError::Malformed);
        }
        let (tls, rest) = after_scheme(given)?;
        let (scheme, default_port) = scheme(tls);
        if rest.contains(['?', '#']) {
            return Err(WorkerUrlError::QueryOrFragment);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(WorkerUrlError::Malformed);
        }
        if authority.contains('@') {
            return Err(WorkerUrlError::UserInfo);
        }
        let (host, port) = split_authority(authority)?;
        let host = normal_host(host)?;
        let port_number = match port {
            None => default_port,
            Some(digits) => parse_port(digits)?,
        };
        let mut text = format!("{scheme}{host}");
        let host_end = text.len();
        if port_number != default_port {
            text.push_str(&format!(":{port_number}"));
        }
        let authority_end = text.len();
        text.push_str(path.trim_end_matches('/'));
        Ok(Self { text, tls, authority_end, host_end, port: port_number })
    }
}

/// A scheme with what follows it, and its port.
fn scheme(tls: bool) -> (&'static str, u16) {
    if tls { (SECURE, 443) } else { (PLAIN, 80) }
}

/// Whether it is spoken to over TLS, and the rest of the URL.
fn after_scheme(url: &str) -> Result<(bool, &str), WorkerUrlError> {
    for tls in [false, true] {
        if let Some(rest) = url.strip_prefix(scheme(tls).0) {
            return Ok((tls, rest));
        }
    }
    let Some((scheme, _)) = url.split_once("://") else {
        return Err(WorkerUrlError::NoScheme);
    };
    Err(match scheme {
        "grpc" | "grpcs" => WorkerUrlError::GrpcNotAvailable,
        "ipc" => WorkerUrlError::IpcNotAvailable,
        _ => WorkerUrlError::UnknownScheme,
    })
}

/// Splits `host[:port]`; the brackets of an IPv6 literal stay with the host.
fn split_authority(authority: &str) -> Result<(&str, Option<&str>), WorkerUrlError> {
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or(WorkerUrlError::BadHost)? + 1;
        let (host, rest) = authority.split_at(end);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(WorkerUrlError::BadHost),
        };
    }
    match authority.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => Err(WorkerUrlError::BadHost),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

/// The one spelling of a host that is sound.
fn normal_host(host: &str) -> Result<String, WorkerUrlError> {
    if host.is_empty() {
        return Err(WorkerUrlError::NoHost);
    }
    if let Some(literal) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address: Ipv6Addr = literal.parse().map_err(|_| WorkerUrlError::BadHost)?;
        return Ok(format!("[{address}]"));
    }
    let sound = host.len() <= 253
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if sound { Ok(host.to_ascii_lowercase()) } else { Err(WorkerUrlError::BadHost) }
}

fn parse_port(digits: &str) -> Result<u16, WorkerUrlError> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WorkerUrlError::BadPort);
    }
    digits.parse().ok().filter(|&port| port != 0).ok_or(WorkerUrlError::BadPort)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> WorkerUrl {
        text.parse().unwrap()
    }

    fn error(text: &str) -> WorkerUrlError {
        text.parse::<WorkerUrl>().unwrap_err()
    }

    #[test]
    fn the_parts_of_a_url() {
        let worker = url("http://10.0.0.7:8000/engine/a/");
        assert_eq!(worker.as_str(), "http://10.0.0.7:8000/engine/a");
        assert_eq!(worker.authority(), "10.0.0.7:8000");
        assert_eq!(worker.host(), "10.0.0.7");
        assert_eq!(worker.port(), 8000);
        assert_eq!(worker.base_path(), "/engine/a");
    }

    #[test]
    fn port_and_path_are_optional() {
        let worker = url("http://gpu-1.rack_2.local");
        assert_eq!(
            (worker.authority(), worker.port(), worker.base_path()),
            ("gpu-1.rack_2.local", 80, "")
        );
    }

    #[test]
    fn https_has_a_port_of_its_own() {
        let worker = url("https://GPU1:443/engine/");
        assert_eq!((worker.as_str(), worker.port()), ("https://gpu1/engine", 443));
        assert_eq!((worker.authority(), worker.host(), worker.is_tls()), ("gpu1", "gpu1", true));
        assert_eq!(url("https://gpu1:80").authority(), "gpu1:80");
        assert_eq!(url("http://gpu1:443").authority(), "gpu1:443");
        assert!(!url("http://gpu1:443").is_tls());
    }

    #[test]
    fn one_endpoint_has_one_name() {
        assert_eq!(url("http://GPU1:8000/"), url("http://gpu1:8000"));
        assert_eq!(url("http://gpu1:08000//"), url("http://gpu1:8000"));
        for same in ["http://gpu1", "http://gpu1/", "http://GPU1:80", "http://gpu1:080/"] {
            assert_eq!((url(same).as_str(), url(same).port()), ("http://gpu1", 80), "{same}");
        }
        assert_eq!(url("http://[0:0:0:0:0:0:0:1]:80"), url("http://[::1]"));
        assert_ne!(url("http://gpu1:8000/A"), url("http://gpu1:8000/a"));
        assert_ne!(url("http://localhost:8000"), url("http://127.0.0.1:8000"));
    }

    #[test]
    fn ipv6_literals_need_brackets() {
        let worker = url("http://[::1]:9000");
        assert_eq!((worker.host(), worker.port(), worker.authority()), ("::1", 9000, "[::1]:9000"));
        assert_eq!(url("http://[FE80::1]").host(), "fe80::1");
        for bad in ["http://::1:9000", "http://[::1", "http://[::1]9000", "http://[gpu]:1"] {
            assert_eq!(error(bad), WorkerUrlError::BadHost, "{bad}");
        }
    }

    #[test]
    fn schemes_that_are_not_available_are_named() {
        assert_eq!(error("grpc://a:1"), WorkerUrlError::GrpcNotAvailable);
        assert_eq!(error("grpcs://a:1"), WorkerUrlError::GrpcNotAvailable);
        assert_eq!(error("ipc:///tmp/engine"), WorkerUrlError::IpcNotAvailable);
        assert_eq!(error("HTTP://a:1"), WorkerUrlError::UnknownScheme);
        assert_eq!(error("a:1"), WorkerUrlError::NoScheme);
    }

    #[test]
    fn what_has_no_place_in_a_worker_url() {
        assert_eq!(error("http://user:pw@a:1"), WorkerUrlError::UserInfo);
        assert_eq!(error("http://a:1/x?y=1"), WorkerUrlError::QueryOrFragment);
        assert_eq!(error("http://a:1#z"), WorkerUrlError::QueryOrFragment);
        assert_eq!(error("http://"), WorkerUrlError::NoHost);
        assert_eq!(error("http://:8000"), WorkerUrlError::NoHost);
        assert_eq!(error("http:///path"), WorkerUrlError::NoHost);
        assert_eq!(error("http://a b"), WorkerUrlError::Malformed);
        assert_eq!(error("http://a\r\nb"), WorkerUrlError::Malformed);
        assert_eq!(error(""), WorkerUrlError::Malformed);
        assert_eq!(error("http://ü"), WorkerUrlError::Malformed);
        assert_eq!(error("http://a%41:1"), WorkerUrlError::BadHost);
    }

    #[test]
    fn ports_are_numbers_from_1_to_65535() {
        assert_eq!(url("http://a:65535").port(), 65_535);
        for bad in ["http://a:0", "http://a:65536", "http://a:", "http://a:+80", "http://a:x"] {
            assert_eq!(error(bad), WorkerUrlError::BadPort, "{bad}");
        }
    }

    #[test]
    fn length_is_bounded() {
        assert_eq!(error(&format!("http://a/{}", "p".repeat(2048))), WorkerUrlError::Malformed);
    }
}
