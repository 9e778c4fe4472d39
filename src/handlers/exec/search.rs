//! Finds the processes of runs by the variable `KVQUEUE_RUN` in their environment, and sends them signals.
//!
//! A round reads the environment of every process of the machine. So there is one search at a time, on a thread that may block, and its next round is
//! for all runs that wait: many commands that end together cost as much as one.

use std::{
    collections::HashSet,
    fs, io, mem,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, getpgid, pidfd_open, pidfd_send_signal};
use tokio::{sync::oneshot, task::spawn_blocking};

use super::names::RUN;

/// How often it looks for processes that are to be killed: a killed process may have started others meanwhile.
const MOST_ROUNDS: u32 = 20;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(2);

/// The search of this process.
static SEARCH: Search = Search::new();

struct Search(Mutex<State>);

struct State {
    waiting: Vec<Wanted>,
    is_under_way: bool,
}

/// A signal for the processes of a run that have left their command's group.
struct Wanted {
    /// The variable with its value.
    variable: String,
    group: Pid,
    signal: Signal,
    rounds: u32,
    /// None if nobody waits.
    done: Option<oneshot::Sender<()>>,
}

/// One round. Returns the variables that processes were found by.
type Round = fn(&[Wanted]) -> HashSet<String>;

/// Sends a signal to the processes of a run that have left their command's group. With KILL, until there are none.
pub(super) async fn signal_run(run: &str, group: Pid, signal: Signal) {
    SEARCH.send(Wanted::new(run, group, signal), round).await;
}

/// The same on this thread.
pub(super) fn signal_run_blocking(run: &str, group: Pid, signal: Signal) {
    let mut wanted = [Wanted::new(run, group, signal)];
    loop {
        let found = round(&wanted);
        if !wanted[0].goes_on(&found) {
            return;
        }
        thread::sleep(PAUSE);
    }
}

impl Wanted {
    fn new(run: &str, group: Pid, signal: Signal) -> Self {
        Self { variable: variable(run), group, signal, rounds: 0, done: None }
    }

    /// Whether there is another round for it: with KILL, until there are no such processes.
    fn goes_on(&mut self, found: &HashSet<String>) -> bool {
        self.rounds += 1;
        self.signal == Signal::KILL && self.rounds < MOST_ROUNDS && found.contains(&self.variable)
    }
}

impl Search {
    const fn new() -> Self {
        Self(Mutex::new(State { waiting: Vec::new(), is_under_way: false }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&'static self, wanted: Wanted, round: Round) {
        let (done, is_done) = oneshot::channel();
        let begins = {
            let mut state = self.lock();
            state.waiting.push(Wanted { done: Some(done), ..wanted });
            !mem::replace(&mut state.is_under_way, true)
        };
        if begins {
            spawn_blocking(move || self.run(round));
        }
        // An error is the end of the runtime.
        let _ = is_done.await;
    }

    /// Searches until nobody waits.
    fn run(&self, round: Round) {
        let mut wanted = Vec::new();
        loop {
            {
                let mut state = self.lock();
                wanted.append(&mut state.waiting);
                if wanted.is_empty() {
                    state.is_under_way = false;
                    return;
                }
            }
            let found = round(&wanted);
            wanted.retain_mut(|it| {
                let goes_on = it.goes_on(&found);
                if let Some(done) = it.done.take_if(|_| !goes_on) {
                    // The call may have been dropped.
                    let _ = done.send(());
                }
                goes_on
            });
            if !wanted.is_empty() {
                thread::sleep(PAUSE);
            }
        }
    }
}

fn round(wanted: &[Wanted]) -> HashSet<String> {
    let mut found = HashSet::new();
    // An error is that of a machine without /proc, where nothing can be found.
    let _ = each_process(
        |variable| wanted.iter().any(|it| it.variable == variable),
        |pid, process, variable| {
            for it in wanted.iter().filter(|it| it.variable == variable) {
                let is_apart = getpgid(Some(pid)).is_ok_and(|group| group != it.group);
                if is_apart && pidfd_send_signal(process, it.signal).is_ok() {
                    found.insert(it.variable.clone());
                }
            }
        },
    );
    found
}

/// Kills the processes of these runs. Returns whether there were any.
pub(super) fn kill_all(variables: &HashSet<String>) -> io::Result<bool> {
    let mut found = false;
    each_process(
        |variable| variables.contains(variable),
        |_, process, _| found |= pidfd_send_signal(process, Signal::KILL).is_ok(),
    )?;
    Ok(found)
}

/// The variable of the processes of a run, as it stands in their environment.
pub(super) fn variable(run: &str) -> String {
    format!("{RUN}={run}")
}

/// Visits each process that has a wanted variable in its environment.
fn each_process(
    is_wanted: impl Fn(&str) -> bool,
    mut visit: impl FnMut(Pid, &OwnedFd, &str),
) -> io::Result<()> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        let Some(pid) = pid else { continue };
        // Held before the environment is read: so it is this process's, or nothing is sent.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        let mut variables = environment.split(|byte| *byte == 0).filter_map(|it| str::from_utf8(it).ok());
        if let Some(variable) = variables.find(|it| it.starts_with(RUN) && is_wanted(it)) {
            visit(pid, &process, variable);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use futures::{FutureExt, future::join_all};
    use tokio::sync::mpsc;

    use super::*;

    static TESTED: Search = Search::new();

    /// Gets the number of runs of each round, and lets the round go on.
    static ROUNDS: OnceLock<(mpsc::UnboundedSender<usize>, Mutex<mpsc::UnboundedReceiver<()>>)> =
        OnceLock::new();

    fn slow_round(wanted: &[Wanted]) -> HashSet<String> {
        let (rounds, go) = ROUNDS.get().unwrap();
        rounds.send(wanted.len()).unwrap();
        go.lock().unwrap().blocking_recv().unwrap();
        HashSet::new()
    }

    #[tokio::test]
    async fn all_runs_that_end_while_one_is_looked_for_are_looked_for_together() {
        let ((sender, mut rounds), (go, goes)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        ROUNDS.set((sender, Mutex::new(goes))).unwrap();
        let send =
            |run: usize| TESTED.send(Wanted::new(&run.to_string(), Pid::INIT, Signal::KILL), slow_round);
        let first = tokio::spawn(send(0));
        assert_eq!(rounds.recv().await, Some(1));
        let mut others = join_all((1..=50).map(send));
        assert!((&mut others).now_or_never().is_none());
        go.send(()).unwrap();
        first.await.unwrap();
        assert_eq!(rounds.recv().await, Some(50));
        go.send(()).unwrap();
        others.await;
    }
}
