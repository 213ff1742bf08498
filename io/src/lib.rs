//! Everything of the gateway that touches a socket, a thread or a clock.
//!
//! The data plane is a set of [`shard`]s, pinned monoio threads that accept, route and relay; the
//! control plane ([`control`]) is one glommio executor that owns the fleet. They share a [`shared`]
//! state of published epochs and exact counts, and talk through [`runtime::mailbox`]es.

pub mod admin;
pub mod body_memory;
pub mod config;
pub mod control;
pub mod fleet;
pub mod http;
pub mod http2;
pub mod launch;
pub mod messages;
pub mod metrics;
pub mod offload;
pub mod owner;
pub mod policies;
pub mod reload;
pub mod runtime;
pub mod shard;
pub mod shared;
pub mod tls;
