//! Keeps a panic inside the task that raised it.
//!
//! monoio polls tasks without catching: a panic would unwind the whole shard and every connection
//! on it. Each connection task runs inside [`catch_panic`].

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use crate::runtime::budget;

/// Polls `task`, each time with a full [`budget`]; a panic ends it and yields `Err` with the panic's
/// message.
pub async fn catch_panic<F: Future>(task: F) -> Result<F::Output, String> {
    let mut task = std::pin::pin!(task);
    std::future::poll_fn(move |cx| {
        budget::begin_turn();
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(payload) => Poll::Ready(Err(message(payload.as_ref()))),
        }
    })
    .await
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "panic without a message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
        std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let silent = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let outcome = poll_once(catch_panic(async { panic!("worker {} broke", 3) }));
        std::panic::set_hook(silent);
        assert_eq!(outcome, Poll::<Result<(), _>>::Ready(Err("worker 3 broke".into())));
    }

    #[test]
    fn a_value_passes_through() {
        assert_eq!(poll_once(catch_panic(async { 7 })), Poll::Ready(Ok(7)));
    }
}
