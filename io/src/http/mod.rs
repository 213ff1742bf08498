//! The HTTP/1.1 edge: client connections, their requests, and the relay to workers.

pub mod access;
pub mod admission;
pub mod answer;
pub mod auth;
pub mod body;
pub mod client;
pub mod coding;
pub mod connection;
pub mod cors;
pub mod exchange;
pub mod inference;
pub mod lent;
pub mod meter;
pub mod pipe;
pub mod pool;
pub mod read;
pub mod refusal;
pub mod relay;
pub mod request;
pub mod request_id;
pub mod response_head;
pub mod route;
pub mod stalls;
pub mod transport;
pub mod watchdog;
