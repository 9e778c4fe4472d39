//! What a child process, which this process forks, has of the open databases: nothing.
//!
//! A child gets copies of all descriptors. With them it would keep the lock of a host that is dead, and that host's connections, so that no guest
//! would notice. So the descriptors of open directories are registered here, and in the child something else takes their place before the
//! fork returns (`capi::atfork`). None of the threads that do the work is in the child either: from then on all use of an embedded database fails there.
//!
//! The numbers stay taken in the child: one that was closed would be given to the next file that the program opens, and whatever still
//! has it here would write to that file, or close it.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::Code;

/// The registered descriptors. Locked while one is opened, and while the process forks; in the child for ever.
pub static REGISTERED: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
/// This process is a child of one that has had a database open.
pub static FORKED: AtomicBool = AtomicBool::new(false);
/// What takes the place of the registered descriptors in a child: all that is done with it ends in an error, or at its end.
static PLUG: OnceLock<UnixStream> = OnceLock::new();

/// Is this process a child of one that has had a database open?
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// What takes the place of the registered descriptors in a child.
pub fn plug() -> Option<BorrowedFd<'static>> {
    PLUG.get().map(AsFd::as_fd)
}

/// Refuses the use of a database in a forked child. Says why, the first time.
pub fn refuse() -> Code {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        // The lock of standard error may be held by a thread that is not here.
        let text = format!("fdb-embedded: {Forked}\n");
        let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    }
    Code::IO_ERROR
}

/// Why a forked child cannot use a database.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot use an embedded database in process {pid}: it was forked from a process that had one open; open databases only after the fork, or \
     start the process with exec (in Python: multiprocessing's \"spawn\")",
    pid = std::process::id()
)]
pub struct Forked;

/// An open file or socket that a forked child does not have.
#[derive(Debug)]
pub struct Own<T: AsFd>(T);

impl<T: AsFd> Own<T> {
    /// Opens it. What is opened by `open`, which should not take long, is in no child.
    pub fn open<E>(open: impl FnOnce() -> Result<T, E>) -> Result<Own<T>, E> {
        if is_forked() {
            return open().map(Own);
        }
        prepare();
        let mut registered = REGISTERED.lock();
        let opened = open()?;
        registered.insert(opened.as_fd().as_raw_fd());
        Ok(Own(opened))
    }
}

impl<T: AsFd> From<T> for Own<T> {
    fn from(opened: T) -> Own<T> {
        let Ok(own) = Own::open(|| Ok::<T, std::convert::Infallible>(opened));
        own
    }
}

impl<T: AsFd> Drop for Own<T> {
    fn drop(&mut self) {
        // Before it is closed: the number may be another file's at once. A child that is forked in between has a copy of what has been
        // unlocked or shut down already.
        if !is_forked() {
            REGISTERED.lock().remove(&self.0.as_fd().as_raw_fd());
        }
    }
}

impl<T: AsFd> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> AsFd for Own<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Has the process do at each fork what there is to do. Tried again when it was short of something.
fn prepare() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if PLUG.get().is_none()
        && let Ok((plug, _)) = UnixStream::pair()
    {
        let _ = PLUG.set(plug);
    }
    INSTALLED.get_or_init(crate::capi::atfork::install);
}
