//! What tests ask about the embedded databases of this process, and change in them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Link;
use crate::engine::Engine;
use crate::engine::faults::{Faults, Gate};
use crate::engine::holdings::Holdings;
use crate::url::directory;

/// This process does not host the database for which faults were requested.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process hosts no embedded database at {url}; be the first to open it before installing faults or looking at it"
)]
pub struct NotOpen {
    url: String,
}

impl Faults {
    /// Installs this plan of faults for the open database at `url` (`embedded:DIR`).
    pub fn install(self, url: &str) -> Result<(), NotOpen> {
        set(url, Some(self))
    }

    /// Removes the plan of faults of the open database at `url`.
    pub fn remove(url: &str) -> Result<(), NotOpen> {
        set(url, None)
    }
}

impl Gate {
    /// Closes a gate before all commits of the open database at `url` (`embedded:DIR`).
    pub fn close(url: &str) -> Result<Gate, NotOpen> {
        hosted(url).map(Gate::of)
    }
}

impl Holdings {
    /// What this process holds as the host of the open database at `url` (`embedded:DIR`). The engine
    /// first does all work that it leaves for idle times; what transactions in flight read becomes too
    /// old.
    pub fn at_rest(url: &str) -> Result<Holdings, NotOpen> {
        let held = directory(url).and_then(Link::holdings_at_rest);
        held.ok_or_else(|| NotOpen { url: url.to_owned() })
    }
}

fn set(url: &str, faults: Option<Faults>) -> Result<(), NotOpen> {
    hosted(url)?.set_faults(faults);
    Ok(())
}

fn hosted(url: &str) -> Result<Arc<Engine>, NotOpen> {
    let engine = directory(url).and_then(Link::hosted);
    engine.ok_or_else(|| NotOpen { url: url.to_owned() })
}

/// What the embedded databases of this process hold together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessHoldings {
    /// Threads of the engines and their connections, by name, without the network thread.
    pub threads: BTreeMap<String, usize>,
    /// Open files and sockets.
    pub descriptors: usize,
    /// Timers of the network thread.
    pub timers: usize,
    /// Links to directories.
    pub links: usize,
}

/// The thread of [`crate::Network`], which a process has once.
const NETWORK_THREAD: &str = "fdb-callbacks";

/// How often [`ProcessHoldings::await_none`] looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl ProcessHoldings {
    /// What there is now.
    #[must_use]
    pub fn now() -> ProcessHoldings {
        let mut threads = BTreeMap::new();
        for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            let name = name.trim();
            if name.starts_with("fdb-") && name != NETWORK_THREAD {
                *threads.entry(name.to_owned()).or_default() += 1;
            }
        }
        let descriptors = crate::fork::REGISTERED.lock().len();
        let (timers, links) = (crate::network::timers(), Link::count());
        ProcessHoldings { threads, descriptors, timers, links }
    }

    /// Waits until there is nothing; after `patience`, what is left. Threads end a little later than
    /// what they worked for.
    #[must_use]
    pub fn await_none(patience: Duration) -> ProcessHoldings {
        let deadline = baton::now() + patience;
        loop {
            let now = ProcessHoldings::now();
            if now == ProcessHoldings::default() || baton::now() >= deadline {
                return now;
            }
            baton::thread::sleep(LOOK_AGAIN);
        }
    }
}
