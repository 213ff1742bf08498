//! Name lookups on a thread of their own: the system's resolver blocks, and neither a shard nor the
//! control core may.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::config::WorkerUrl;

/// Lookups waiting for the thread.
const QUEUE: usize = 1024;

type Answer = Result<SocketAddr, String>;
/// Host, port, and where the answer goes.
type Question = (String, u16, async_channel::Sender<Answer>);

/// A handle to the resolver thread.
#[derive(Debug, Clone)]
pub struct Resolver {
    questions: async_channel::Sender<Question>,
}

impl Resolver {
    /// Starts the thread; it ends with the last handle.
    pub fn start() -> std::io::Result<Self> {
        let (questions, asked) = async_channel::bounded::<Question>(QUEUE);
        std::thread::Builder::new().name("smg-resolver".into()).spawn(move || {
            while let Ok((host, port, reply)) = asked.recv_blocking() {
                // The asker may have given up.
                let _ = reply.try_send(lookup(&host, port));
            }
        })?;
        Ok(Self { questions })
    }

    /// The address of a worker; IP literals are answered at once.
    pub async fn resolve(&self, url: &WorkerUrl) -> Answer {
        if let Ok(ip) = url.host().parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, url.port()));
        }
        let (reply, answer) = async_channel::bounded(1);
        let question = (url.host().to_owned(), url.port(), reply);
        self.questions.try_send(question).map_err(|_| "too many name lookups".to_owned())?;
        answer.recv().await.map_err(|_| "the resolver has stopped".to_owned())?
    }
}

fn lookup(host: &str, port: u16) -> Answer {
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot resolve {host}: {error}"))?;
    found.next().ok_or_else(|| format!("{host} has no address"))
}
