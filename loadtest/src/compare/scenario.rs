//! The loads gateways are compared under.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::load::bodies::{Bodies, RequestOptions, Shape};
use crate::load::{Load, RunOptions, Target};
use crate::waiting::Waiting;

/// One kind of load. All are closed loops over kept-alive connections, every request new at its
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Chats of about 600 bytes, 32 connections.
    Short,
    /// Multi-turn chats of about 20 kB, 32 connections.
    #[serde(rename = "20k")]
    Chat20k,
    /// Multi-turn chats of about 100 kB, 16 connections.
    #[serde(rename = "100k")]
    Chat100k,
    /// 100 streams of 250-byte events, 5 ms apart.
    Sse,
}

impl Scenario {
    pub const ALL: [Self; 4] = [Self::Short, Self::Chat20k, Self::Chat100k, Self::Sse];

    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Chat20k => "20k",
            Self::Chat100k => "100k",
            Self::Sse => "sse",
        }
    }

    /// One line for tables.
    pub fn about(self) -> &'static str {
        match self {
            Self::Short => "chats of ~600 bytes, 32 connections",
            Self::Chat20k => "multi-turn chats of ~20 kB, 32 connections",
            Self::Chat100k => "multi-turn chats of ~100 kB, 16 connections",
            Self::Sse => "100 streams of 250-byte events every 5 ms",
        }
    }

    /// Whether work is counted in events instead of requests.
    pub fn is_stream(self) -> bool {
        self == Self::Sse
    }

    pub(super) fn load(self, target: Target, time: Duration, warmup: Duration) -> RunOptions {
        let (shape, connections) = match self {
            Self::Short => (Shape::Short, 32),
            Self::Chat20k => (Shape::Chat20k, 32),
            Self::Chat100k => (Shape::Chat100k, 16),
            Self::Sse => (Shape::Short, 100),
        };
        RunOptions {
            load: Load::Closed { connections },
            warmup,
            duration: time,
            max_requests: None,
            timeout: Duration::from_secs(10),
            bodies: Bodies::Generated(shape),
            request: RequestOptions {
                authority: target.authority.clone(),
                path: format!("{}/v1/chat/completions", target.base_path),
                model: crate::server::FleetOptions::default().model,
                stream: self.is_stream(),
                max_tokens: 64,
                headers: Vec::new(),
            },
            proves: false,
            waiting: Waiting::Sleep,
            seed: 1,
            first_number: 0,
            target,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
