//! The host's socket in a database directory.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::engine::FileId;
use crate::fork::CloseOnFork;

/// The name of the socket on which the host listens.
const SOCKET: &str = "socket";
/// The name before its permissions are set.
const NEW_SOCKET: &str = "socket.new";
/// The longest path that fits into a socket address on supported systems, in bytes.
const MAX_ADDRESS: usize = 100;

/// The path of the socket on which the host of a directory listens.
pub fn socket(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

/// Listens in the directory. The socket gets its final name after its permissions, which admit this
/// user only.
pub fn listen(directory: &Path) -> io::Result<(CloseOnFork<UnixListener>, FileId)> {
    let new = directory.join(NEW_SOCKET);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = at(directory, NEW_SOCKET, |path| CloseOnFork::open(|| UnixListener::bind(path)))?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    let id = socket_id(&new)?;
    fs::rename(&new, directory.join(SOCKET))?;
    Ok((listener, id))
}

fn socket_id(socket: &Path) -> io::Result<FileId> {
    fs::symlink_metadata(socket).map(|file| (file.dev(), file.ino()))
}

/// Connects to the host of the directory. Fails with `WouldBlock` if the host's queue of
/// connections is full.
pub fn connect(directory: &Path) -> io::Result<CloseOnFork<UnixStream>> {
    let connect = |path: PathBuf| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        Ok(socket)
    };
    at(directory, SOCKET, |path| CloseOnFork::open(|| connect(path)))
}

/// True if the socket's name leads to the socket `own`. Fails if that cannot be found out.
pub fn is_at_its_place(directory: &Path, own: FileId) -> io::Result<bool> {
    match socket_id(&directory.join(SOCKET)) {
        Ok(found) => Ok(found == own),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the socket of a host that has stopped listening, unless it is another host's.
pub fn remove(directory: &Path, own: FileId) {
    if matches!(is_at_its_place(directory, own), Ok(true)) {
        // A remaining socket refuses connections, and the next host replaces it.
        let _ = fs::remove_file(directory.join(SOCKET));
    }
}

/// Calls `open` with the path of a socket. Goes through the directory's descriptor if the path is
/// too long.
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
