//! Origins of web pages, as browsers name them.

/// Whose pages may read the gateway's answers (`--cors-allowed-origins`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Everybody's.
    Any,
    /// These origins', as [`origin`] wrote them; at least one.
    Listed(Vec<String>),
}

/// `text` as a browser writes it in `Origin`: lower case, without the port that its scheme implies.
///
/// # Errors
/// The rule it breaks.
pub fn origin(text: &str) -> Result<String, &'static str> {
    let lower = text.to_ascii_lowercase();
    let (scheme, authority) = lower.split_once("://").ok_or(
        "Must be * for every origin, or scheme://host[:port] such as https://app.example.com",
    )?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_scheme || authority.is_empty() {
        return Err("Must be scheme://host[:port]");
    }
    if authority.contains(['/', '?', '#', '@']) {
        return Err("Must end after the host or port: no path, user or / at the end");
    }
    if authority.contains('*') {
        return Err("Must name one origin: * stands for every origin, and only alone");
    }
    if !authority.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "Must be visible ASCII: write an international name as browsers do, in Punycode",
        );
    }
    let implied = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    Ok(format!("{scheme}://{}", authority.strip_suffix(implied).unwrap_or(authority)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_do() {
        for (given, written) in [
            ("https://App.Example.com", "https://app.example.com"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("HTTP://a:80", "http://a"),
            ("https://a:443", "https://a"),
            ("https://a:80", "https://a:80"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("tauri://localhost", "tauri://localhost"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(origin(given).as_deref(), Ok(written), "{given}");
        }
    }

    #[test]
    fn what_no_browser_sends_is_refused() {
        for (given, rule) in [
            ("", "scheme://host"),
            ("null", "scheme://host"),
            ("app.example.com", "scheme://host"),
            ("https://", "scheme://host"),
            ("1://a", "scheme://host"),
            ("https://a/", "Must end after"),
            ("https://a/path", "Must end after"),
            ("https://u@a", "Must end after"),
            ("https://*.example.com", "only alone"),
            ("https://b\u{fc}cher.example", "Punycode"),
            ("https://a b", "visible ASCII"),
        ] {
            assert!(origin(given).unwrap_err().contains(rule), "{given}");
        }
    }
}
