//! Programs that the harness starts: each registered, with limits, and ended by its own id whatever happens.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::error::Error;

/// How long a program has to end by itself after it was asked to.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How often is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(2);
/// How much of a program's output an error repeats.
const SAID: usize = 600;

/// All programs that run; one for the whole harness.
#[derive(Clone, Default)]
pub struct Processes(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    closing: bool,
    all: Vec<Process>,
}

/// A program that runs. Clones are the same program.
#[derive(Clone)]
pub struct Process {
    name: String,
    child: Arc<Mutex<Child>>,
    pid: Pid,
    stop: Signal,
    output: PathBuf,
}

/// Which program, and how it is to be started.
pub struct Program {
    command: Command,
    name: String,
    stop: Signal,
}

impl Program {
    /// A program in a process group of its own, so that a ctrl-C reaches the harness alone, which then ends the others in order.
    /// Where `setpriv` is there (it belongs to Debian's essential packages), the program also gets `stop` when the
    /// harness is killed; `as_user` makes it run as another user.
    pub fn new(program: impl AsRef<OsStr>, stop: Signal, as_user: Option<&User>) -> Self {
        let program = program.as_ref();
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        let mut command = if which("setpriv").is_some() {
            let mut wrapped = Command::new("setpriv");
            wrapped.arg("--pdeathsig").arg(if stop == Signal::QUIT { "QUIT" } else { "TERM" });
            if let Some(User { uid, gid, .. }) = as_user {
                wrapped.args([format!("--reuid={uid}"), format!("--regid={gid}")]).arg("--clear-groups");
            }
            wrapped.arg("--").arg(program);
            wrapped
        } else {
            let mut plain = Command::new(program);
            if let Some(User { uid, gid, .. }) = as_user {
                plain.uid(*uid).gid(*gid);
            }
            plain
        };
        command.process_group(0).stdin(Stdio::null());
        Self { command, name, stop }
    }

    /// To add arguments, environment and directory.
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name in messages.
    pub name: String,
    /// Id.
    pub uid: u32,
    /// Id of the main group.
    pub gid: u32,
}

impl User {
    /// The first of these names that `passwd`, the text of such a file, has.
    pub fn find(passwd: &str, names: &[&str]) -> Option<Self> {
        names.iter().find_map(|name| {
            passwd.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(':').collect();
                let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
                (fields[0] == *name).then(|| Self { name: (*name).to_owned(), uid, gid })
            })
        })
    }
}

/// Where a program is, by `PATH`.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

impl Processes {
    /// Starts a program; what it writes goes to `output`.
    pub fn start(&self, program: Program, output: &Path) -> Result<Process, Error> {
        let out = File::options().create(true).append(true).open(output);
        let out = out.map_err(Error::io(format!("cannot write {}", output.display())))?;
        self.start_with(program, output, out.into())
    }

    /// Starts a program; its answers go to `answers`, and what else it writes to `output`.
    pub fn start_with(&self, program: Program, output: &Path, answers: OwnedFd) -> Result<Process, Error> {
        let Program { mut command, name, stop } = program;
        let what = || format!("cannot write {}", output.display());
        let errors = File::options().create(true).append(true).open(output).map_err(Error::io(what()))?;
        command.stdout(answers).stderr(errors);
        self.register(command, name, stop, output)
    }

    fn register(
        &self,
        mut command: Command,
        name: String,
        stop: Signal,
        output: &Path,
    ) -> Result<Process, Error> {
        let mut running = lock(&self.0);
        if running.closing {
            return Err(Error::Stopped);
        }
        let child = command.spawn().map_err(Error::io(format!("cannot start {name}")))?;
        let pid = Pid::from_child(&child);
        let process =
            Process { name, child: Arc::new(Mutex::new(child)), pid, stop, output: output.to_owned() };
        running.all.push(process.clone());
        Ok(process)
    }

    /// Runs a program to its end, and returns what it wrote to stdout.
    pub fn run(&self, program: Program, output: &Path, limit: Duration) -> Result<String, Error> {
        let Program { mut command, name, stop } = program;
        let what = || format!("cannot write {}", output.display());
        let errors = output.with_extension("stderr");
        command.stdout(File::create(output).map_err(Error::io(what()))?);
        command.stderr(File::create(&errors).map_err(Error::io(what()))?);
        let process = self.register(command, name, stop, &errors)?;
        let ended = process.wait(limit);
        if !matches!(ended, Ok(Some(_))) {
            process.stop();
        }
        self.forget(&process);
        match ended.map_err(Error::io(format!("cannot wait for {}", process.name)))? {
            None => Err(Error::TooLong(limit)),
            Some(status) if status.success() => {
                fs::read_to_string(output).map_err(Error::io(format!("cannot read {}", output.display())))
            }
            Some(status) => Err(process.ended(status)),
        }
    }

