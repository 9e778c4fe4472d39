//! The socket in a database directory.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::fork::Own;

/// The socket's name; the host listens there.
const SOCKET: &str = "socket";
/// Its name before it is whole.
const NEW_SOCKET: &str = "socket.new";
/// Longest path that fits a socket address on the systems that we know, bytes.
const MAX_ADDRESS: usize = 100;

/// Which file a socket is: its device and inode.
pub type Identity = (u64, u64);

/// Listens in the directory. The socket is this user's alone before it has its name.
pub fn listen(directory: &Path) -> io::Result<(Own<UnixListener>, Identity)> {
    let new = directory.join(NEW_SOCKET);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = at(directory, NEW_SOCKET, |path| Own::open(|| UnixListener::bind(path)))?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    let identity = identity(&new)?;
    fs::rename(&new, directory.join(SOCKET))?;
    Ok((listener, identity))
}

fn identity(socket: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(socket).map(|file| (file.dev(), file.ino()))
}

/// Connects to the process that listens in the directory. `WouldBlock` if its queue of connections is full.
pub fn connect(directory: &Path) -> io::Result<Own<UnixStream>> {
    let connect = |path: PathBuf| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        Ok(socket)
    };
    at(directory, SOCKET, |path| Own::open(|| connect(path)))
}

/// Removes the socket, whose host no longer listens; but not another's, if the directory has been replaced meanwhile.
pub fn remove(directory: &Path, own: Identity) {
    let socket = directory.join(SOCKET);
    if identity(&socket).is_ok_and(|found| found == own) {
        // A socket that stays behind is refused by nobody listening, and replaced by the next host.
        let _ = fs::remove_file(socket);
    }
}

/// Calls `open` with the path of a socket, by way of the directory's descriptor where the path would be too long.
fn at<T>(directory: &Path, name: &str, open: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let path = directory.join(name);
    if path.as_os_str().len() <= MAX_ADDRESS {
        return open(path);
    }
    let directory = File::open(directory)?;
    open(Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_for_its_user_alone_and_replaces_a_stale_one() {
        let dir = tempfile::tempdir().unwrap();
        drop(listen(dir.path()).unwrap());
        assert_eq!(connect(dir.path()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let (_listener, _) = listen(dir.path()).unwrap();
        connect(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_host_removes_its_own_socket_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (_old_listener, old) = listen(dir.path()).unwrap();
        let (_listener, own) = listen(dir.path()).unwrap();
        remove(dir.path(), old);
        connect(dir.path()).unwrap();
        remove(dir.path(), own);
        assert_eq!(connect(dir.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_deep_directory_has_a_socket_too() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        let _listener = listen(&deep).unwrap();
        connect(&deep).unwrap();
    }
}
