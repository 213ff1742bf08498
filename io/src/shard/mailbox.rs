//! The shard's end of the mailboxes: drains them in batches, answers route questions about the models
//! it owns, and sleeps on its bell when there is nothing to do.

use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use monoio::net::UnixStream;

use super::{Shard, accept};
use crate::http::admission;
use crate::messages::{Message, RouteReply, Swept};
use crate::runtime::clock;
use crate::runtime::mailbox::Mesh;

/// Messages handled before other tasks get a turn.
const BATCH: usize = 64;
/// How long to look for messages before sleeping while decisions are awaited. A hop to a sleeping
/// thread costs about 30 µs, to one that looks about 1 µs.
const SPIN: Duration = Duration::from_micros(20);

/// Serves the mailbox until the process ends.
pub async fn run(shard: Rc<Shard>, bell: Bell) -> std::io::Result<()> {
    let mesh = shard.shared.mesh.clone();
    let mut turn = 0;
    loop {
        let mut handled = 0;
        while handled < BATCH
            && let Some(message) = mesh.take(shard.index, &mut turn)
        {
            handle(&shard, message);
            handled += 1;
        }
        if handled > 0 {
            admission::wake_first(&shard);
        }
        if handled == BATCH || (!shard.waiting.borrow().is_empty() && spin(&shard).await) {
            yield_now().await;
            continue;
        }
        if mesh.prepare_sleep(shard.index) {
            bell.rung().await?;
            mesh.awake(shard.index);
        }
    }
}

/// The eventfd as something the runtime can wait for.
pub struct Bell(UnixStream);

impl Bell {
    /// The bell of the shard at this position. Call it inside the runtime.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(mesh: &Mesh<Message>, shard: usize) -> std::io::Result<Self> {
        // SAFETY: duplicates a descriptor the mesh keeps open; the copy is owned here.
        let copy = unsafe {
            match libc::fcntl(mesh.bell(shard), libc::F_DUPFD_CLOEXEC, 0) {
                -1 => return Err(std::io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        Ok(Self(UnixStream::from_std(copy.into())?))
    }

    /// Returns when it has been rung, or for nothing: with epoll, a signal can interrupt the wait.
    async fn rung(&self) -> std::io::Result<()> {
        match self.0.readable(false).await {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            outcome => outcome,
        }
    }
}

/// Looks for a message for a bounded time, letting other tasks run in between.
async fn spin(shard: &Shard) -> bool {
    let until = Instant::now() + SPIN;
    loop {
        if !shard.shared.mesh.is_empty(shard.index) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        yield_now().await;
    }
}

/// Lets every other ready task run first. Waking oneself would not: the runtime puts a task that
/// wakes itself in front of its queue.
async fn yield_now() {
    monoio::spawn(async {}).await;
}

fn handle(shard: &Rc<Shard>, message: Message) {
    match message {
        Message::Route(request) => {
            let outcome = shard.decide_for(request.model, &request.ask.as_ask());
            let reply = RouteReply { ticket: request.ticket, outcome };
            // A full mailbox drops the reply, and with it the in-flight count; the asker decides on
            // load alone when its patience ends.
            let _ = shard.shared.mesh.send(shard.index, request.from, Message::Routed(reply));
        }
        Message::Routed(reply) => shard.waiting.borrow_mut().answer(reply),
        Message::Forget(worker) => {
            shard.owner.borrow_mut().forget(worker);
            shard.pools.borrow_mut().forget(worker);
        }
        Message::Sweep(sweep) => {
            let is_part = shard.shared.parts.count() > 1;
            let mut owner = shard.owner.borrow_mut();
            let (report, garbage) = owner.sweep(sweep.model, clock::now_ms());
            let tenants = (is_part && report.done).then(|| owner.tenants(sweep.model));
            drop(owner);
            shard.count_pinned_keys();
            // The control core may have lost patience.
            let _ = sweep.reply.try_send(Swept { report, garbage, tenants });
        }
        Message::Reclaim(done) => {
            (shard.shared.memory.reclaim)();
            // The control core may have lost patience.
            let _ = done.try_send(());
        }
        // Every batch ends with a look at the queue.
        Message::Permit => {}
        Message::Close => {
            shard.closing.set(true);
            accept::stop(shard);
            shard.connections.borrow().end_idle();
        }
    }
}
