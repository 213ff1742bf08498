//! Where load goes.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::blocking;

/// A server to send requests to, resolved once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub address: SocketAddr,
    /// Value of the `Host` header.
    pub authority: String,
    /// Path in front of the API's paths, empty or starting with `/`.
    pub base_path: String,
}

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("'{0}' is not an http:// URL (TLS is not supported here)")]
    Scheme(String),
    #[error("'{0}' names no host")]
    Host(String),
    #[error("cannot resolve '{authority}': {source}")]
    Resolve { authority: String, source: std::io::Error },
}

impl Target {
    /// Reads `http://host[:port][/base]`. The port is 80 if none is given.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let rest = url.strip_prefix("http://").ok_or_else(|| TargetError::Scheme(url.into()))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.is_empty() || authority.starts_with(':') {
            return Err(TargetError::Host(url.into()));
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        let with_port = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let failed = |source| TargetError::Resolve { authority: authority.into(), source };
        let address = with_port
            .to_socket_addrs()
            .map_err(failed)?
            .next()
            .ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        Ok(Self {
            address,
            authority: authority.to_owned(),
            base_path: path.trim_end_matches('/').to_owned(),
        })
    }

    /// The first model the server lists, if it answers.
    pub fn first_model(&self) -> Option<String> {
        let path = format!("{}/v1/models", self.base_path);
        let answer = blocking::get(self.address, &path, Duration::from_secs(5)).ok()?;
        let models: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
        models["data"][0]["id"].as_str().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_and_resolved() {
        let target = Target::parse("http://127.0.0.1:8080/api/").unwrap();
        assert_eq!(target.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((&*target.authority, &*target.base_path), ("127.0.0.1:8080", "/api"));
        let bare = Target::parse("http://127.0.0.1").unwrap();
        assert_eq!((bare.address.port(), &*bare.base_path), (80, ""));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_named() {
        let message = |url| Target::parse(url).unwrap_err().to_string();
        assert!(message("https://x").contains("TLS"));
        assert!(message("http:///v1").contains("names no host"));
    }
}
