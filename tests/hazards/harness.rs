//! What every hazard is staged with: workers that do as scripted, a gateway in a process of its own,
//! clients that speak raw bytes. Threads and blocking sockets; every wait ends after [`PATIENCE`].

mod client;
mod gateway;
pub mod http2;
mod metrics;
mod secure;
mod wire;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use client::{Client, Response, chat, post};
pub use gateway::{Gateway, Launch, OutputFile, Refusal, free_port};
pub use http2::{Http2, RawHttp2};
pub use secure::Certificate;
pub use worker::{Exchange, Worker};

/// How long anything is waited for before the test fails. Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The most one look at something uses up of that.
const TICK: Duration = Duration::from_secs(1);

/// Waits until `condition` holds.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(within_patience(condition), "still waiting after {PATIENCE:?}: {what}");
}

/// Whether `condition` comes to hold. A machine that stands still uses up little patience: it stands
/// still for everybody.
pub fn within_patience(mut condition: impl FnMut() -> bool) -> bool {
    let mut spent = Duration::ZERO;
    while spent < PATIENCE {
        let before = Instant::now();
        if condition() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(5));
        spent += before.elapsed().min(TICK);
    }
    false
}

/// Something a worker waits for until the test allows it.
#[derive(Clone, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn wait(&self) {
        within_patience(|| self.0.load(Ordering::SeqCst));
    }
}

/// Whether the environment keeps the gateway from io_uring.
pub fn legacy_driver_is_forced() -> bool {
    let forced = std::env::var("MONOIO_FORCE_LEGACY_DRIVER");
    forced.is_ok_and(|value| matches!(value.as_str(), "1" | "true" | "yes"))
}
