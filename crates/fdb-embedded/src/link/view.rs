//! A read view of this process's engine or of the host's.

use std::ops::ControlFlow;
use std::sync::Arc;

use baton::Mutex;
use bytes::Bytes;

use super::remote::{Continuation, Fetch, RemoteView};
use crate::engine;
use crate::error::Result;
use crate::fork;
use crate::rows::{Direction, FetchHint, RowVisitor};

/// The database at one version.
#[derive(Debug, Clone)]
pub enum View {
    /// A view of this process's engine.
    Local(engine::ReadView),
    /// A view of the host's engine. Reads fail with [`crate::Code::MISSING`] until their data has
    /// been fetched.
    Remote(Arc<RemoteView>),
}

/// The data that a read is missing.
pub struct MissingData {
    view: Arc<RemoteView>,
    fetches: Vec<Fetch>,
}

impl MissingData {
    /// Fetches the data. Calls `then` when all of it has arrived, or cannot arrive.
    pub fn fetch(self, then: Continuation) {
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

/// Fails in a forked child: the engine's files and threads belong to the parent.
fn refuse_in_child() -> Result<()> {
    if fork::is_forked() { Err(fork::refuse()) } else { Ok(()) }
}

impl View {
    /// The read version. A commit conflicts with writes after it.
    pub fn version(&self) -> Result<i64> {
        refuse_in_child()?;
        match self {
            Self::Local(view) => Ok(view.version),
            Self::Remote(view) => view.version(),
        }
    }

    /// The read version, if it has arrived.
    #[must_use]
    pub fn known_version(&self) -> Option<i64> {
        match self {
            Self::Local(view) => Some(view.version),
            Self::Remote(view) => view.known_version(),
        }
    }

    /// True if this view was lost in a takeover before anything of it was given out. Its reads fail
    /// with [`crate::Code::MISSING`]; another view can take its place.
    #[must_use]
    pub fn is_replaceable(&self) -> bool {
        match self {
            Self::Local(_) => false,
            Self::Remote(view) => view.is_replaceable(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        refuse_in_child()?;
        match self {
            Self::Local(view) => view.get(key),
            Self::Remote(view) => view.get(key),
        }
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks. The hint says how many rows the
    /// caller will read, and how far it may continue after this range.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        want: (FetchHint, Option<&[u8]>),
        visit: RowVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        refuse_in_child()?;
        match self {
            Self::Local(view) => view.scan(begin, end, direction, visit),
            Self::Remote(view) => view.scan(begin, end, direction, want, visit),
        }
    }

    /// The data that the last failed read was missing.
    #[must_use]
    pub fn missing(&self) -> Option<MissingData> {
        let Self::Remote(view) = self else { return None };
        let fetches = view.take_wanted();
        (!fetches.is_empty()).then(|| MissingData { view: Arc::clone(view), fetches })
    }

    /// Drops fetched data if it takes much memory.
    pub fn trim(&self) {
        if let Self::Remote(view) = self {
            view.trim();
        }
    }
}
