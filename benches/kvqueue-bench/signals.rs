//! TERM and INT.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The first TERM or INT interrupts the cell, which cleans up; a second one ends the process at once.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Call it within a runtime.
    pub(super) fn watch() -> io::Result<Self> {
        let seen = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag unset, and sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, seen.clone())?;
            flag::register(signal, seen.clone())?;
        }
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for TERM or INT.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
