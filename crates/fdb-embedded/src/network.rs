//! The network thread: it runs callbacks and timers.
//!
//! As in FoundationDB, it can be set up, run and stopped once in a process. The engine does no work
//! on it, because a callback may block: a binding may wait there for its event loop.

use baton::thread::{self, ThreadId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use baton::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::error::{Code, Result};
use crate::fork::is_forked;

/// Work that runs once on the network thread.
pub type Task = Box<dyn FnOnce() + Send>;
/// Rarely more than one.
pub type Tasks = SmallVec<[Task; 1]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkPhase {
    Unset,
    Ready,
    Running(ThreadId),
    Stopped,
}

/// Identifies a timer: when it is due, and a unique number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(Instant, u64);

/// Measures how busy the network thread is, in windows of a second.
struct BusyMeter {
    /// Since when the thread has waited, while it waits.
    since: Option<Instant>,
    /// When the window began; `None` before the loop has started.
    begin: Option<Instant>,
    /// How long the thread has waited in the window.
    waited: Duration,
    /// The busy fraction of the last complete window.
    busyness: f64,
}

const BUSYNESS_WINDOW: Duration = Duration::from_secs(1);

impl BusyMeter {
    /// Accounts for the time up to `now`.
    fn update(&mut self, now: Instant) {
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
    phase: NetworkPhase,
    busy_meter: BusyMeter,
    /// The loop was stopped before it started.
    stopping: bool,
    tasks: Vec<Task>,
    timers: BTreeMap<TimerId, Task>,
    sequence: u64,
    completion_hooks: Vec<Task>,
}

static LOOP: Mutex<Loop> = Mutex::new(Loop {
    phase: NetworkPhase::Unset,
    busy_meter: BusyMeter { since: None, begin: None, waited: Duration::ZERO, busyness: 0.0 },
    stopping: false,
    tasks: Vec::new(),
    timers: BTreeMap::new(),
    sequence: 0,
    completion_hooks: Vec::new(),
});
static WAKE: Condvar = Condvar::new();

/// Sets the network up, once in a process.
pub fn setup() -> Result<()> {
    let mut state = LOOP.lock();
    if state.phase != NetworkPhase::Unset {
        return Err(Code::NETWORK_ALREADY_SETUP);
    }
    state.phase = NetworkPhase::Ready;
    Ok(())
}

/// True if the network was set up, even if it has stopped since.
pub fn is_setup() -> bool {
    // In a forked child the lock may belong to a thread that does not exist. The parent had a
    // database, so it had a network.
    is_forked() || LOOP.lock().phase != NetworkPhase::Unset
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
        NetworkPhase::Unset => Err(Code::NETWORK_NOT_SETUP),
        NetworkPhase::Running(_) | NetworkPhase::Stopped => Err(Code::NETWORK_CANNOT_BE_RESTARTED),
        NetworkPhase::Ready => {
            state.phase = NetworkPhase::Running(thread::current().id());
            Ok(())
        }
    }
}

/// Drops queued tasks: no callback is delivered after a stop.
fn leave() -> Vec<Task> {
    let (hooks, _undelivered, _timers) = {
        let mut state = LOOP.lock();
        state.phase = NetworkPhase::Stopped;
        let state = &mut *state;
        (
            std::mem::take(&mut state.completion_hooks),
            std::mem::take(&mut state.tasks),
            std::mem::take(&mut state.timers),
        )
    };
    hooks
}

/// BusyMeter for work; `None` when the loop should end.
fn next_tasks(state: &mut baton::MutexGuard<'_, Loop>) -> Option<Vec<Task>> {
    loop {
        if state.stopping {
            return None;
        }
        let mut tasks = std::mem::take(&mut state.tasks);
        let now = baton::now();
        state.busy_meter.update(now);
        state.busy_meter.since = None;
        while let Some(due) = state.timers.first_entry().filter(|timer| timer.key().0 <= now) {
            tasks.push(due.remove());
        }
        if !tasks.is_empty() {
            return Some(tasks);
        }
        state.busy_meter.since = Some(now);
        match state.timers.first_key_value().map(|(TimerId(at, _), _)| *at) {
            Some(at) => {
                WAKE.wait_until(state, at);
            }
            None => WAKE.wait(state),
        }
    }
}

/// The busy fraction of the network thread in about the last second, from 0 to 1.
pub fn busyness() -> f64 {
    let mut state = LOOP.lock();
    if matches!(state.phase, NetworkPhase::Running(_)) {
        state.busy_meter.update(baton::now());
    }
    state.busy_meter.busyness
}

/// Ends the loop. Can be called on any thread, also before the loop has started.
pub fn stop() -> Result<()> {
    if is_forked() {
        return Ok(());
    }
    let mut state = LOOP.lock();
    if state.phase == NetworkPhase::Unset {
        return Err(Code::NETWORK_NOT_SETUP);
    }
    state.stopping = true;
    WAKE.notify_all();
    Ok(())
}

/// Runs `hook` on the network thread after the loop has ended.
pub fn on_completion(hook: Task) -> Result<()> {
    let mut state = LOOP.lock();
    if state.phase == NetworkPhase::Unset {
        return Err(Code::NETWORK_NOT_SETUP);
    }
    state.completion_hooks.push(hook);
    Ok(())
}

thread_local! {
    /// Tasks posted by this thread during [`batch_posts`].
    static BATCHED: RefCell<Option<Vec<Task>>> = const { RefCell::new(None) };
}

/// Runs `work`, and posts its tasks to the network thread all at once. Most callbacks only wake
/// another thread, and waking the network thread for each one would cost more than they do.
pub fn batch_posts<T>(work: impl FnOnce() -> T) -> T {
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            post(BATCHED.take().unwrap_or_default().into());
        }
    }
    if BATCHED.with_borrow(Option::is_some) {
        return work();
    }
    BATCHED.set(Some(Vec::new()));
    let _release = Release;
    work()
}

