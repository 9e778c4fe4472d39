//! Getting the address that the configuration names.

use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use mutant::mutant;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, fchmod, flock, open},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};

use crate::config::{DEFAULT_ADDRESS, Listen};

/// The mode of a Unix socket: the daemon's user and group may connect, and use the whole API.
const SOCKET_MODE: u32 = 0o660;

/// How long a daemon waits for another one that makes a socket in the same directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// How many connections wait until they are accepted.
const BACKLOG: i32 = 1_024;

/// Where the daemon listens.
pub(super) enum Listener {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile),
}

/// A socket's name in the file system. Dropping it removes the name, unless another socket has it by now.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the socket that was bound.
    file: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: file(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file(&self.path).is_ok_and(|found| found == self.file) {
            // Somebody may have removed it meanwhile.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of what has this name.
fn file(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Listener {
    /// Listens; `None` if the configuration wants no HTTP, or is `auto` and the default address is in use.
    pub(super) fn open(listen: &Listen) -> io::Result<Option<Self>> {
        match listen {
            Listen::Off => Ok(None),
            Listen::Auto => match Self::tcp(DEFAULT_ADDRESS) {
                Ok(listener) => Ok(Some(listener)),
                Err(error) => {
                    tracing::warn!(
                        event = "http_not_started",
                        address = %DEFAULT_ADDRESS,
                        %error,
                        "the default HTTP address is in use; set http.listen to another address, or to \"off\""
                    );
                    Ok(None)
                }
            },
            Listen::Tcp(address) => Self::tcp(*address).map(Some),
            Listen::Unix(path) => Self::unix(path).map(Some),
        }
    }

    fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // The standard library asks for 128.
        listen(&listener, BACKLOG)?;
        let address = listener.local_addr()?;
        Ok(Self::Tcp(listener, address))
    }

    fn unix(path: &Path) -> io::Result<Self> {
        let _lock = lock_directory(path);
        let listener = match bind_privately(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
                fs::remove_file(path)?;
                bind_privately(path)?
            }
            listener => listener?,
        };
        let file = SocketFile::of(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok(Self::Unix(listener, file))
    }

    /// The address of one that is reached by TCP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_, address) => Some(*address),
            Self::Unix(..) => None,
        }
    }
}

/// Listens on a socket that only our own user can connect to, whatever the umask is. Linux makes the file with the mode of the socket.
fn bind_privately(path: &Path) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if !mutant("socket-follows-umask") {
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    }
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Locks the directory of a socket until it is dropped, so that one daemon at a time makes a socket there. Two that start at once could otherwise take each
/// other's socket for one that is left over: between `bind` and `listen`, or between the look at it and its removal.
///
/// Everybody who can read the directory can lock it, so a daemon goes on without the lock after [`LOCK_PATIENCE`].
fn lock_directory(path: &Path) -> Option<OwnedFd> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory =
        open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if mutant("sockets-are-not-locked") {
        return None;
    }
    let began = Instant::now();
    while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        if began.elapsed() > LOCK_PATIENCE {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Some(directory)
}

/// Whether it is a socket that nobody listens on: of a daemon that was killed.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(_, address) => address.fmt(f),
            Self::Unix(_, file) => write!(f, "unix:{}", file.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpStream, process::Command, sync::Barrier};

    use super::*;

    #[test]
    fn a_burst_of_connections_waits_until_it_is_accepted() {
        let listener = Listener::open(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap().unwrap();
        let address = listener.address().unwrap();
        // The system drops the first packet of a connection that finds no room, and the client sends it again after a second.
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(900));
        let burst: Vec<_> = (0..400).map(connect).collect();
        assert!(burst.iter().all(Result::is_ok));
    }

    fn unix(path: &Path) -> io::Result<Option<Listener>> {
        Listener::open(&Listen::Unix(path.to_owned()))
    }

    /// Tells this test that its process has the umask 0.
    const UMASK_0: &str = "KVQUEUE_TEST_UMASK_0";

    #[test]
    fn a_unix_socket_is_made_for_its_user_alone_whatever_the_umask_is() {
        if std::env::var_os(UMASK_0).is_none() {
            // The umask is the process's, and other tests make files meanwhile.
            let name =
                "http::listener::tests::a_unix_socket_is_made_for_its_user_alone_whatever_the_umask_is";
            let program = std::env::current_exe().unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", "umask 0; exec \"$0\" --exact \"$1\""]).arg(program).arg(name);
            let ran = shell.env(UMASK_0, "1").output().unwrap();
            let shown = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && shown.contains("1 passed"), "{shown}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        // As others find it before its mode is set.
        let _listener = bind_privately(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let listener = unix(&path).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        assert_eq!(unix(&path).map(drop).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        // A successor's socket stays.
        let listener = unix(&path).unwrap().unwrap();
        fs::remove_file(&path).unwrap();
        let successor = unix(&path).unwrap().unwrap();
        drop(listener);
        assert!(path.exists());
        drop(successor);
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(unix(&path).is_err() && fs::read(&path).unwrap() == b"mine");
    }
    #[test]
    fn a_lock_of_the_directory_by_another_program_delays_a_daemon_for_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _theirs = lock_directory(&path).unwrap();
        let began = Instant::now();
        unix(&path).unwrap().unwrap();
        assert!(began.elapsed() >= LOCK_PATIENCE);
    }

    #[test]
    fn of_daemons_that_start_at_once_one_gets_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        for _ in 0..2_000 {
            drop(UnixListener::bind(&path).unwrap());
            let start = Barrier::new(3);
            let open = || {
                start.wait();
                unix(&path).ok().flatten()
            };
            let opened = thread::scope(|scope| {
                let daemons = [(); 3].map(|()| scope.spawn(open));
                daemons.map(|daemon| daemon.join().unwrap())
            });
            assert_eq!(opened.iter().flatten().count(), 1);
            UnixStream::connect(&path).unwrap();
            drop(opened);
            assert!(!path.exists());
        }
    }
}
