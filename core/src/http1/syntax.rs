//! Small pieces of HTTP's grammar (RFC 9110 §5.5, §5.6; RFC 5234 appendix B).

/// Whether `bytes` is a `token`: one or more of the characters a method or header name may hold.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Whether `bytes` may stand as a header value as it is: no control characters but HTAB.
/// Obs-text (0x80..) is allowed; so is surrounding white space, which a reader will trim.
pub fn is_field_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| is_field_value_byte(byte))
}

/// Compares ASCII letters without case; all other bytes exactly.
pub fn eq_ignore_case(left: &[u8], right: &[u8]) -> bool {
    left.eq_ignore_ascii_case(right)
}

/// Reads `1*DIGIT`. None if there is anything but digits, nothing at all, or more than a `u64`.
pub fn parse_decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Appends `value` in decimal.
pub fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    const MAX_DIGITS: usize = 20; // u64::MAX has 20
    let mut digits = [0u8; MAX_DIGITS];
    let mut start = MAX_DIGITS;
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Removes the optional white space (SP, HTAB) around a value.
pub fn trim_whitespace(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The non-empty elements of a comma-separated list, trimmed (RFC 9110 §5.6.1). Quoted strings
/// are not understood: only for lists of tokens.
pub fn list_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim_whitespace).filter(|element| !element.is_empty())
}

pub(super) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

pub(super) const fn is_field_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < marks.len() {
        table[marks[i] as usize] = true;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_digits_only_and_fit_64_bits() {
        assert_eq!(parse_decimal(b"0"), Some(0));
        assert_eq!(parse_decimal(b"00042"), Some(42));
        assert_eq!(parse_decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "18446744073709551616", "18446744073709551626", "+5", "-5", "5, 5", "5 "] {
            assert_eq!(parse_decimal(bad.as_bytes()), None, "{bad:?}");
        }
        for bad in ["0x5", "5.0", "1e2", "1_0", "1 0", "5abc", "\u{ff11}\u{ff12}", "/", ":"] {
            assert_eq!(parse_decimal(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn decimals_are_written_as_the_standard_library_writes_them() {
        for value in [0, 1, 9, 10, 99, 100, 65_536, u64::MAX - 1, u64::MAX] {
            let mut out = b"x".to_vec();
            push_decimal(&mut out, value);
            assert_eq!(out, format!("x{value}").into_bytes());
        }
    }

    #[test]
    fn tokens_hold_no_delimiters() {
        assert!(is_token(b"x-smg_routing.key~1!#$%&'*+^`|"));
        assert!(!is_token(b""));
        for byte in b"(),/:;<=>?@[\\]{}\" \t\r\n\0\x7f\x80\xff" {
            assert!(!is_token(&[b'a', *byte]), "{byte:#x}");
        }
    }

    #[test]
    fn values_hold_no_controls_but_the_tab() {
        assert!(is_field_value(b""));
        assert!(is_field_value(b"a\tb \x21\x7e\x80\xff"));
        for byte in (0..0x20u8).filter(|&byte| byte != b'\t').chain([0x7f]) {
            assert!(!is_field_value(&[b'a', byte]), "{byte:#x}");
        }
    }

    #[test]
    fn lists_skip_empty_elements() {
        let elements: Vec<_> = list_elements(b" a ,,\tb\t, c d ,").collect();
        assert_eq!(elements, [&b"a"[..], b"b", b"c d"]);
        assert_eq!(list_elements(b" , ").count(), 0);
    }
}
