//! How much I/O a task may do before it lets the others have a turn.
//!
//! On epoll a read or write that finds the socket ready ends at once, so a task whose peers are fast
//! enough would never wait: no other task would run, and no timer fire, as timers are driven only when
//! the runtime parks. On io_uring every operation waits for its completion, and nothing here happens.

use std::cell::Cell;
use std::task::{Context, Poll};
use std::time::Duration;

/// Operations that may end at once in one poll of a task.
const OPERATIONS: u32 = 64;
/// How long a task that used them up rests: long enough for the runtime to park, which drives I/O and
/// timers.
const REST: Duration = Duration::from_millis(1);

thread_local! {
    static LEFT: Cell<Left> = const { Cell::new(Left::Operations(OPERATIONS)) };
}

#[derive(Clone, Copy)]
enum Left {
    Operations(u32),
    /// None, and the task is to be woken after its rest.
    Resting,
}

/// A task begins a turn.
pub fn begin_turn() {
    LEFT.set(Left::Operations(OPERATIONS));
}

/// Ready while the task may go on; otherwise it is woken after a rest.
pub fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    match LEFT.get() {
        Left::Operations(1..) => return Poll::Ready(()),
        Left::Operations(0) => {
            LEFT.set(Left::Resting);
            let waker = cx.waker().clone();
            monoio::spawn(async move {
                monoio::time::sleep(REST).await;
                waker.wake();
            });
        }
        Left::Resting => {}
    }
    Poll::Pending
}

/// An operation has ended.
pub fn spend() {
    if let Left::Operations(left) = LEFT.get() {
        LEFT.set(Left::Operations(left.saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::time::Instant;

    use super::*;
    use crate::config::IoDriver;
    use crate::runtime::{driver, guard};

    #[test]
    fn a_task_whose_operations_always_end_at_once_lets_timers_fire() {
        for wanted in [IoDriver::Epoll, IoDriver::Auto] {
            let (mut runtime, _) = driver::build(wanted).unwrap();
            runtime.block_on(async {
                let stop = Rc::new(Cell::new(false));
                let seen = stop.clone();
                let busy = monoio::spawn(async move {
                    let greedy = async {
                        while !seen.get() {
                            poll_fn(poll_turn).await;
                            spend();
                        }
                    };
                    guard::catch_panic(greedy).await
                });
                let begun = Instant::now();
                monoio::time::sleep(Duration::from_millis(5)).await;
                stop.set(true);
                assert!(busy.await.is_ok());
                assert!(begun.elapsed() >= Duration::from_millis(5));
            });
        }
    }
}
