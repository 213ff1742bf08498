//! A transcription's form, read in whole parts: RFC 7578 as far as routing goes.
//!
//! ```text
//! --BOUNDARY CRLF *( header CRLF ) CRLF value  CRLF --BOUNDARY CRLF ...  CRLF --BOUNDARY --
//! ```
//!
//! The boundary is that of the first line, as nothing stands before it. What is not well formed ends
//! the reading; parts before it count. A file, a part without a name and one that is not UTF-8 are
//! passed over.

use super::Routed;

pub fn routed(body: &[u8]) -> Routed {
    let mut routed = Routed::default();
    for (name, value) in fields(body) {
        match &name[..] {
            b"model" => routed.model = Some(value).filter(|model| !model.is_empty()),
            b"stream" => routed.stream = value == "true",
            b"prompt" => routed.text = value,
            _ => {}
        }
    }
    routed
}

fn fields(body: &[u8]) -> Vec<(Vec<u8>, String)> {
    let mut fields = Vec::new();
    let Some(first_line) = find(body, b"\r\n") else { return fields };
    let delimiter = &body[..first_line];
    if !delimiter.starts_with(b"--") || !(3..=72).contains(&delimiter.len()) {
        return fields;
    }
    let separator = [b"\r\n", delimiter].concat();
    let mut rest = &body[delimiter.len()..];
    for _ in 0..64 {
        let Some(after) = rest.strip_prefix(b"\r\n") else { break };
        let Some(end) = find(after, &separator) else { break };
        fields.extend(field(&after[..end]));
        rest = &after[end + separator.len()..];
    }
    fields
}

fn field(part: &[u8]) -> Option<(Vec<u8>, String)> {
    let end = find(part, b"\r\n\r\n")?;
    let value = String::from_utf8(part[end + 4..].to_vec()).ok()?;
    let line = part[..end]
        .split(|&byte| byte == b'\n')
        .find(|line| line.to_ascii_lowercase().starts_with(b"content-disposition:"))?;
    let mut name = None;
    for parameter in line[b"content-disposition:".len()..].split(|&byte| byte == b';') {
        let parameter = parameter.trim_ascii();
        if parameter.starts_with(b"filename") {
            return None;
        }
        if let Some(value) = parameter.strip_prefix(b"name=") {
            let is_quoted = value.len() >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"");
            name = Some(if is_quoted { &value[1..value.len() - 1] } else { value });
        }
    }
    Some((name?.to_vec(), value))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
