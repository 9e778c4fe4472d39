//! TERM and INT: the first one drains the worker, the second one ends its commands, the third one
//! ends the process.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use signal_hook::low_level;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use super::worker::Worker;

/// The signals of the process, as long as this is kept.
pub(super) struct Signals {
    /// The second one; 0 before.
    second: Arc<AtomicI32>,
    _watching: AbortOnDropHandle<()>,
}

impl Signals {
    /// From here on signals are for this worker.
    pub(super) fn watch(worker: &Arc<Worker>) -> io::Result<Self> {
        let mut watched =
            Watched { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
        let (worker, second) = (worker.clone(), Arc::new(AtomicI32::new(0)));
        let seen = second.clone();
        let watching = tokio::spawn(async move {
            watched.next().await;
            worker.stop.cancel();
            seen.store(watched.next().await, Ordering::Release);
            worker.cancelled.cancel();
            // The commands end with their reaper. Nothing else is to run: the database may be in use.
            low_level::exit(128 + watched.next().await);
        });
        Ok(Self { second, _watching: AbortOnDropHandle::new(watching) })
    }

    /// The number of the second signal, if there was one.
    pub(super) fn second(&self) -> Option<i32> {
        Some(self.second.load(Ordering::Acquire)).filter(|signal| *signal > 0)
    }
}

struct Watched {
    term: Signal,
    int: Signal,
}

impl Watched {
    /// The number of the next signal.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.term.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.int.recv() => SignalKind::interrupt().as_raw_value(),
        }
    }
}
