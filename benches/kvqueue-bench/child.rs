//! `kvqueue run` as a process of its own, that tells when it is ready.

use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use kvqueue::Config;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long it may take to be ready.
const READY: Duration = Duration::from_secs(60);

/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(15);

/// How often one looks whether it has stopped.
const LOOK: Duration = Duration::from_millis(5);

/// A running daemon. Killed when dropped.
pub(super) struct Running {
    child: Child,
    /// From the start of the process to its word that it is ready.
    pub(super) ready_after: Duration,
    _files: TempDir,
}

impl Running {
    /// Starts it with this configuration, and nothing from the environment, and waits until it is ready.
    pub(super) fn start(config: &Config) -> anyhow::Result<Self> {
        let files = tempfile::Builder::new().prefix("kvqueue-bench-").tempdir()?;
        let path = files.path().join("kvqueue.toml");
        let mut config = config.clone();
        "error".clone_into(&mut config.log.level);
        std::fs::write(&path, toml::to_string(&config)?)?;
        let notices = Notices::listen(files.path())?;
        let mut command = run(&path)?;
        command.env("NOTIFY_SOCKET", &notices.path);
        let begun = Instant::now();
        let child = command.spawn().context("cannot start kvqueue run")?;
        let mut running = Self { child, ready_after: Duration::ZERO, _files: files };
        notices.ready(&mut running.child)?;
        running.ready_after = begun.elapsed();
        Ok(running)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it as an operator would, and waits for its end.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let told = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "kvqueue run ended with {status}");
                return Ok(());
            }
            anyhow::ensure!(told.elapsed() < STOP, "kvqueue run does not stop");
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Either may fail because it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(config: &Path) -> anyhow::Result<Command> {
    let mut command = command()?;
    command.arg("run").arg("--config").arg(config).stdout(Stdio::null());
    Ok(command)
}

/// `kvqueue`, without the settings that the environment has for it. It is looked for in the directory
/// of this program, and then on the PATH.
fn command() -> anyhow::Result<Command> {
    let this = std::env::current_exe().context("cannot find the file of this program")?;
    let sibling = this.with_file_name("kvqueue");
    let mut command = Command::new(if sibling.is_file() { sibling } else { "kvqueue".into() });
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"KVQUEUE_"))
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    Ok(command)
}

/// Where a service tells systemd how it is.
struct Notices {
    socket: UnixDatagram,
    path: std::path::PathBuf,
}

impl Notices {
    fn listen(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).context("cannot listen for the daemon's word")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        Ok(Self { socket, path })
    }

    fn ready(&self, child: &mut Child) -> anyhow::Result<()> {
        let (begun, mut text) = (Instant::now(), [0; 256]);
        while begun.elapsed() < READY {
            match self.socket.recv(&mut text) {
                Ok(len) if text[..len].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if let Some(status) = child.try_wait()? {
                        anyhow::bail!("kvqueue run ended with {status} before it was ready");
                    }
                }
                Err(error) => return Err(error).context("cannot hear the daemon's word"),
            }
        }
        anyhow::bail!("kvqueue run was not ready within {} s", READY.as_secs())
    }
}