    /// Runs `work`; should it take longer than `limit`, the servers that it talks to are killed, and so its waits end.
    pub fn limited<T>(
        servers: &[Process],
        limit: Duration,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (done, waiting) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let watchdog = scope.spawn(move || {
                let over = waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
                if over {
                    servers.iter().for_each(Process::kill);
                }
                over
            });
            let result = work();
            drop(done);
            match watchdog.join() {
                Ok(false) => result,
                _ => Err(Error::TooLong(limit)),
            }
        })
    }

    /// Ends a program, and forgets it.
    pub fn stop(&self, process: &Process) {
        process.stop();
        self.forget(process);
    }

    fn forget(&self, process: &Process) {
        lock(&self.0).all.retain(|other| other.pid != process.pid);
    }

    /// Whether all is being ended.
    pub fn is_closing(&self) -> bool {
        lock(&self.0).closing
    }

    /// Ends all that runs, and lets nothing begin any more.
    pub fn close(&self) {
        let all = {
            let mut running = lock(&self.0);
            running.closing = true;
            running.all.clone()
        };
        thread::scope(|scope| {
            for process in &all {
                scope.spawn(|| process.stop());
            }
        });
    }
}

impl Process {
    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until `up` is true.
    pub fn wait_until(&self, limit: Duration, mut up: impl FnMut() -> bool) -> Result<(), Error> {
        let begin = Instant::now();
        while !up() {
            if let Some(status) =
                self.try_wait().map_err(Error::io(format!("cannot wait for {}", self.name)))?
            {
                return Err(self.ended(status));
            }
            if begin.elapsed() > limit {
                return Err(Error::NotUp { program: self.name.clone(), limit, log: self.output.clone() });
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn ended(&self, status: ExitStatus) -> Error {
        let said = fs::read(&self.output).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(SAID)..]).trim().to_owned();
        Error::Ended { program: self.name.clone(), status: status.to_string(), said }
    }

    fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        lock(&self.child).try_wait()
    }

    fn wait(&self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        loop {
            match self.try_wait()? {
                None if begin.elapsed() < limit => thread::sleep(LOOK),
                result => return Ok(result),
            }
        }
    }

    /// Asks it to end; kills it when it does not in time.
    fn stop(&self) {
        if matches!(self.try_wait(), Ok(Some(_))) {
            return;
        }
        // It may have ended this moment: then there is nothing to do.
        let _ = kill_process(self.pid, self.stop);
        if !matches!(self.wait(STOP_LIMIT), Ok(Some(_))) {
            self.kill();
            let _ = self.wait(STOP_LIMIT);
        }
    }

    /// Ends it and its group at once.
    fn kill(&self) {
        if matches!(self.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// What a panicking thread left is still good: lists are changed in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Program {
        Program::new("sh", Signal::TERM, None).with(|command| {
            command.args(["-c", script]);
        })
    }

    #[test]
    fn a_user_is_found_in_the_order_asked_for() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\n";
        let user = User::find(passwd, &["postgres", "nobody"]).unwrap();
        assert_eq!((user.uid, user.gid), (65534, 65533));
        assert_eq!(User::find(passwd, &["postgres"]), None);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let scratch = tempfile::tempdir().unwrap();
        let processes = Processes::default();
        let begin = Instant::now();
        let result = processes.run(sh("sleep 60"), &scratch.path().join("out"), Duration::from_millis(50));
        assert!(matches!(result, Err(Error::TooLong(_))), "{result:?}");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn error_of_a_failed_program_has_its_stderr() {
        let scratch = tempfile::tempdir().unwrap();
        let processes = Processes::default();
        let result = processes.run(sh("echo broken >&2; exit 3"), &scratch.path().join("out"), STOP_LIMIT);
        assert!(result.unwrap_err().to_string().contains("broken"));
    }

    #[test]
    fn no_process_starts_after_close() {
        let scratch = tempfile::tempdir().unwrap();
        let processes = Processes::default();
        let process = processes.start(sh("exec sleep 60"), &scratch.path().join("out")).unwrap();
        processes.close();
        assert!(process.try_wait().unwrap().is_some());
        let again = processes.start(sh("true"), &scratch.path().join("out"));
        assert!(matches!(again, Err(Error::Stopped)));
    }

    #[test]
    fn work_over_its_limit_ends_with_its_server() {
        let scratch = tempfile::tempdir().unwrap();
        let processes = Processes::default();
        let server = processes.start(sh("exec sleep 60"), &scratch.path().join("out")).unwrap();
        let waits = server.clone();
        let result = Processes::limited(&[server], Duration::from_millis(20), || {
            waits.wait(Duration::from_secs(30)).map_err(Error::io("wait"))
        });
        assert!(matches!(result, Err(Error::TooLong(_))));
    }
}
