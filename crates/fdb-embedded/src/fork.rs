//! Fork protection: a forked child gets none of the parent's open databases.
//!
//! A child inherits copies of all descriptors. With them it would keep a dead host's lock and
//! connections open, so that its guests would not notice the end. Therefore the descriptors of open
//! directories are registered here, and a fork handler replaces them in the child (`capi::process::atfork`).
//! The engine's threads do not exist in the child either, so any use of an embedded database fails
//! there.
//!
//! The descriptors are replaced, not closed: the numbers of closed ones would be reused for files
//! that the program opens next, and code that still has the old number would write to those files
//! or close them.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::capi::process::atfork::{self, PLACEHOLDER};
use crate::error::Code;

pub use crate::capi::process::atfork::{REGISTERED, is_forked};

/// The error for using a database in a forked child. Prints the reason the first time.
pub fn refuse() -> Code {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        // The lock of standard error may belong to a thread that does not exist here.
        let text = format!("fdb-embedded: {ForkedError}\n");
        let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    }
    Code::IO_ERROR
}

/// The error of a forked child that uses a database.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot use an embedded database in process {pid}: it was forked from a process that had one open; open databases only after the fork, or \
     start the process with exec (in Python: multiprocessing's \"spawn\")",
    pid = std::process::id()
)]
pub struct ForkedError;

/// An open file or socket that forked children do not get.
#[derive(Debug)]
pub struct CloseOnFork<T: AsFd>(T);

impl<T: AsFd> CloseOnFork<T> {
    /// Opens the file with `open`, which should not take long. No child gets it, even if the
    /// process forks meanwhile.
    pub fn open<E>(open: impl FnOnce() -> Result<T, E>) -> Result<CloseOnFork<T>, E> {
        if is_forked() {
            return open().map(CloseOnFork);
        }
        prepare();
        let mut registered = REGISTERED.lock();
        let opened = open()?;
        registered.insert(opened.as_fd().as_raw_fd());
        Ok(CloseOnFork(opened))
    }
}

impl<T: AsFd> From<T> for CloseOnFork<T> {
    fn from(opened: T) -> CloseOnFork<T> {
        let Ok(own) = CloseOnFork::open(|| Ok::<T, std::convert::Infallible>(opened));
        own
    }
}

impl<T: AsFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        // Before the descriptor is closed, because its number may then belong to another file at
        // once. A child forked in between only has a copy of a file that was already unlocked or
        // shut down.
        if !is_forked() {
            REGISTERED.lock().remove(&self.0.as_fd().as_raw_fd());
        }
    }
}

impl<T: AsFd> Deref for CloseOnFork<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> AsFd for CloseOnFork<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Installs the fork handler. Tried again if resources were short.
fn prepare() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if PLACEHOLDER.get().is_none()
        && let Ok((plug, _)) = UnixStream::pair()
    {
        let _ = PLACEHOLDER.set(plug);
    }
    INSTALLED.get_or_init(atfork::install);
}
