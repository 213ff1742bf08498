//! The names of the policies.

use std::fmt;
use std::str::FromStr;

/// One of the routing policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    CacheAware,
    RoundRobin,
    Random,
    PowerOfTwo,
    LeastLoad,
    PrefixHash,
    ConsistentHashing,
    Manual,
    Passthrough,
    /// Buckets of prompt length for prefill workers. Elsewhere it chooses like `Random`.
    Bucket,
}

impl PolicyKind {
    /// All of them, in the order of the flags' documentation.
    pub const ALL: [Self; 10] = [
        Self::CacheAware,
        Self::RoundRobin,
        Self::Random,
        Self::PowerOfTwo,
        Self::LeastLoad,
        Self::PrefixHash,
        Self::ConsistentHashing,
        Self::Manual,
        Self::Passthrough,
        Self::Bucket,
    ];

    /// The value of `--policy` and of the `policy` label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CacheAware => "cache_aware",
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::PowerOfTwo => "power_of_two",
            Self::LeastLoad => "least_load",
            Self::PrefixHash => "prefix_hash",
            Self::ConsistentHashing => "consistent_hashing",
            Self::Manual => "manual",
            Self::Passthrough => "passthrough",
            Self::Bucket => "bucket",
        }
    }

    /// Whether load reports change its decisions: the load monitor then polls even under
    /// `--disable-load-monitoring`.
    pub fn reads_loads(self) -> bool {
        matches!(self, Self::CacheAware | Self::PowerOfTwo | Self::LeastLoad)
    }

    /// Whether decisions of one model must be made in one place, the shard that owns the model: they
    /// read and write an index or the sticky map.
    pub fn needs_owner(self) -> bool {
        matches!(self, Self::CacheAware | Self::Manual)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No policy has that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy")
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    /// Letters in any case, with or without the underscores, as worker labels may carry them.
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let same = |kind: &Self| {
            let letters = |text: &'static str| text.bytes().filter(|&byte| byte != b'_');
            let given = name.bytes().filter(|&byte| byte != b'_');
            letters(kind.as_str()).eq(given.map(|byte| byte.to_ascii_lowercase()))
        };
        Self::ALL.into_iter().find(same).ok_or(UnknownPolicy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(kind.as_str().replace('_', "").to_uppercase().parse(), Ok(kind));
        }
        assert_eq!("cacheaware".parse(), Ok(PolicyKind::CacheAware));
        assert_eq!("Power_Of_Two".parse(), Ok(PolicyKind::PowerOfTwo));
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "cache-aware", "round robin", "randomly", "_"] {
            assert_eq!(name.parse::<PolicyKind>(), Err(UnknownPolicy), "{name}");
        }
    }
}
