//! Cache partitions: requests of different namespaces never share a cached prefix.

use super::Endpoint;
use super::field::{Field, Fields};
use super::view::{Text, View};
use xxhash_rust::xxh3::Xxh3Default;

/// The key of a cache partition; a 64-bit hash, so that no client value is stored or logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(pub u64);

/// The namespace of these fields; `None` if all are unset. An empty string is unset.
///
/// XXH3-64 (seed 0) over a domain string and, for each field in order, the byte 1, the length in
/// bytes as a little-endian u64 and the bytes, or the byte 0 if unset (`smg-cache-aware.md` §6.2),
/// so that equal values in other fields and shifted boundaries differ.
pub fn namespace(
    cache_salt: Option<&str>,
    extra_key: Option<&str>,
    lora: Option<&str>,
) -> Option<Namespace> {
    of_texts([cache_salt, extra_key, lora])
}

/// A text may be large and in many parts: none is copied.
fn of_texts<T: Text>(fields: [Option<T>; 3]) -> Option<Namespace> {
    let fields = fields.map(|field| field.filter(|text| !text.is_empty()));
    if fields.iter().all(Option::is_none) {
        return None;
    }
    let mut hash = Xxh3Default::new();
    hash.update(DOMAIN);
    for field in fields {
        match field {
            Some(text) => {
                hash.update(&[1]);
                let mut len = 0;
                text.for_each(|part| {
                    len += part.len() as u64;
                    true
                });
                hash.update(&len.to_le_bytes());
                text.for_each(|part| {
                    hash.update(part.as_bytes());
                    true
                });
            }
            None => hash.update(&[0]),
        }
    }
    Some(Namespace(hash.digest()))
}

const DOMAIN: &[u8] = b"smg/cache-namespace/v1";

/// The namespace a request names, by the fields its endpoint has (`smg-cache-aware.md` §6.1, but an
/// empty `lora_path` does not hide a `lora_id`). Values that are not strings are unset.
pub(super) fn of_request<V: View>(endpoint: Endpoint, fields: &Fields<V>) -> Option<Namespace> {
    use Endpoint::{Chat, Completions, Generate, Messages};
    if !matches!(endpoint, Chat | Completions | Generate | Messages) {
        return None;
    }
    let lora_path = fields.text(Field::LoraPath).filter(|path| !path.is_empty());
    let lora_id = if endpoint == Generate { fields.text(Field::LoraId) } else { None };
    of_texts([fields.text(Field::CacheSalt), fields.text(Field::ExtraKey), lora_path.or(lora_id)])
}

#[cfg(test)]
mod tests {
    use super::{Namespace, namespace};

    #[test]
    fn the_published_vectors() {
        let of = |salt, key, lora| namespace(salt, key, lora).map(|Namespace(hash)| hash);
        assert_eq!(of(Some("tenant-a"), None, None), Some(0x5a75_9d17_a627_c050));
        assert_eq!(of(None, Some("tenant-a"), None), Some(0x4817_fd1b_d0f0_7e3b));
        assert_eq!(of(None, None, Some("tenant-a")), Some(0x6292_8b5e_af64_1190));
        assert_eq!(of(Some("ab"), Some("c"), None), Some(0x0ffd_fa2b_9e0e_d3cf));
        assert_eq!(of(Some("a"), Some("bc"), None), Some(0xf264_80ae_01fa_3e0d));
    }

    #[test]
    fn empty_is_unset() {
        assert_eq!(namespace(None, None, None), None);
        assert_eq!(namespace(Some(""), Some(""), Some("")), None);
        assert_eq!(namespace(Some("a"), Some(""), None), namespace(Some("a"), None, None));
    }

    #[test]
    fn long_values_hash_as_one_piece() {
        let long = "x".repeat(5000);
        let mut bytes = b"smg/cache-namespace/v1\0\x01".to_vec();
        bytes.extend_from_slice(&5000u64.to_le_bytes());
        bytes.extend_from_slice(long.as_bytes());
        bytes.push(0);
        let expected = xxhash_rust::xxh3::xxh3_64(&bytes);
        assert_eq!(namespace(None, Some(&long), None), Some(Namespace(expected)));
    }
}
