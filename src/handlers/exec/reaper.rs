//! Ends the commands of a daemon that was killed, which cannot do so itself.
//!
//! The daemon starts one more process, the reaper: this program again. The reaper reads from a pipe
//! whose other end the daemon alone holds, so the pipe closes when the daemon is gone, however it
//! ended. A command that is about to start holds it too until it has become its program, so none is
//! missed.
//!
//! Each run of a command has a number, which is in the variable `KVQUEUE_RUN` of its environment
//! and in that of all it starts. The numbers of the runs that have not ended are in a table in
//! memory that both processes share. When the pipe closes, the reaper kills every process whose
//! environment names one of them. A run costs two writes to the table and wakes no process. A daemon that
//! goes on finds the processes of one run in the same way ([`search`]).
//!
//! It does not find processes of another user, nor processes that have overwritten or dropped the
//! variable. Elsewhere than on Linux there is no reaper.

use std::{
    collections::HashSet,
    env,
    fs::{self, File},
    io::{self, Read},
    os::fd::AsFd,
    os::unix::{fs::FileExt, process::CommandExt},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{MemfdFlags, memfd_create};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use uuid::Uuid;

use super::{names::RUN, search, variables::SYSTEMD};
use crate::base::exit::Exit;

/// The first argument of a reaper; the second is the daemon's id.
const ARGUMENT: &str = "reap-commands-of";

/// The name of its process.
const NAME: &str = "reaper";

/// How long a daemon that ends waits for its reaper to end.
const REAPER_TIMEOUT: Duration = Duration::from_secs(1);

/// A reaper that ended while its daemon runs is replaced, but not more often than this.
const REPLACED_AFTER: Duration = Duration::from_secs(10);

/// How often it looks for processes: a killed process may have started others meanwhile.
const MOST_ROUNDS: u32 = 100;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(10);

/// The size of a place in the table: a run's number, or 0.
const PLACE: usize = size_of::<u64>();

/// Whether this program knows how to be a reaper.
static ALLOWED: AtomicBool = AtomicBool::new(false);
static REAPER: OnceLock<Option<Reaper>> = OnceLock::new();

/// The daemon's handle on its reaper.
struct Reaper {
    /// Different for each daemon, those before it with the same process id included.
    id: Uuid,
    table: File,
    runs: Mutex<Runs>,
    process: Mutex<Process>,
}

/// The places of the table.
#[derive(Default)]
struct Runs {
    last: u64,
    free: Vec<u64>,
    places: u64,
}

/// The reaper itself. Its standard input stays open for as long as this process lives.
struct Process {
    /// None if it could not be started.
    child: Option<Child>,
    began: Instant,
}

/// A command that runs. Dropped when it has ended or was killed.
pub(super) struct Run {
    reaper: &'static Reaper,
    number: u64,
    place: u64,
}

/// From here on commands have a reaper. Only for a program whose `main` begins with [`main`].
pub(crate) fn allow() {
    ALLOWED.store(true, Ordering::Relaxed);
}

/// A command is about to start. None where there is no reaper.
pub(super) fn run() -> Option<Run> {
    if !ALLOWED.load(Ordering::Relaxed) {
        return None;
    }
    let reaper = REAPER.get_or_init(|| Reaper::start().inspect_err(cannot_start).ok());
    reaper.as_ref()?.enter()
}

fn cannot_start(error: &io::Error) {
    tracing::warn!(
        event = "reaper_not_started",
        %error,
        "cannot start the reaper; commands may outlive a daemon that is killed"
    );
}

/// Ends the reaper of a daemon that has ended its commands itself.
pub(crate) fn finish() {
    let Some(Some(reaper)) = REAPER.get() else { return };
    let child = reaper.process.lock().expect("nothing panics while it holds the lock").child.take();
    let Some(mut child) = child else { return };
    drop(child.stdin.take());
    let last = Instant::now() + REAPER_TIMEOUT;
    // One that lives on has commands to kill, or a command that is about to start.
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < last {
        thread::sleep(Duration::from_millis(2));
    }
}

impl Reaper {
    fn start() -> io::Result<Self> {
        let table = File::from(memfd_create("runs", MemfdFlags::CLOEXEC)?);
        let id = Uuid::now_v7();
        let process = Mutex::new(Process::start(id, &table));
        Ok(Self { id, table, runs: Mutex::default(), process })
    }

    fn enter(&'static self) -> Option<Run> {
        self.process.lock().expect("nothing panics while it holds the lock").revive(self.id, &self.table);
        let (number, place) = self.runs.lock().expect("nothing panics while it holds the lock").enter();
        let run = Run { reaper: self, number, place };
        run.write(number).ok().map(|()| run)
    }
}

impl Runs {
    fn enter(&mut self) -> (u64, u64) {
        self.last += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        (self.last, place)
    }
}

impl Process {
    fn start(id: Uuid, table: &File) -> Self {
        let child = Self::spawn(id, table).inspect_err(cannot_start).ok();
        Self { child, began: Instant::now() }
    }

    fn spawn(id: Uuid, table: &File) -> io::Result<Child> {
        let mut command = Command::new("/proc/self/exe");
        // Neither name is the daemon's, so that a command that kills the daemon by its name spares
        // the reaper.
        command.arg0(NAME).arg(ARGUMENT).arg(id.to_string());
        SYSTEMD.iter().chain(&[RUN]).for_each(|name| _ = command.env_remove(name));
        command
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(table.try_clone()?)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    }

    /// Replaces a reaper that has ended, or could not be started.
    fn revive(&mut self, id: Uuid, table: &File) {
        if self.began.elapsed() < REPLACED_AFTER {
            return;
        }
        if self.child.as_mut().is_none_or(|child| matches!(child.try_wait(), Ok(Some(_)))) {
            *self = Self::start(id, table);
        }
    }
}

impl Run {
    /// The value of [`RUN`] in its processes.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.reaper.id, self.number)
    }

    fn write(&self, number: u64) -> io::Result<()> {
        self.reaper.table.write_all_at(&number.to_le_bytes(), self.place * PLACE as u64)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Memory that was written before is written again.
        let _ = self.write(0);
        self.reaper.runs.lock().expect("nothing panics while it holds the lock").free.push(self.place);
    }
}

/// If this process is a reaper, what it does until its daemon is gone and its commands have ended.
pub(crate) fn main() -> Option<Exit> {
    // They need not be UTF-8.
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let id = arguments.next()?.into_string().ok()?;
    // The name for `ps` and `pkill`, which would be "exe" otherwise.
    let _ = fs::write("/proc/self/comm", NAME);
    Some(reap(&id).map_or(Exit::Failed, |()| Exit::Done))
}

fn reap(id: &str) -> io::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // A stop may reach all of a unit's processes: the daemon is the one to end first.
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let table = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut pipe = io::stdin();
    while !matches!(pipe.read(&mut [0]), Ok(0)) {}
    let mut text = vec![0; usize::try_from(table.metadata()?.len()).unwrap_or(0)];
    table.read_exact_at(&mut text, 0)?;
    let numbers = text.chunks_exact(PLACE).map(|it| u64::from_le_bytes(it.try_into().unwrap_or_default()));
    let names: HashSet<_> =
        numbers.filter(|number| *number > 0).map(|it| search::variable(&format!("{id}.{it}"))).collect();
    if names.is_empty() {
        return Ok(());
    }
    for _ in 0..MOST_ROUNDS {
        if !search::kill_all(&names)? {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