/// Queues tasks for the network thread.
pub fn post(mut tasks: Tasks) {
    if tasks.is_empty() {
        return;
    }
    if is_forked() {
        // The network thread does not exist here, so they would never run.
        return tasks.into_iter().for_each(|task| task());
    }
    // A thread that is ending has no batch.
    let _ = BATCHED.try_with(|batched| {
        if let Some(batched) = batched.borrow_mut().as_mut() {
            batched.extend(tasks.drain(..));
        }
    });
    if tasks.is_empty() {
        return;
    }
    let mut state = LOOP.lock();
    if state.phase != NetworkPhase::Stopped {
        state.tasks.extend(tasks);
        WAKE.notify_one();
    }
}

/// Runs `task` on the network thread at `at` or soon after.
pub fn schedule(at: Instant, task: Task) -> TimerId {
    if is_forked() {
        // In a forked child everything fails at once, so nothing waits.
        return TimerId(at, 0);
    }
    let mut state = LOOP.lock();
    state.sequence += 1;
    let id = TimerId(at, state.sequence);
    if state.phase != NetworkPhase::Stopped {
        state.timers.insert(id, task);
        WAKE.notify_one();
    }
    id
}

/// The timers that are not due yet.
#[cfg(feature = "testing")]
pub fn timers() -> usize {
    LOOP.lock().timers.len()
}

/// Cancels a timer that is not due yet.
pub fn cancel(id: TimerId) {
    if is_forked() {
        return;
    }
    // Drops the task after unlocking, because its drop may schedule or post.
    let _task = LOOP.lock().timers.remove(&id);
}

/// True on the network thread.
pub fn is_network_thread() -> bool {
    !is_forked() && LOOP.lock().phase == NetworkPhase::Running(thread::current().id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn batched_posts_are_held_until_the_batch_ends() {
        let batched = || BATCHED.with_borrow(|batched| batched.as_ref().map(Vec::len));
        batch_posts(|| {
            post(Tasks::from_vec(vec![Box::new(|| ()), Box::new(|| ())]));
            batch_posts(|| post(Tasks::from_vec(vec![Box::new(|| ())])));
            assert_eq!(batched(), Some(3));
        });
        assert_eq!(batched(), None);
        let panicked = std::panic::catch_unwind(|| batch_posts(|| panic!("on purpose")));
        assert!(panicked.is_err() && batched().is_none());
    }

    #[test]
    fn busyness_is_the_part_of_a_second_that_the_thread_did_not_wait() {
        let mut busy_meter = BusyMeter { since: None, begin: None, waited: Duration::ZERO, busyness: 0.0 };
        let start = baton::now();
        let at = |millis| start + Duration::from_millis(millis);
        busy_meter.update(at(0));
        busy_meter.since = Some(at(0));
        busy_meter.update(at(500));
        assert_eq!(busy_meter.busyness, 0.0, "the first second is not over");
        // Busy from here on.
        busy_meter.since = None;
        busy_meter.update(at(1_000));
        assert!((busy_meter.busyness - 0.5).abs() < 1e-9, "{}", busy_meter.busyness);
        busy_meter.update(at(2_000));
        assert!((busy_meter.busyness - 1.0).abs() < 1e-9, "{}", busy_meter.busyness);
        // It waits on, and nobody wakes it.
        busy_meter.since = Some(at(2_250));
        busy_meter.update(at(3_000));
        assert!((busy_meter.busyness - 0.25).abs() < 1e-9, "{}", busy_meter.busyness);
        busy_meter.update(at(9_000));
        assert!(busy_meter.busyness.abs() < 1e-9, "{}", busy_meter.busyness);
    }

    #[test]
    fn a_cancelled_timer_lets_go_of_its_task() {
        let batched = std::sync::Arc::new(());
        let of_task = std::sync::Arc::clone(&batched);
        let id = schedule(baton::now() + Duration::from_secs(3600), Box::new(move || drop(of_task)));
        assert_eq!(std::sync::Arc::strong_count(&batched), 2);
        cancel(id);
        assert_eq!(std::sync::Arc::strong_count(&batched), 1);
    }
}
