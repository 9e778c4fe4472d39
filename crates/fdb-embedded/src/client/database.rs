//! A client's handle on a database directory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use baton::Mutex;

use super::system::Epoch;
use crate::engine::OpenError;
use crate::error::{Code, Result};
use crate::future::Future;
use crate::link::Link;
use crate::options::{DatabaseOptions, TransactionOptions};
use crate::url::instead_of_two_slashes;

/// A handle on a database (`FDBDatabase`). Several handles may share a link to a directory.
#[derive(Debug)]
pub struct Database {
    link: Arc<Link>,
    /// The URL by which the client opened it, with `embedded:`.
    url: String,
    options: Mutex<DatabaseOptions>,
    watches: AtomicUsize,
    epoch: Epoch,
    /// Why nothing can be done with it.
    failure: Option<Code>,
}

impl Database {
    /// Opens `directory`. `url` is the URL that the client used.
    pub fn open(url: &str, directory: &Path) -> Result<Arc<Database>, OpenError> {
        if let Some(instead) = instead_of_two_slashes(url) {
            return Err(OpenError::TwoSlashes { url: url.to_owned(), instead });
        }
        Ok(Arc::new(Database::with(Link::open(directory)?, url)))
    }

    /// A handle on a database that does not exist: every call of a transaction fails with `code`.
    pub fn unreachable(url: &str, code: Code) -> Arc<Database> {
        Arc::new(Database { failure: Some(code), ..Database::with(Link::failed(code), url) })
    }

    fn with(link: Arc<Link>, url: &str) -> Database {
        let (options, watches, epoch) = Default::default();
        Database { link, url: url.to_owned(), options, watches, epoch, failure: None }
    }

    /// Why nothing can be done with the database.
    pub(super) fn failure(&self) -> Option<Code> {
        self.failure
    }

    /// Sets a database option.
    pub fn set_option(&self, code: i32, value: Option<&[u8]>) -> Result<()> {
        self.options.lock().set(code, value)
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn defaults(&self) -> TransactionOptions {
        self.options.lock().defaults.clone()
    }

    /// A random number in [0, 1), to spread retries.
    pub(super) fn jitter(&self) -> f64 {
        fastrand::f64()
    }

    /// Counts `future` as an outstanding watch until it ends.
    pub(super) fn take_watch_slot(self: &Arc<Self>, future: &Future) -> Result<()> {
        let max = self.options.lock().max_watches;
        let taken =
            self.watches.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < max).then_some(n + 1));
        taken.map_err(|_| Code::TOO_MANY_WATCHES)?;
        let database = Arc::clone(self);
        future.hook(Box::new(move || {
            database.watches.fetch_sub(1, Ordering::AcqRel);
        }));
        Ok(())
    }
}
