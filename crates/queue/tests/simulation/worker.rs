//! A worker as the scheduler has it: a future that the scheduler polls.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::desk::Desk;

/// Longer than the database takes to answer on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker.
pub(crate) struct Worker {
    future: Pin<Box<dyn Future<Output = ()>>>,
    bell: Arc<Bell>,
}

/// Rung when the database has an answer.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.has_rung.lock().unwrap() = true;
        self.rings.notify_one();
    }
}

impl Worker {
    pub(crate) fn new(future: impl Future<Output = ()> + 'static) -> Worker {
        Worker { future: Box::pin(future), bell: Arc::default() }
    }

    /// Goes on as far as it can; true if it has ended.
    pub(crate) fn poll(&mut self) -> bool {
        *self.bell.has_rung.lock().unwrap() = false;
        let waker = Waker::from(Arc::clone(&self.bell));
        self.future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(())
    }

    /// Waits until the database has an answer for it. It may be one that it has had already.
    pub(crate) fn wait(&self, desk: &Rc<Desk>) {
        let rung = self.bell.has_rung.lock().unwrap();
        let waited = self.bell.rings.wait_timeout_while(rung, PATIENCE, |has_rung| !*has_rung);
        let doing =
            || desk.current().map_or_else(|| "its watch".to_owned(), |operation| operation.to_string());
        assert!(!waited.unwrap().1.timed_out(), "{} waits in vain for {}", desk.name(), doing());
    }
}
