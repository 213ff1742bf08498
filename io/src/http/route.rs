//! The routes of the main listener, and how a path and method map to them.

use smg_core::http1::Method;
use smg_core::prompt::Endpoint;

use crate::config::LimitsConfig;

/// Largest body of the gateway's own paths: workers with as many labels as there may be fit well, and it is
/// parsed as a whole on a shard.
const LARGEST_OWN_BODY: usize = 256 << 10;

/// How long a body may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimit {
    /// In bytes.
    pub bytes: usize,
    /// `--max-payload-size`, and not that of the path.
    pub is_payload: bool,
}

impl BodyLimit {
    /// `--max-payload-size`.
    pub fn of_payload(bytes: usize) -> Self {
        Self { bytes, is_payload: true }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Goes to a worker through the policy.
    Inference(Endpoint),
    /// The gateway answers it, or asks a worker on its own behalf.
    Own(Own),
    /// Nothing is served there.
    Unknown,
}

/// Routes the gateway answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    Health,
    Liveness,
    Readiness,
    HealthGenerate,
    EngineMetrics,
    Models,
    ModelInfo,
    ServerInfo,
    FlushCache,
    Loads,
    GetLoads,
    Workers,
    Worker,
}

impl Own {
    const ALL: [Self; 13] = [
        Self::Health,
        Self::Liveness,
        Self::Readiness,
        Self::HealthGenerate,
        Self::EngineMetrics,
        Self::Models,
        Self::ModelInfo,
        Self::ServerInfo,
        Self::FlushCache,
        Self::Loads,
        Self::GetLoads,
        Self::Workers,
        Self::Worker,
    ];

    /// The route's template, as it appears in metric labels.
    pub fn template(self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::Liveness => "/liveness",
            Self::Readiness => "/readiness",
            Self::HealthGenerate => "/health_generate",
            Self::EngineMetrics => "/engine_metrics",
            Self::Models => "/v1/models",
            Self::ModelInfo => "/get_model_info",
            Self::ServerInfo => "/get_server_info",
            Self::FlushCache => "/flush_cache",
            Self::Loads => "/loads",
            Self::GetLoads => "/get_loads",
            Self::Workers => "/workers",
            Self::Worker => "/workers/{worker_id}",
        }
    }

    /// Methods the route answers to, for the `Allow` header.
    pub fn allow(self) -> &'static str {
        match self {
            Self::Workers => "GET, HEAD, POST",
            Self::Worker => "GET, HEAD, PUT, PATCH, DELETE",
            Self::FlushCache => "POST",
            _ => "GET, HEAD",
        }
    }

    /// Whether `method` is one of them.
    pub fn allows(self, method: Method) -> bool {
        let name = match method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options | Method::Other(_) => return false,
        };
        self.allow().split(", ").any(|allowed| allowed == name)
    }

    /// Whether the route needs the admin key.
    pub fn admin(self) -> bool {
        matches!(
            self,
            Self::Workers | Self::Worker | Self::FlushCache | Self::Loads | Self::GetLoads
        )
    }
}

impl Route {
    /// Number of distinct templates, `other` included.
    pub const COUNT: usize = Endpoint::ALL.len() + Own::ALL.len() + 1;

    /// The route of a path without its query.
    pub fn of(path: &[u8]) -> Self {
        if let Some(endpoint) = Endpoint::from_path(path) {
            return Self::Inference(endpoint);
        }
        if let Some(id) = path.strip_prefix(b"/workers/") {
            let one_segment = !id.is_empty() && !id.contains(&b'/');
            return if one_segment { Self::Own(Own::Worker) } else { Self::Unknown };
        }
        let own = Own::ALL.into_iter().find(|own| own.template().as_bytes() == path);
        own.map_or(Self::Unknown, Self::Own)
    }

    /// Methods the route answers to, for the `Allow` header.
    pub fn allow(self) -> &'static str {
        match self {
            Self::Inference(_) => "POST",
            Self::Own(own) => own.allow(),
            Self::Unknown => "",
        }
    }

    /// Whether errors on this route take Anthropic's shape.
    pub fn is_anthropic(self) -> bool {
        self == Self::Inference(Endpoint::Messages)
    }

    /// Longest body it takes.
    pub fn largest_body(self, limits: &LimitsConfig) -> BodyLimit {
        let payload = BodyLimit::of_payload(limits.max_payload_size);
        match self {
            Self::Own(_) if LARGEST_OWN_BODY < payload.bytes => {
                BodyLimit { bytes: LARGEST_OWN_BODY, is_payload: false }
            }
            _ => payload,
        }
    }

    /// Dense position below [`Route::COUNT`], for tables.
    pub fn index(self) -> usize {
        match self {
            Self::Inference(endpoint) => endpoint as usize,
            Self::Own(own) => Endpoint::ALL.len() + own as usize,
            Self::Unknown => Self::COUNT - 1,
        }
    }

    /// The template at a position.
    pub fn template_at(index: usize) -> &'static str {
        if let Some(endpoint) = Endpoint::ALL.get(index) {
            endpoint.path()
        } else {
            Own::ALL.get(index - Endpoint::ALL.len()).map_or("other", |own| own.template())
        }
    }
}

/// Names of the methods told apart in metrics; anything else is the last.
pub const METHOD_LABELS: [&str; 8] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];

/// Position of `method` in [`METHOD_LABELS`].
pub fn method_index(method: Method) -> usize {
    match method {
        Method::Get => 0,
        Method::Head => 1,
        Method::Post => 2,
        Method::Put => 3,
        Method::Patch => 4,
        Method::Delete => 5,
        Method::Options => 6,
        Method::Other(_) => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_leads_back_to_its_route() {
        for index in 0..Route::COUNT - 1 {
            let template = Route::template_at(index);
            assert_eq!(Route::of(template.as_bytes()).index(), index, "{template}");
        }
        assert_eq!(Route::template_at(Route::COUNT - 1), "other");
    }

    #[test]
    fn paths_that_only_look_alike_are_unknown() {
        for path in
            ["/", "/workers/a/b", "/v1/chat/completion", "/healthz", "", "//health", "/workers/"]
        {
            assert_eq!(Route::of(path.as_bytes()), Route::Unknown, "{path}");
        }
    }

    #[test]
    fn methods_are_checked_per_route() {
        assert!(Own::Workers.allows(Method::Post));
        assert!(!Own::Workers.allows(Method::Delete));
        assert!(Own::Worker.allows(Method::Delete));
        assert!(!Own::Health.allows(Method::Post));
    }
}
