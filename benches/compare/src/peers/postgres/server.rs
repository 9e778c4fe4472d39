//! A PostgreSQL of the run's own.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postgres::{Client, Config, NoTls};
use rustix::process::{Signal, geteuid};

use super::DATABASE;
use crate::error::Error;
use crate::peers::{ANSWER_LIMIT, Place, UP_LIMIT, free_port};
use crate::process::{Process, Program, User, which};

/// Its superuser, who needs no password: it listens on loopback, for the length of a run.
const OWNER: &str = "compare";
/// Longest for `initdb`.
const INIT_LIMIT: Duration = Duration::from_secs(60);

/// Durable, as a new server is; enough memory; and no checkpoint except when the harness asks for one between cells.
const SETTINGS: &[&str] = &[
    "fsync=on",
    "synchronous_commit=on",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=1h",
    "max_connections=120",
    "statement_timeout=20s",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
];

/// The server.
pub struct Server {
    place: Place,
    version: String,
    user: Option<User>,
    port: u16,
    process: Process,
}

impl Server {
    /// Makes a database and serves it, if PostgreSQL is installed.
    pub fn start(place: Place) -> Result<Self, Error> {
        let programs = programs().ok_or_else(|| Error::Unusable("not installed".to_owned()))?;
        let user = another_user()?;
        let directory = &place.directory;
        fs::create_dir_all(directory).map_err(Error::io("cannot make PostgreSQL's directory"))?;
        if let Some(User { uid, gid, name }) = &user {
            reachable(directory, name)?;
            chown(directory, Some(*uid), Some(*gid))
                .map_err(Error::io("cannot give PostgreSQL its directory"))?;
        }
        let data = directory.join("data");
        let init = Program::new(programs.join("initdb"), Signal::TERM, user.as_ref()).with(|command| {
            command.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username", OWNER, "--pgdata"]);
            command.arg(&data).current_dir(directory);
        });
        place.processes.run(init, &directory.with_extension("initdb"), INIT_LIMIT)?;
        let port = free_port()?;
        // QUIT: it ends at once. What it would write out before is thrown away anyway.
        let serve = Program::new(programs.join("postgres"), Signal::QUIT, user.as_ref()).with(|command| {
            command.arg("-D").arg(&data).args(["-p", &port.to_string()]).current_dir(directory);
            for setting in SETTINGS {
                command.args(["-c", setting]);
            }
        });
        let process = place.processes.start(serve, &directory.with_extension("log"))?;
        // From here on a failure ends the server, by `drop`.
        let mut server = Self { place, version: String::new(), user, port, process };
        server.process.wait_until(UP_LIMIT, || connect(port, DATABASE).is_ok())?;
        let row = connect(port, DATABASE)?.query_one("show server_version", &[])?;
        server.version = row.get::<_, String>(0);
        Ok(server)
    }

    /// Version and settings, for the reader.
    pub fn setup(&self) -> String {
        let user = self.user.as_ref().map_or_else(String::new, |user| format!(", as user {}", user.name));
        format!("PostgreSQL {}, `{}`{user}", self.version, SETTINGS[..5].join(" "))
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its main process.
    pub fn process(&self) -> Process {
        self.process.clone()
    }

    /// The address of one of its databases, which is made, for programs that want it as one string.
    pub fn database(&self, name: &str) -> Result<String, Error> {
        connect(self.port, DATABASE)?.batch_execute(&format!("create database {name}"))?;
        Ok(format!("postgres://{OWNER}@127.0.0.1:{}/{name}", self.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.place.processes.stop(&self.process);
    }
}

/// A connection.
pub fn connect(port: u16, database: &str) -> Result<Client, Error> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user(OWNER).dbname(database).connect_timeout(ANSWER_LIMIT);
    Ok(config.connect(NoTls)?)
}

/// Where `initdb` and `postgres` are: by PATH, else the newest below Debian's place for them.
fn programs() -> Option<PathBuf> {
    if let Some(initdb) = which("initdb") {
        return initdb.parent().map(Path::to_owned);
    }
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            path.join("bin/initdb").is_file().then(|| (version, path.join("bin")))
        })
        .collect();
    versions.sort();
    versions.pop().map(|(_, path)| path)
}

/// PostgreSQL refuses to run as root: then it runs as `postgres`, else as `nobody`.
fn another_user() -> Result<Option<User>, Error> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").map_err(Error::io("cannot read /etc/passwd"))?;
    let user = User::find(&passwd, &["postgres", "nobody"]);
    user.map(Some)
        .ok_or_else(|| Error::Unusable("it does not run as root, and there is no other user".to_owned()))
}

/// Whether another user gets to a directory: every directory above must let others pass.
fn reachable(directory: &Path, user: &str) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    for above in directory.ancestors().skip(1) {
        let mode = fs::metadata(above)
            .map_err(Error::io(format!("cannot look at {}", above.display())))?
            .permissions();
        if mode.mode() & 0o001 == 0 {
            let above = above.display();
            return Err(Error::Unusable(format!(
                "it runs as user {user}, who may not pass {above}; give another directory with --scratch"
            )));
        }
    }
    Ok(())
}
