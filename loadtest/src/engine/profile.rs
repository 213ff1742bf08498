//! Engine speeds and sizes under a name, with where the numbers come from.

use super::Nanos;

/// What one engine is capable of. Every duration is for one engine step, see [`Profile::step_ns`].
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub name: &'static str,
    /// One line for `--help` and reports.
    pub about: &'static str,
    /// Tokens per KV block.
    pub block_tokens: u32,
    /// KV blocks in the pool, for running requests and cached prefixes together.
    pub cache_blocks: u32,
    /// Requests in the running batch at most; the others wait.
    pub max_batch: u32,
    /// Requests in the waiting queue at most; one more is refused.
    pub max_waiting: u32,
    /// Tokens (prefill and decode) computed in one step at most.
    pub step_tokens: u32,
    /// Longest prompt and answer together, in tokens.
    pub max_model_len: u32,
    /// Fixed cost of a step: reading the weights once, launching the kernels.
    pub step_base_ns: Nanos,
    /// Cost of one decoding request in a step: reading its KV cache.
    pub decode_request_ns: Nanos,
    /// Cost of one prefilled token that was not cached.
    pub prefill_token_ns: Nanos,
    /// Answer length when the request names none.
    pub default_answer_tokens: u32,
}

impl Profile {
    /// Duration of a step that decodes one token for each of `decoding` requests and prefills
    /// `prefill_tokens` tokens: `base + decoding × per request + prefill_tokens × per token`.
    /// Reading weights and computing overlap on a real GPU, so a mixed step is a little faster
    /// there than this sum.
    pub fn step_ns(&self, decoding: u32, prefill_tokens: u32) -> Nanos {
        self.step_base_ns
            + u64::from(decoding) * self.decode_request_ns
            + u64::from(prefill_tokens) * self.prefill_token_ns
    }

    /// Largest prompt and answer the engine takes, in tokens.
    pub fn longest_request(&self) -> u32 {
        self.max_model_len.min(self.cache_blocks.saturating_mul(self.block_tokens))
    }

    /// The profile with this name.
    pub fn named(name: &str) -> Result<Self, UnknownProfile> {
        Self::all().into_iter().find(|p| p.name == name).ok_or_else(|| UnknownProfile(name.into()))
    }

    /// Every named profile, the first one being the default.
    ///
    /// The GPU profiles are rooflines, not measurements: prefill is `2 × parameters` FLOP per token
    /// at half of the datasheet's dense BF16 rate (NVIDIA H100 SXM: 989 TFLOP/s, 80 GB at
    /// 3.35 TB/s; L4: 121 TFLOP/s, 24 GB at 300 GB/s), a step reads the weights once at three
    /// quarters of the memory bandwidth, a decoding request reads the KV cache of 2,000 tokens, and
    /// the pool is what 90 % of the memory leaves beside BF16 weights. KV bytes per token follow
    /// the Llama 3 configurations (8 KV heads of 128; 32 layers: 128 KiB, 80 layers: 320 KiB).
    pub fn all() -> Vec<Self> {
        vec![
            Self {
                name: "8b-h100",
                about: "8B parameters, BF16, on one H100",
                block_tokens: 16,
                cache_blocks: 26_000,
                max_batch: 256,
                max_waiting: 10_000,
                step_tokens: 8_192,
                max_model_len: 131_072,
                step_base_ns: 6_400_000,
                decode_request_ns: 100_000,
                prefill_token_ns: 32_000,
                default_answer_tokens: 128,
            },
            Self {
                name: "70b-4xh100",
                about: "70B parameters, BF16, tensor parallel on four H100",
                block_tokens: 16,
                cache_blocks: 26_700,
                max_batch: 256,
                max_waiting: 10_000,
                step_tokens: 8_192,
                max_model_len: 131_072,
                step_base_ns: 14_000_000,
                decode_request_ns: 65_000,
                prefill_token_ns: 71_000,
                default_answer_tokens: 128,
            },
            Self {
                name: "8b-l4",
                about: "8B parameters, BF16, on one L4",
                block_tokens: 16,
                cache_blocks: 2_600,
                max_batch: 64,
                max_waiting: 10_000,
                step_tokens: 2_048,
                max_model_len: 32_768,
                step_base_ns: 71_000_000,
                decode_request_ns: 1_160_000,
                prefill_token_ns: 264_000,
                default_answer_tokens: 128,
            },
            Self {
                name: "demo",
                about: "made up for a laptop: caches small enough to overflow within seconds",
                block_tokens: 16,
                cache_blocks: 1_600,
                max_batch: 32,
                max_waiting: 10_000,
                step_tokens: 2_048,
                max_model_len: 16_384,
                step_base_ns: 12_000_000,
                decode_request_ns: 300_000,
                prefill_token_ns: 60_000,
                default_answer_tokens: 32,
            },
        ]
    }
}

/// No profile has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownProfile(String);

impl std::error::Error for UnknownProfile {}

impl std::fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = Profile::all().into_iter().map(|p| p.name).collect();
        write!(f, "no engine profile is called '{}'; there are: {}", self.0, names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for profile in Profile::all() {
            assert_eq!(Profile::named(profile.name).unwrap(), profile);
        }
        let error = Profile::named("9b-h100").unwrap_err().to_string();
        assert!(error.contains("'9b-h100'") && error.contains("8b-h100, 70b-4xh100"), "{error}");
    }

    /// The roofline in the doc comment of [`Profile::all`], worked out again.
    #[test]
    fn gpu_profiles_follow_their_datasheets() {
        struct Gpu {
            name: &'static str,
            gpus: f64,
            parameters: f64,
            flops: f64,
            bytes_per_s: f64,
            memory: f64,
            kv_bytes_per_token: f64,
        }
        let (h100, l4) = ((989e12, 3.35e12, 80e9), (121e12, 300e9, 24e9));
        let gpu = |name, gpus, parameters, (flops, bytes_per_s, memory), kv_bytes_per_token| Gpu {
            name,
            gpus,
            parameters,
            flops,
            bytes_per_s,
            memory,
            kv_bytes_per_token,
        };
        for g in [
            gpu("8b-h100", 1.0, 8e9, h100, 131_072.0),
            gpu("70b-4xh100", 4.0, 70e9, h100, 327_680.0),
            gpu("8b-l4", 1.0, 8e9, l4, 131_072.0),
        ] {
            let profile = Profile::named(g.name).unwrap();
            let near = |what: &str, ours: f64, formula: f64| {
                let off = (ours / formula - 1.0).abs();
                assert!(off < 0.1, "{} {what}: {ours} for {formula}", g.name);
            };
            let bandwidth = 0.75 * g.gpus * g.bytes_per_s;
            let prefill_s = 2.0 * g.parameters / (0.5 * g.gpus * g.flops);
            near("prefill", profile.prefill_token_ns as f64, 1e9 * prefill_s);
            let weights = 2.0 * g.parameters;
            near("base", profile.step_base_ns as f64, 1e9 * weights / bandwidth);
            let kv = 2_000.0 * g.kv_bytes_per_token / bandwidth;
            near("decode", profile.decode_request_ns as f64, 1e9 * kv);
            let pool = (0.9 * g.gpus * g.memory - weights) / g.kv_bytes_per_token / 16.0;
            near("pool", f64::from(profile.cache_blocks), pool);
        }
    }
}
