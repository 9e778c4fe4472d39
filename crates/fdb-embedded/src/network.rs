//! The network thread: the one thread that runs callbacks, and timers.
//!
//! As in FoundationDB it is set up once, run once and stopped once in a process. Work of the engine never runs
//! here, because a callback may block (a binding may wait for its own event loop to drain).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::thread::{self, ThreadId};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::error::{Code, Result};

type Task = Box<dyn FnOnce() + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unset,
    Ready,
    Running(ThreadId),
    Stopped,
}

struct Timer {
    at: Instant,
    sequence: u64,
    task: Task,
}

struct Loop {
    phase: Phase,
    /// Stop was asked for before the loop was entered.
    stopping: bool,
    tasks: Vec<Task>,
    timers: BinaryHeap<Reverse<Timer>>,
    sequence: u64,
    completion_hooks: Vec<Task>,
}

static LOOP: Mutex<Loop> = Mutex::new(Loop {
    phase: Phase::Unset,
    stopping: false,
    tasks: Vec::new(),
    timers: BinaryHeap::new(),
    sequence: 0,
    completion_hooks: Vec::new(),
});
static WAKE: Condvar = Condvar::new();

/// Sets the network up; once in a process.
pub fn setup() -> Result<()> {
    let mut state = LOOP.lock();
    if state.phase != Phase::Unset {
        return Err(Code::NETWORK_ALREADY_SETUP);
    }
    state.phase = Phase::Ready;
    Ok(())
}

/// Has the network been set up (and perhaps run, and perhaps stopped)?
pub fn is_setup() -> bool {
    LOOP.lock().phase != Phase::Unset
}

/// Runs callbacks and timers on the calling thread until [`stop`].
pub fn run() -> Result<()> {
    enter()?;
    loop {
        let tasks = {
            let mut state = LOOP.lock();
            match next_tasks(&mut state) {
                Some(tasks) => tasks,
                None => break,
            }
        };
        for task in tasks {
            task();
        }
    }
    let hooks = leave();
    for hook in hooks {
        hook();
    }
    Ok(())
}

fn enter() -> Result<()> {
    let mut state = LOOP.lock();
    match state.phase {
        Phase::Unset => Err(Code::NETWORK_NOT_SETUP),
        Phase::Running(_) | Phase::Stopped => Err(Code::NETWORK_CANNOT_BE_RESTARTED),
        Phase::Ready => {
            state.phase = Phase::Running(thread::current().id());
            Ok(())
        }
    }
}

/// Drops what is still queued: after a stop no callback is delivered.
fn leave() -> Vec<Task> {
    let (hooks, _undelivered, _timers) = {
        let mut state = LOOP.lock();
        state.phase = Phase::Stopped;
        let state = &mut *state;
        (
            std::mem::take(&mut state.completion_hooks),
            std::mem::take(&mut state.tasks),
            std::mem::take(&mut state.timers),
        )
    };
    hooks
}

/// Waits for something to do; `None` when the loop is to end.
fn next_tasks(state: &mut parking_lot::MutexGuard<'_, Loop>) -> Option<Vec<Task>> {
    loop {
        if state.stopping {
            return None;
        }
        let mut tasks = std::mem::take(&mut state.tasks);
        let now = Instant::now();
        while state.timers.peek().is_some_and(|Reverse(timer)| timer.at <= now) {
            tasks.extend(state.timers.pop().map(|Reverse(timer)| timer.task));
        }
        if !tasks.is_empty() {
            return Some(tasks);
        }
        match state.timers.peek().map(|Reverse(timer)| timer.at) {
            Some(at) => {
                WAKE.wait_until(state, at);
            }
            None => WAKE.wait(state),
        }
    }
}

/// Ends the loop; legal from any thread, also before it has been entered.
pub fn stop() -> Result<()> {
    let mut state = LOOP.lock();
    if state.phase == Phase::Unset {
        return Err(Code::NETWORK_NOT_SETUP);
    }
    state.stopping = true;
    WAKE.notify_all();
    Ok(())
}

/// Runs `hook` on the network thread when the loop has ended.
pub fn on_completion(hook: Task) -> Result<()> {
    let mut state = LOOP.lock();
    if state.phase == Phase::Unset {
        return Err(Code::NETWORK_NOT_SETUP);
    }
    state.completion_hooks.push(hook);
    Ok(())
}

/// Queues tasks for the network thread.
pub fn post(mut tasks: Vec<Task>) {
    if tasks.is_empty() {
        return;
    }
    let mut state = LOOP.lock();
    if state.phase != Phase::Stopped {
        state.tasks.append(&mut tasks);
        WAKE.notify_one();
    }
}

/// Runs `task` on the network thread at `at`, or as soon after as it comes to it.
pub fn schedule(at: Instant, task: Task) {
    let mut state = LOOP.lock();
    if state.phase == Phase::Stopped {
        return;
    }
    state.sequence += 1;
    let timer = Timer { at, sequence: state.sequence, task };
    state.timers.push(Reverse(timer));
    WAKE.notify_one();
}

/// Is the caller on the network thread?
pub fn is_network_thread() -> bool {
    LOOP.lock().phase == Phase::Running(thread::current().id())
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
