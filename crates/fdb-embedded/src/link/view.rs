//! A read version and what can be read at it, wherever the engine is.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::remote::{Fetch, RemoteView, Then};
use crate::engine;
use crate::error::Result;
use crate::fork;
use crate::rows::{Direction, Visit, Want};

/// The database at one version.
#[derive(Debug, Clone)]
pub enum View {
    /// Of this process's engine: everything is here.
    Here(engine::ReadView),
    /// Of another's: reads fail with [`crate::Code::MISSING`] until what they need has been fetched.
    There(Arc<RemoteView>),
}

/// What a read is missing.
pub struct Missing {
    view: Arc<RemoteView>,
    fetches: Vec<Fetch>,
}

impl Missing {
    /// Has it fetched; `then` is called when all of it is here, or never will be.
    pub fn fetch(self, then: Then) {
        let guest = self.view.guest();
        let waiting = Arc::new(Mutex::new((self.fetches.len(), Some(then))));
        for fetch in self.fetches {
            let waiting = Arc::clone(&waiting);
            let arrived = move || {
                let last = {
                    let (left, then) = &mut *waiting.lock();
                    *left -= 1;
                    if *left == 0 { then.take() } else { None }
                };
                last.into_iter().for_each(|then| then());
            };
            guest.fetch(&self.view, fetch, Box::new(arrived));
        }
    }
}

/// The data belongs to the parent: its files and threads are not in a forked child.
fn refuse_in_child() -> Result<()> {
    if fork::is_forked() { Err(fork::refuse()) } else { Ok(()) }
}

impl View {
    /// The version; a commit of this transaction conflicts with writes after it.
    pub fn version(&self) -> Result<i64> {
        refuse_in_child()?;
        match self {
            Self::Here(view) => Ok(view.version),
            Self::There(view) => view.version(),
        }
    }

    /// The version, if it is known by now.
    #[must_use]
    pub fn known_version(&self) -> Option<i64> {
        match self {
            Self::Here(view) => Some(view.version),
            Self::There(view) => view.known_version(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        refuse_in_child()?;
        match self {
            Self::Here(view) => view.get(key),
            Self::There(view) => view.get(key),
        }
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks. `want` says about how many it will take, and where, if
    /// not at the end of the range, what it goes on with ends.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        want: (Want, Option<&[u8]>),
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        refuse_in_child()?;
        match self {
            Self::Here(view) => view.scan(begin, end, direction, visit),
            Self::There(view) => view.scan(begin, end, direction, want, visit),
        }
    }

    /// What the read that has just failed was missing.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        let Self::There(view) = self else { return None };
        let fetches = view.take_wanted();
        (!fetches.is_empty()).then(|| Missing { view: Arc::clone(view), fetches })
    }

    /// Forgets what earlier reads have fetched, if it is much.
    pub fn trim(&self) {
        if let Self::There(view) = self {
            view.trim();
        }
    }
}
