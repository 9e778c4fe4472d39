//! Running items are cancelled at random while daemons are killed: a Rust handler, an exactly-once one, a command, a webhook and workers
//! over HTTP have them. None is handled a second after its cancellation was acknowledged, none has an effect that it should not have,
//! and none is lost or stuck.
//!
//! ```sh
//! cargo test --test it cancels                                    # 150 items
//! KVQUEUE_TEST_ITEMS=1000 cargo test --test it cancels -- --nocapture
//! KVQUEUE_TEST_SEED=N cargo test --test it cancels                # the same choices again
//! ```

mod arena;
mod workers;

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use self::{
    arena::{Arena, QUEUES, now},
    workers::{Acknowledged, Workers},
};
use crate::support::{PATIENCE, Random};

/// How many items there are in all, unless `KVQUEUE_TEST_ITEMS` says so.
const ITEMS: usize = 150;

/// A handler has stopped this long after the cancellation, in ms.
const STOPPED: u64 = 1_000;

/// The same where a daemon was killed around that time, and another had to take the database over.
const STOPPED_AFTER_KILL: u64 = 6_000;

/// How often a daemon is killed.
const KILL_EVERY: Duration = Duration::from_secs(4);

/// How often the test looks whether anything is left.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of the cancellation of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancellation {
    /// It was acknowledged by then, in ms.
    Done(u64),
    /// The answer was lost.
    Unknown,
}

#[test]
fn cancelled_items_are_not_handled_a_second_later_and_none_is_lost() {
    let given = std::env::var("KVQUEUE_TEST_ITEMS").ok().and_then(|items| items.parse().ok());
    let mut random = Random::new();
    let mut arena = Arena::new();
    let of_each = given.unwrap_or(ITEMS) / QUEUES.len();
    for queue in QUEUES {
        arena.push(queue, of_each, &mut random);
    }
    arena.start();
    let workers = Workers::start(&arena);
    let (mut cancelled, mut kills) = (BTreeMap::<String, Cancellation>::new(), Vec::new());
    let (began, mut kill_at) = (Instant::now(), Instant::now() + KILL_EVERY / 2);
    let mut look_at = Instant::now();
    loop {
        if Instant::now() >= look_at {
            if arena.is_empty() {
                break;
            }
            look_at = Instant::now() + LOOK_EVERY;
        }
        assert!(began.elapsed() < 2 * PATIENCE, "items are stuck: {}", arena.left());
        if Instant::now() >= kill_at && kills.len() < 8 {
            kills.push(now());
            arena.kill(&mut random);
            kill_at = Instant::now() + KILL_EVERY;
        }
        let queue = random.choose(&QUEUES);
        let running = arena.running(queue);
        if running.is_empty() {
            thread::sleep(Duration::from_millis(20));
            continue;
        }
        let id = running[random.below(running.len() as u64) as usize].clone();
        // On a slow machine many items are done before their cancellation.
        let is_wanted = cancelled.len() * 20 <= arena.items.len() || random.chance(500);
        if is_wanted && !cancelled.contains_key(&id) {
            match arena.cancel(queue, &id) {
                Some(true) => _ = cancelled.insert(id, Cancellation::Done(now())),
                // It was done first.
                Some(false) => {}
                None => _ = cancelled.insert(id, Cancellation::Unknown),
            }
        } else {
            thread::sleep(Duration::from_millis(10));
        }
    }
    // What should have stopped may go on.
    thread::sleep(Duration::from_millis(STOPPED + 500));
    let done = workers.end();
    let effects = arena.effects();
    check(&arena, &cancelled, &kills, &done, &effects);
    println!(
        "{} of {} cancelled, {} daemons killed, {:?}",
        cancelled.len(),
        arena.items.len(),
        kills.len(),
        began.elapsed()
    );
}

fn check(
    arena: &Arena,
    cancelled: &BTreeMap<String, Cancellation>,
    kills: &[u64],
    Acknowledged { done: pulled, unsure }: &Acknowledged,
    effects: &BTreeMap<String, u64>,
) {
    let (last, ended) = arena.records();
    let mut known = 0;
    for (id, queue) in &arena.items {
        let is_done = ended.contains(id) || pulled.contains(id) || effects.contains_key(id);
        match cancelled.get(id) {
            None => assert!(is_done || unsure.contains(id), "item {id} of {queue} is lost"),
            Some(Cancellation::Unknown) => {}
            Some(Cancellation::Done(at)) => {
                known += 1;
                let was_killed = kills.iter().find(|kill| (at - 2_000..at + STOPPED).contains(kill));
                let until = was_killed.map_or(at + STOPPED, |kill| kill + STOPPED_AFTER_KILL);
                let last = last.get(id).copied().unwrap_or(0);
                assert!(
                    last <= until,
                    "item {id} of {queue} was handled {} ms after its cancellation",
                    last - at
                );
                assert!(!effects.contains_key(id), "item {id} had its effect, and was cancelled");
                assert!(!pulled.contains(id), "item {id} was acknowledged as done, and cancelled");
            }
        }
    }
    assert!(effects.values().all(|number| *number == 1), "an effect happened twice: {effects:?}");
    assert!(known * 20 > arena.items.len(), "too few items were cancelled: {known}");
}
