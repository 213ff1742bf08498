//! The plain fields of a `multipart/form-data` body (RFC 7578), read for routing only.

use memchr::memmem;

/// Calls `each` with the name and value of every form field, in order. Values that are not UTF-8
/// (files, usually) are skipped. A body that is not well formed yields the fields before the fault:
/// judging it is the worker's business.
///
/// The delimiter is taken from the body's first line, so no header is needed; clients send no
/// preamble.
pub(super) fn for_each_field<'b>(body: &'b [u8], mut each: impl FnMut(&'b [u8], &'b str)) {
    let head = &body[..body.len().min(MAX_DELIMITER_BYTES + CRLF.len())];
    let Some(delimiter_len) = memmem::find(head, CRLF) else { return };
    if !head.starts_with(b"--") || delimiter_len < 3 {
        return;
    }
    let mut separator = [0; MAX_DELIMITER_BYTES + CRLF.len()];
    let separator = &mut separator[..CRLF.len() + delimiter_len];
    separator[..CRLF.len()].copy_from_slice(CRLF);
    separator[CRLF.len()..].copy_from_slice(&head[..delimiter_len]);
    let separator = memmem::Finder::new(separator);

    let mut rest = &body[delimiter_len..];
    for _ in 0..MAX_PARTS {
        // The last delimiter is followed by two dashes instead of a line end.
        let Some(part) = rest.strip_prefix(CRLF) else { return };
        let Some(part_len) = separator.find(part) else { return };
        if let Some((name, value)) = field(&part[..part_len]) {
            each(name, value);
        }
        rest = &part[part_len + CRLF.len() + delimiter_len..];
    }
}

const CRLF: &[u8] = b"\r\n";

/// Two dashes and the longest boundary (RFC 2046 §5.1.1).
const MAX_DELIMITER_BYTES: usize = 2 + 70;

/// Parts looked at; a transcription request has about ten.
const MAX_PARTS: usize = 64;

/// The name and value of one part: header lines, an empty line, the value.
fn field(part: &[u8]) -> Option<(&[u8], &str)> {
    let headers_len = memmem::find(part, b"\r\n\r\n")?;
    let name = field_name(&part[..headers_len])?;
    let value = std::str::from_utf8(&part[headers_len + 4..]).ok()?;
    Some((name, value))
}

/// The `name` parameter of the part's Content-Disposition; `None` for a file.
fn field_name(headers: &[u8]) -> Option<&[u8]> {
    let (_, disposition) = headers
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split_at_checked(DISPOSITION.len()))
        .find(|(header, _)| header.eq_ignore_ascii_case(DISPOSITION))?;
    let mut name = None;
    for parameter in disposition.split(|&byte| byte == b';') {
        let parameter = parameter.trim_ascii();
        if parameter.starts_with(b"filename") {
            return None;
        }
        if let Some(value) = parameter.strip_prefix(b"name=") {
            let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            name = Some(quoted.unwrap_or(value));
        }
    }
    name
}

const DISPOSITION: &[u8] = b"content-disposition:";
