//! The `x-smg-routing-tokens` header: leading token IDs for the choice of a worker.

/// The most IDs a header may hold.
pub const MAX_ROUTING_TOKENS: usize = 512;

/// The most bytes a header value may have.
pub const MAX_ROUTING_TOKENS_BYTES: usize = 4096;

/// Reads a header value: decimal `u32` IDs (leading zeros allowed) with single commas between them
/// and nothing else, within [`MAX_ROUTING_TOKENS`] and [`MAX_ROUTING_TOKENS_BYTES`].
///
/// All or nothing: returns true with `out` holding the IDs, or false with `out` empty, in which
/// case the request routes as if the header were absent. IDs with bit 31 set are kept as they are:
/// a namespace is part of an index's root key here and not a run of token IDs, so no header can
/// imitate one.
pub fn parse_routing_tokens(value: &[u8], out: &mut Vec<u32>) -> bool {
    out.clear();
    if value.is_empty() || value.len() > MAX_ROUTING_TOKENS_BYTES {
        return false;
    }
    for part in value.split(|&byte| byte == b',') {
        match parse_u32(part) {
            Some(id) if out.len() < MAX_ROUTING_TOKENS => out.push(id),
            _ => {
                out.clear();
                return false;
            }
        }
    }
    true
}

/// One or more ASCII digits, as a `u32`.
fn parse_u32(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |id, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        id.checked_mul(10)?.checked_add(u32::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::parse_routing_tokens;

    fn parse(value: &str) -> Option<Vec<u32>> {
        let mut out = vec![7];
        let valid = parse_routing_tokens(value.as_bytes(), &mut out);
        assert!(valid || out.is_empty());
        valid.then_some(out)
    }

    fn csv(ids: impl Iterator<Item = u32>) -> String {
        ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn ids_with_commas_between() {
        assert_eq!(parse("1,2,3"), Some(vec![1, 2, 3]));
        assert_eq!(parse("0"), Some(vec![0]));
    }

    #[test]
    fn leading_zeros_and_the_largest_id() {
        assert_eq!(parse("0001,00"), Some(vec![1, 0]));
        assert_eq!(parse("4294967295,1"), Some(vec![u32::MAX, 1]));
    }

    #[test]
    fn anything_else_is_ignored_as_a_whole() {
        for value in [
            "",
            ",",
            "1,",
            ",1",
            "1,,2",
            "1, 2",
            " 1",
            "1 ",
            "+1",
            "-1",
            "1.0",
            "0x10",
            "[1]",
            "abc",
            "1;2",
            "1,4294967296",
            "99999999999999999999",
            "1\n",
            "１",
        ] {
            assert_eq!(parse(value), None, "{value:?}");
        }
        assert!(!parse_routing_tokens(b"1,\xff", &mut Vec::new()));
    }

    #[test]
    fn at_most_512_ids() {
        assert_eq!(parse(&csv(0..512)), Some((0..512).collect()));
        assert_eq!(parse(&csv(0..513)), None);
    }

    #[test]
    fn at_most_4096_bytes() {
        let ids: Vec<u32> = (0..448).map(|i| 10_000_000 + i).collect();
        let value = csv(ids.iter().copied());
        let padded = format!("{}{value}", "0".repeat(4096 - value.len()));
        assert_eq!(parse(&padded), Some(ids));
        assert_eq!(parse(&format!("0{padded}")), None);
    }
}
