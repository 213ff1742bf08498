//! `smg-loadtest engines` as a program.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use smg_loadtest::blocking;
use smg_loadtest::server::EngineSnapshot;

const PROGRAM: &str = env!("CARGO_BIN_EXE_smg-loadtest");

/// Engines that end with it.
pub struct Engines {
    child: Child,
    pub urls: Vec<String>,
}

impl Engines {
    /// Starts two.
    pub fn start(epoll: bool, arguments: &[&str]) -> Self {
        let mut child = command(epoll)
            .arg("engines")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let urls = lines.take(2).map(Result::unwrap).collect();
        Self { child, urls }
    }
}

impl Engines {
    /// Requests that one of them has answered.
    #[allow(dead_code, reason = "used by some of the tests that share this")]
    pub fn finished(&self, engine: usize) -> u64 {
        let address = self.urls[engine].trim_start_matches("http://").parse().unwrap();
        let answer = blocking::get(address, "/sim/stats", Duration::from_secs(5)).unwrap();
        let stats: EngineSnapshot = serde_json::from_slice(&answer.body).unwrap();
        stats.finished
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, on io_uring or on epoll.
pub fn command(epoll: bool) -> Command {
    let mut command = Command::new(PROGRAM);
    if epoll {
        command.env("MONOIO_FORCE_LEGACY_DRIVER", "1");
    }
    command
}
