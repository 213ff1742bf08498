//! What is read again on SIGHUP. It happens on a thread of its own, because files block, and what it
//! brings is published as an epoch: no shard waits and no request under way notices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TrySendError};

use tracing::{info, warn};

use crate::config::{ApiKeys, KeyFile};
use crate::shared::Shared;

/// What can be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// `--api-key-file`.
    ApiKeys,
    /// `--tls-cert-path` and `--tls-key-path`.
    Certificate,
}

impl Subject {
    /// Every subject, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::ApiKeys, Self::Certificate];

    /// Its name in logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::ApiKeys => "api_keys",
            Self::Certificate => "tls_certificate",
        }
    }
}

/// How often each subject was read again, with and without success.
#[derive(Debug, Default)]
pub struct Counts([[AtomicU64; 2]; Subject::ALL.len()]);

impl Counts {
    fn count(&self, subject: Subject, succeeded: bool) {
        self.0[subject as usize][usize::from(succeeded)].fetch_add(1, Ordering::Relaxed);
    }

    /// Reloads of `subject` that did or did not succeed.
    pub fn get(&self, subject: Subject, succeeded: bool) -> u64 {
        self.0[subject as usize][usize::from(succeeded)].load(Ordering::Relaxed)
    }
}

/// Reads something and publishes it, and says in a few words what is there now; or says why what was
/// there stays. Neither text may hold a secret: both are logged.
pub type Reload = Box<dyn FnMut(&Shared) -> Result<String, String> + Send>;

/// One thing that is read again.
pub struct Source {
    /// What it is.
    pub subject: Subject,
    /// How.
    pub reload: Reload,
}

/// What the configuration says can be read again.
pub fn sources(shared: &Shared) -> Vec<Source> {
    let api_keys = shared.config.api_key_file.as_ref().map(|file| api_keys(file.path.clone()));
    let certificate = shared.config.tls.as_ref().map(|_| certificate());
    api_keys.into_iter().chain(certificate).collect()
}

fn certificate() -> Source {
    let reload = |shared: &Shared| match &shared.tls.clients {
        Some(tls) => match tls.reload() {
            Ok(()) => Ok("certificate and key for new connections".to_owned()),
            Err(error) => Err(error.to_string()),
        },
        None => Err("there is no certificate".to_owned()),
    };
    Source { subject: Subject::Certificate, reload: Box::new(reload) }
}

fn api_keys(path: std::path::PathBuf) -> Source {
    let reload = move |shared: &Shared| {
        let at = path.display();
        let file = KeyFile::read(&path).map_err(|error| format!("--api-key-file: {at} {error}"))?;
        let count = file.keys.len();
        shared.api_keys.store(Arc::new(ApiKeys::with_file(&shared.config, file.keys)));
        Ok(format!("{count} keys from {at}"))
    };
    Source { subject: Subject::ApiKeys, reload: Box::new(reload) }
}

/// The thread that reads again.
pub struct Reloader {
    /// Holds one wish: a second one that comes before the first was begun asks for the same.
    wishes: Option<mpsc::SyncSender<()>>,
}

impl Reloader {
    /// Starts the thread, if there is anything to read again. It ends with the handle.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(shared: Arc<Shared>, mut sources: Vec<Source>) -> io::Result<Self> {
        if sources.is_empty() {
            return Ok(Self { wishes: None });
        }
        let (wishes, wished) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("smg-reload".into()).spawn(move || {
            while wished.recv().is_ok() {
                for source in &mut sources {
                    reload(&shared, source);
                }
            }
        })?;
        Ok(Self { wishes: Some(wishes) })
    }

    /// Has everything read again, soon.
    pub fn reload(&self) {
        match &self.wishes {
            None => info!(target: "smg", "SIGHUP changes nothing: no flag names a file to reload"),
            Some(wishes) => {
                if let Err(TrySendError::Disconnected(())) = wishes.try_send(()) {
                    warn!(target: "smg", "SIGHUP changes nothing: the reloading thread has ended");
                }
            }
        }
    }
}

fn reload(shared: &Shared, source: &mut Source) {
    let what = source.subject.label();
    let outcome = (source.reload)(shared);
    shared.reloads.count(source.subject, outcome.is_ok());
    match outcome {
        Ok(now) => info!(target: "smg", what, %now, "reloaded"),
        Err(why) => warn!(target: "smg", what, %why, "not reloaded; what was loaded before stays"),
    }
}
