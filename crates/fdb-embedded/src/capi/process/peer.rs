//! The process at the other end of a socket.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use mutant::mutant;

/// The user of the process at the other end of a Unix socket.
///
/// rustix has this too, but its process id cannot be 0, and the kernel gives 0 for a process of
/// another PID namespace.
pub fn uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("it has twelve bytes");
    let value = (&raw mut peer).cast::<c_void>();
    // SAFETY: the descriptor is open, and `value` points at `len` writable bytes of a struct of numbers.
    let status: c_int = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut len)
    };
    if mutant("peers-need-a-pid") && peer.pid == 0 {
        return Err(io::Error::from_raw_os_error(0));
    }
    if status == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}
