//! Pushes at fixed times, whatever the answers: an open loop.
//!
//! A closed loop waits for an answer before it asks again, and so forgives a queue that stalls: what would have waited meanwhile is
//! never asked. Here each item has its time, and every latency counts from that. The times are kept by a thread of its own, since
//! the runtime's timers are as coarse as a millisecond.

use std::{
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use kvqueue_queue::Session;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
};
use tokio_util::sync::CancellationToken;

use super::{
    ground::session,
    producers::{Target, all},
    tally::payload,
};

/// The longest that the thread sleeps before it looks whether it is to stop.
const NAP: Duration = Duration::from_millis(50);

/// What is to be pushed, and when.
#[derive(Clone)]
pub(super) struct Schedule {
    /// The first item's time.
    pub(super) begin: Instant,
    /// From one to the next.
    pub(super) every: Duration,
    /// The number of items.
    pub(super) items: u64,
    /// The most pushes at the same time. Items beyond wait, and their time passes.
    pub(super) at_once: usize,
}

impl Schedule {
    /// When an item is to be pushed.
    pub(super) fn time(&self, number: u64) -> Instant {
        self.begin + Duration::from_nanos((self.every.as_nanos() * u128::from(number)) as u64)
    }
}

/// Stops the thread when the cell is dropped.
struct Guard(CancellationToken);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Pushes the items with numbers from 0, each in a transaction of its own at its time. Returns how long it was from each one's time to the
/// answer, in nanoseconds.
pub(super) async fn push(target: &Target, schedule: &Schedule) -> anyhow::Result<Vec<u64>> {
    let stop = Guard(CancellationToken::new());
    let (own, times, token) = (target.clone(), schedule.clone(), stop.0.clone());
    let mut tasks = spawn_blocking(move || start_all(&own, &times, &token)).await?;
    let nanos = all(&mut tasks).await?;
    drop(stop);
    Ok(nanos)
}

/// Starts a task per item, on a thread that may wait.
fn start_all(target: &Target, schedule: &Schedule, stop: &CancellationToken) -> JoinSet<anyhow::Result<u64>> {
    let (runtime, room) = (Handle::current(), Arc::new(Semaphore::new(schedule.at_once)));
    let sessions = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..schedule.items {
        let time = schedule.time(number);
        while !stop.is_cancelled() && Instant::now() < time {
            sleep(time.saturating_duration_since(Instant::now()).min(NAP));
        }
        if stop.is_cancelled() || target.tally.number(1).is_none() {
            break;
        }
        let Ok(permit) = runtime.block_on(room.clone().acquire_owned()) else { break };
        let (target, sessions) = (target.clone(), sessions.clone());
        tasks.spawn_on(
            async move {
                let answered = push_one(&target, &sessions, number).await;
                drop(permit);
                answered.map(|answered| nanos_between(time, answered))
            },
            &runtime,
        );
    }
    tasks
}

async fn push_one(target: &Target, sessions: &Mutex<Vec<Session>>, number: u64) -> anyhow::Result<Instant> {
    let idle = sessions.lock().expect("nothing panics while it holds the sessions").pop();
    let mut session = idle.unwrap_or_else(|| session(&target.queue));
    session.push(&target.db, &[payload(number, target.payload)]).await?;
    let answered = Instant::now();
    target.tally.pushed(number, 1);
    sessions.lock().expect("nothing panics while it holds the sessions").push(session);
    Ok(answered)
}

/// From one time to a later one, in nanoseconds.
pub(super) fn nanos_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
