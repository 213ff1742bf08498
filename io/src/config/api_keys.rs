//! The keys clients may use: those of the flags, and those of a file that can change while the
//! gateway runs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Config, Secret};

/// Most keys in one file: each costs every request a comparison.
pub const MAX_KEYS: usize = 1024;
/// Largest key file in bytes.
pub const MAX_KEY_FILE_BYTES: u64 = 1 << 20;

/// `--api-key-file`: where it is, and what was in it when the gateway started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// Its path, as given.
    pub path: PathBuf,
    /// Its keys in order, without repeats; at least one.
    pub keys: Vec<Secret>,
}

impl KeyFile {
    /// Reads the file at `path`: one key per line, empty lines and lines that begin with `#` ignored.
    ///
    /// # Errors
    /// [`KeyFileError`], which never shows a key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let mut text = Vec::new();
        let file = File::open(path).map_err(KeyFileError::Unreadable)?;
        file.take(MAX_KEY_FILE_BYTES + 1)
            .read_to_end(&mut text)
            .map_err(KeyFileError::Unreadable)?;
        if text.len() as u64 > MAX_KEY_FILE_BYTES {
            return Err(KeyFileError::TooLarge);
        }
        Ok(Self { path: path.to_owned(), keys: keys_of(&text)? })
    }
}

/// Why a key file cannot be used. Complete with its path and flag by whoever reports it.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It is not there, or may not be read.
    #[error("cannot be read: {0}; name a file the gateway may read, with one key per line")]
    Unreadable(io::Error),
    /// Larger than [`MAX_KEY_FILE_BYTES`].
    #[error("is larger than {MAX_KEY_FILE_BYTES} bytes; name a file of keys, one per line")]
    TooLarge,
    /// Nothing but empty lines and comments, which would lock everybody out.
    #[error("has no key in it; write one key per line, or leave the flag out to let everyone in")]
    Empty,
    /// More than [`MAX_KEYS`].
    #[error("has more than {MAX_KEYS} keys; remove those that are not used any more")]
    TooMany,
    /// A line that cannot be a key. The line itself stays hidden.
    #[error(
        "line {line} is not a key: a key consists of visible ASCII characters without spaces; \
         write one key per line, comments on lines of their own that begin with #"
    )]
    NotAKey {
        /// Its number, from 1.
        line: usize,
    },
}

fn keys_of(text: &[u8]) -> Result<Vec<Secret>, KeyFileError> {
    let mut keys: Vec<Secret> = Vec::new();
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let key = std::str::from_utf8(line).ok().and_then(Secret::checked);
        let key = key.ok_or(KeyFileError::NotAKey { line: at + 1 })?;
        if keys.contains(&key) {
            continue;
        }
        if keys.len() == MAX_KEYS {
            return Err(KeyFileError::TooMany);
        }
        keys.push(key);
    }
    if keys.is_empty() { Err(KeyFileError::Empty) } else { Ok(keys) }
}

/// Every key that opens something, as one epoch.
#[derive(Debug, Default)]
pub struct ApiKeys {
    inference: Vec<Secret>,
    admin: Option<Secret>,
}

impl ApiKeys {
    /// The keys at start.
    pub fn of(config: &Config) -> Self {
        let from_file = config.api_key_file.as_ref().map(|file| file.keys.clone());
        Self::with_file(config, from_file.unwrap_or_default())
    }

    /// The keys of the flags, and `from_file` in place of those the file had at start.
    pub fn with_file(config: &Config, from_file: Vec<Secret>) -> Self {
        let inference = config.api_key.iter().cloned().chain(from_file).collect();
        Self { inference, admin: config.admin_api_key.clone() }
    }

    /// Those of the inference routes; without any, everyone may use them.
    pub fn inference(&self) -> &[Secret] {
        &self.inference
    }

    /// Those of the admin routes: their own, or else the same.
    pub fn admin(&self) -> &[Secret] {
        self.admin.as_ref().map_or(&self.inference, std::slice::from_ref)
    }

    /// All of them: what no worker may see.
    pub fn all(&self) -> impl Iterator<Item = &Secret> {
        self.inference.iter().chain(&self.admin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposed(text: &str) -> Vec<String> {
        let keys = keys_of(text.as_bytes()).unwrap();
        keys.iter().map(|key| key.expose().to_owned()).collect()
    }

    #[test]
    fn a_key_stands_on_a_line_of_its_own() {
        let text = "# team a\nsk-1\n\n  sk-2  \r\n\t#sk-3\nsk-1\nsk#4";
        assert_eq!(exposed(text), ["sk-1", "sk-2", "sk#4"]);
    }

    #[test]
    fn what_is_not_a_key_is_named_by_its_line_and_not_shown() {
        for (text, line) in [
            (&b"sk-1\nsk 2\n"[..], 2),
            (b"\n\nsk-1 # mine\n", 3),
            ("schl\u{fc}ssel\n".as_bytes(), 1),
            (b"sk-1\n\nsk-\x07\n", 3),
            (b"sk-\xff\n", 1),
            (b"\xef\xbb\xbfsk-1\n", 1),
        ] {
            let error = keys_of(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line} is not a key")), "{error}");
            assert!(!error.contains("sk"), "{error}");
        }
    }

    #[test]
    fn a_file_without_keys_or_with_too_many_is_refused() {
        for text in ["", "\n \n", "# nothing\n"] {
            assert!(matches!(keys_of(text.as_bytes()), Err(KeyFileError::Empty)), "{text:?}");
        }
        let many: String = (0..=MAX_KEYS).map(|at| format!("k{at}\n")).collect();
        assert!(matches!(keys_of(many.as_bytes()), Err(KeyFileError::TooMany)));
        let most = many.strip_suffix("k1024\n").unwrap();
        assert_eq!(keys_of(most.as_bytes()).unwrap().len(), MAX_KEYS);
    }

    #[test]
    fn a_path_that_cannot_be_read_says_so() {
        for path in ["/no/such/file", "/"] {
            let error = KeyFile::read(Path::new(path)).unwrap_err();
            assert!(matches!(error, KeyFileError::Unreadable(_)), "{error}");
        }
        assert!(matches!(KeyFile::read(Path::new("/dev/zero")), Err(KeyFileError::TooLarge)));
    }

    #[test]
    fn admin_routes_have_their_own_key_or_all_the_others() {
        let key = |text: &str| Secret::new(text.into());
        let mut config = Config { api_key: Some(key("a")), ..Config::default() };
        let keys = ApiKeys::with_file(&config, vec![key("b")]);
        assert_eq!(keys.inference(), [key("a"), key("b")]);
        assert_eq!(keys.admin(), keys.inference());
        config.admin_api_key = Some(key("c"));
        let keys = ApiKeys::with_file(&config, vec![key("b")]);
        assert_eq!(keys.admin(), [key("c")]);
        assert_eq!(keys.all().count(), 3);
    }
}
