//! The network thread: the one thread that runs callbacks, and timers.
//!
//! As in FoundationDB it is set up once, run once and stopped once in a process. Work of the engine never runs
//! here, because a callback may block (a binding may wait for its own event loop to drain).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::error::{Code, Result};
use crate::fork::is_forked;

/// What the network thread runs once.
pub type Task = Box<dyn FnOnce() + Send>;
/// Rarely more than one.
pub type Tasks = SmallVec<[Task; 1]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unset,
    Ready,
    Running(ThreadId),
    Stopped,
}

/// Names a timer: when it is due, and a number that makes it unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(Instant, u64);

/// How long the network thread waited, counted in windows of a second.
struct Waits {
    /// Since when it waits, while it does.
    since: Option<Instant>,
    /// When the window began; `None` before the loop was entered.
    begin: Option<Instant>,
    /// How long it waited in the window.
    waited: Duration,
    /// What part of the last whole window it did not wait.
    busyness: f64,
}

const BUSYNESS_WINDOW: Duration = Duration::from_secs(1);

impl Waits {
    /// It is awake at `now`, or is looked at while it waits.
    fn look(&mut self, now: Instant) {
        if let Some(since) = self.since {
            self.waited += now.saturating_duration_since(since);
            self.since = Some(now);
        }
        let begin = *self.begin.get_or_insert(now);
        let window = now.saturating_duration_since(begin);
        if window >= BUSYNESS_WINDOW {
            let busy = window.saturating_sub(self.waited);
            self.busyness = busy.as_secs_f64() / window.as_secs_f64();
            (self.begin, self.waited) = (Some(now), Duration::ZERO);
        }
    }
}

struct Loop {
    phase: Phase,
    waits: Waits,
    /// Stop was asked for before the loop was entered.
    stopping: bool,
    tasks: Vec<Task>,
    timers: BTreeMap<TimerId, Task>,
    sequence: u64,
    completion_hooks: Vec<Task>,
}

static LOOP: Mutex<Loop> = Mutex::new(Loop {
    phase: Phase::Unset,
    waits: Waits { since: None, begin: None, waited: Duration::ZERO, busyness: 0.0 },
    stopping: false,
    tasks: Vec::new(),
    timers: BTreeMap::new(),
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
    // In a forked child the lock may belong to a thread that is not there. There was a database, so there was a network.
    is_forked() || LOOP.lock().phase != Phase::Unset
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
        state.waits.look(now);
        state.waits.since = None;
        while let Some(due) = state.timers.first_entry().filter(|timer| timer.key().0 <= now) {
            tasks.push(due.remove());
        }
        if !tasks.is_empty() {
            return Some(tasks);
        }
        state.waits.since = Some(now);
        match state.timers.first_key_value().map(|(TimerId(at, _), _)| *at) {
            Some(at) => {
                WAKE.wait_until(state, at);
            }
            None => WAKE.wait(state),
        }
    }
}

/// What part of the last second, about, the network thread was busy: from 0 to 1.
pub fn busyness() -> f64 {
    let mut state = LOOP.lock();
    if matches!(state.phase, Phase::Running(_)) {
        state.waits.look(Instant::now());
    }
    state.waits.busyness
}

/// Ends the loop; legal from any thread, also before it has been entered.
pub fn stop() -> Result<()> {
    if is_forked() {
        return Ok(());
    }
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

thread_local! {
    /// What this thread posts while it is in [`together`].
    static HELD: RefCell<Option<Vec<Task>>> = const { RefCell::new(None) };
}

/// Runs `work`. What it posts reaches the network thread when it ends, all at once: to wake that thread for each of many callbacks,
/// which do little more than to wake another, costs more than they do.
pub fn together<T>(work: impl FnOnce() -> T) -> T {
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            post(HELD.take().unwrap_or_default().into());
        }
    }
    if HELD.with_borrow(Option::is_some) {
        return work();
    }
    HELD.set(Some(Vec::new()));
    let _release = Release;
    work()
}

/// Queues tasks for the network thread.
pub fn post(mut tasks: Tasks) {
    if tasks.is_empty() {
        return;
    }
    if is_forked() {
        // The network thread is not here, and nobody would run them.
        return tasks.into_iter().for_each(|task| task());
    }
    // A thread that is ending holds nothing any more.
    let _ = HELD.try_with(|held| {
        if let Some(held) = held.borrow_mut().as_mut() {
            held.extend(tasks.drain(..));
        }
    });
    if tasks.is_empty() {
        return;
    }
    let mut state = LOOP.lock();
    if state.phase != Phase::Stopped {
        state.tasks.extend(tasks);
        WAKE.notify_one();
    }
}

/// Runs `task` on the network thread at `at`, or as soon after as it comes to it.
pub fn schedule(at: Instant, task: Task) -> TimerId {
    if is_forked() {
        // Nothing waits here: all fails at once.
        return TimerId(at, 0);
    }
    let mut state = LOOP.lock();
    state.sequence += 1;
    let id = TimerId(at, state.sequence);
    if state.phase != Phase::Stopped {
        state.timers.insert(id, task);
        WAKE.notify_one();
    }
    id
}

/// Drops a timer that is not due yet.
pub fn cancel(id: TimerId) {
    if is_forked() {
        return;
    }
    // The task is dropped after the lock: it may own something whose end schedules or posts.
    let _task = LOOP.lock().timers.remove(&id);
}

/// Is the caller on the network thread?
pub fn is_network_thread() -> bool {
    !is_forked() && LOOP.lock().phase == Phase::Running(thread::current().id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_posted_together_is_held_until_the_end() {
        let held = || HELD.with_borrow(|held| held.as_ref().map(Vec::len));
        together(|| {
            post(Tasks::from_vec(vec![Box::new(|| ()), Box::new(|| ())]));
            together(|| post(Tasks::from_vec(vec![Box::new(|| ())])));
            assert_eq!(held(), Some(3));
        });
        assert_eq!(held(), None);
        let panicked = std::panic::catch_unwind(|| together(|| panic!("on purpose")));
        assert!(panicked.is_err() && held().is_none());
    }

    #[test]
    fn busyness_is_the_part_of_a_second_that_the_thread_did_not_wait() {
        let mut waits = Waits { since: None, begin: None, waited: Duration::ZERO, busyness: 0.0 };
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        waits.look(at(0));
        waits.since = Some(at(0));
        waits.look(at(500));
        assert_eq!(waits.busyness, 0.0, "the first second is not over");
        // Busy from here on.
        waits.since = None;
        waits.look(at(1_000));
        assert!((waits.busyness - 0.5).abs() < 1e-9, "{}", waits.busyness);
        waits.look(at(2_000));
        assert!((waits.busyness - 1.0).abs() < 1e-9, "{}", waits.busyness);
        // It waits on, and nobody wakes it.
        waits.since = Some(at(2_250));
        waits.look(at(3_000));
        assert!((waits.busyness - 0.25).abs() < 1e-9, "{}", waits.busyness);
        waits.look(at(9_000));
        assert!(waits.busyness.abs() < 1e-9, "{}", waits.busyness);
    }

    #[test]
    fn a_cancelled_timer_lets_go_of_its_task() {
        let held = std::sync::Arc::new(());
        let of_task = std::sync::Arc::clone(&held);
        let id = schedule(Instant::now() + Duration::from_secs(3600), Box::new(move || drop(of_task)));
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        cancel(id);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
