//! Request targets and hosts (RFC 9112 §3.2, RFC 3986 §3.2).

/// The path and query of a target in origin form, absolute form or `*`. Begins with `/`, except
/// that `*` stays `*` and that an absolute form without a path but with a query gives `?...`.
pub fn path_and_query(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') || target == b"*" {
        return target;
    }
    let Some(scheme_end) = memchr::memmem::find(target, b"://") else { return b"/" };
    let rest = &target[scheme_end + 3..];
    match memchr::memchr2(b'/', b'?', rest) {
        Some(start) => &rest[start..],
        None => b"/",
    }
}

/// Splits what [`path_and_query`] gave at the first `?`. An empty path is `/`.
pub fn split_query(path_and_query: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (path, query) = match memchr::memchr(b'?', path_and_query) {
        Some(mark) => (&path_and_query[..mark], Some(&path_and_query[mark + 1..])),
        None => (path_and_query, None),
    };
    (if path.is_empty() { b"/" } else { path }, query)
}

/// Whether `host` is a `uri-host [ ":" port ]`. Empty is valid: RFC 9112 §3.2 asks for an empty
/// `Host` where the target has no authority.
pub fn is_valid_host(host: &[u8]) -> bool {
    let (name, port) = match host {
        [b'[', rest @ ..] => match memchr::memchr(b']', rest) {
            Some(close) => (&rest[..close], &rest[close + 1..]),
            None => return false,
        },
        _ => host.split_at(memchr::memchr(b':', host).unwrap_or(host.len())),
    };
    let literal = host.first() == Some(&b'[');
    let port_valid = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let name_valid = if literal {
        !name.is_empty() && name.iter().all(|&byte| byte == b':' || is_reg_name_byte(byte))
    } else {
        name.iter().all(|&byte| is_reg_name_byte(byte))
    };
    port_valid && name_valid
}

/// Whether the target is in one of the forms this gateway answers, without characters that no
/// URI holds. A fragment is refused: it is never sent, and hops disagree where it begins.
pub(super) fn is_valid_target(target: &[u8], options: bool) -> bool {
    let clean = target.iter().all(|&byte| byte > b' ' && byte < 0x7f && byte != b'#');
    clean
        && match target {
            [b'/', ..] => true,
            b"*" => options,
            _ => is_absolute_form(target),
        }
}

fn is_absolute_form(target: &[u8]) -> bool {
    let Some(scheme_end) = memchr::memmem::find(target, b"://") else { return false };
    let scheme = &target[..scheme_end];
    let rest = &target[scheme_end + 3..];
    let authority = &rest[..memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len())];
    (scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https"))
        && !authority.is_empty()
        && is_valid_host(authority)
}

/// Unreserved, sub-delims, and the percent sign of an escape.
fn is_reg_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_query_of_each_form() {
        let cases: [(&str, &str); 9] = [
            ("/", "/"),
            ("/v1/models?x=1", "/v1/models?x=1"),
            ("//double/slash", "//double/slash"),
            ("*", "*"),
            ("http://gw.test", "/"),
            ("http://gw.test/", "/"),
            ("HTTP://gw.test:80/a/b?c=http://d", "/a/b?c=http://d"),
            ("http://gw.test?x=1", "?x=1"),
            ("http://[::1]:8080/a", "/a"),
        ];
        for (target, want) in cases {
            assert_eq!(path_and_query(target.as_bytes()), want.as_bytes(), "{target}");
        }
    }

    #[test]
    fn queries_begin_at_the_first_question_mark() {
        assert_eq!(split_query(b"/a"), (&b"/a"[..], None));
        assert_eq!(split_query(b"/a?"), (&b"/a"[..], Some(&b""[..])));
        assert_eq!(split_query(b"/a?b?c"), (&b"/a"[..], Some(&b"b?c"[..])));
        assert_eq!(split_query(b"?x=1"), (&b"/"[..], Some(&b"x=1"[..])));
    }

    #[test]
    fn hosts() {
        for host in
            ["", "a", "gw.test", "a.example:1234", "a:", "127.0.0.1:80", "[::1]", "[::1]:80"]
        {
            assert!(is_valid_host(host.as_bytes()), "{host}");
        }
        for host in ["under_score", "xn--bcher-kva.example", "a%20b", "[fe80::1%25eth0]:1"] {
            assert!(is_valid_host(host.as_bytes()), "{host}");
        }
        for host in ["a b", "a/b@c", "a@b", "a:80:80", "a:8o", "a:123456", "[::1", "[]", "[::1]x"] {
            assert!(!is_valid_host(host.as_bytes()), "{host}");
        }
        for host in
            ["a?b", "a#b", "a\\b", "a\"b", "b\u{e9}", "a\tb", "<a>", "[a]b]", "::1", "a,b c"]
        {
            assert!(!is_valid_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn targets() {
        for target in
            ["/", "/a?b=c&d=%20+", "/{a}|\"<>^`", "http://h/a", "https://h:1", "http://h?q"]
        {
            assert!(is_valid_target(target.as_bytes(), false), "{target}");
        }
        for target in ["", "*", "v1/chat", "/a#x", "/a b", "/a\x01", "/a\x7f", "/\u{e9}", "http://"]
        {
            assert!(!is_valid_target(target.as_bytes(), false), "{target:?}");
        }
        for target in ["http:///a", "http://u@h/a", "ftp://h/a", "h:443", "://h/a", "http://h h/a"]
        {
            assert!(!is_valid_target(target.as_bytes(), false), "{target:?}");
        }
        assert!(is_valid_target(b"*", true));
        assert!(!is_valid_target(b"**", true));
    }
}
