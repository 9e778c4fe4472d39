//! The fork handlers, which take the descriptors of open databases out of a forked child.

use std::collections::BTreeSet;
use std::mem::{ManuallyDrop, forget};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::{DupFlags, Errno};

/// The registered descriptors. Locked while one is opened and while the process forks; in the
/// child, locked forever.
pub static REGISTERED: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// True in a child of a process that had a database open.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The replacement for registered descriptors in a child: every operation on it fails, or finds the
/// end.
pub static PLACEHOLDER: OnceLock<UnixStream> = OnceLock::new();

/// True in a child of a process that had a database open.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The replacement for registered descriptors in a child.
fn placeholder() -> Option<BorrowedFd<'static>> {
    PLACEHOLDER.get().map(AsFd::as_fd)
}

type Handler = extern "C" fn();

unsafe extern "C" {
    fn pthread_atfork(prepare: Option<Handler>, parent: Option<Handler>, child: Option<Handler>) -> i32;
}

/// Installs the handlers.
pub fn install() {
    // SAFETY: the handlers are functions that stay. It fails only without memory; then a child keeps its copies.
    let _ = unsafe { pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Locks the registered descriptors during the fork.
extern "C" fn before() {
    if !is_forked() {
        forget(REGISTERED.lock());
    }
}

extern "C" fn in_parent() {
    if !is_forked() {
        // SAFETY: this thread has locked it in `before`, and the guard was forgotten.
        unsafe { REGISTERED.force_unlock() }
    }
}

/// Takes no lock and allocates no memory, because other threads of the parent may have been
/// changing anything.
extern "C" fn in_child() {
    // A child of a child has nothing left to do.
    if FORKED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: this thread holds the lock since `before`. It is never released here, so nobody changes the set any more.
    let registered = unsafe { &*REGISTERED.data_ptr() };
    let Some(placeholder) = placeholder() else { return };
    for number in registered {
        // SAFETY: the number is that of an open descriptor, whose owner unregisters it before closing it. It stays open, as another
        // file, and is not closed here.
        let mut own = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(*number) });
        while let Err(Errno::INTR | Errno::BUSY) = rustix::io::dup3(placeholder, &mut own, DupFlags::CLOEXEC)
        {
        }
    }
}
