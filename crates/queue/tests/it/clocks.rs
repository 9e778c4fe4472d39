//! Processes whose clocks differ: what a sweeper with a wrong clock does to a queue, and what it leaves alone.
//!
//! Only on the embedded engine: the tests let its versions go on with a time of their own.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use kvqueue_queue::{
    Failure, HistoryFilter, ItemOutcome, NewItem, Queue, Recording, SweepCounts, SweepRules, Sweeper,
    from_millis,
};

use crate::common::schedules::schedule;
use crate::common::{Millis, Rng, TestDb, k, on_database, rules, seeds, sweeper};
use crate::history::{Clock, START};

const SECOND: Millis = 1_000;
const MINUTE: Millis = 60 * SECOND;
const HOUR: Millis = 60 * MINUTE;
const DAY: Millis = 24 * HOUR;
const AHEAD: i64 = 31 * DAY as i64;
/// A lease that does not run out, in versions.
const LONG: u64 = 1 << 50;
/// How long dead letters and ended items are kept.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// A process that sweeps, and how far its clock is ahead, in milliseconds.
struct Process {
    sweeper: Sweeper,
    ahead: i64,
}

/// A queue, the true time, and processes.
struct World<'t> {
    t: &'t TestDb,
    q: Queue,
    now: Millis,
    rules: SweepRules,
    processes: Vec<Process>,
    moved: SweepCounts,
}

/// What a queue has.
#[derive(Debug, PartialEq, Eq)]
struct Has {
    dead: usize,
    ended: usize,
    expiring: usize,
    scheduled: usize,
    /// The time before the one at which its schedule fires next.
    mark: Millis,
}

impl<'t> World<'t> {
    /// `None` on a cluster.
    fn new(t: &'t TestDb, name: &str) -> Option<World<'t>> {
        let rules = SweepRules::default().with_retry(rules().retry).with_dead_retention(Some(KEPT));
        let q = t.queue(name).with_recorder(&Clock::new().recorder(Recording::On));
        let world = World { t, q, now: START, rules, processes: Vec::new(), moved: SweepCounts::default() };
        t.jump(1).then_some(world)
    }

    /// A dead letter, an ended item, one that expires after a day, one that is due in an hour, and a schedule of every minute.
    async fn fill(&mut self) {
        let (t, q) = (self.t, &self.q);
        assert!(t.run(async |tr| q.keep_history(tr, KEPT).await).await);
        t.push(q, &["ends"]).await;
        let mut lease = t.lease_for(q, 1, LONG).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        t.push(q, &["dies"]).await;
        let mut lease = t.lease_for(q, 1, LONG).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(START), 1, "no"))).await;
        t.push(q, &["waits"]).await;
        let mut lease = t.lease_for(q, 1, LONG).await.unwrap();
        let due = Some(from_millis(START + HOUR));
        t.acknowledge(&mut lease, &ItemOutcome::Retry { due, failure: Failure::new(from_millis(1), 1, "") })
            .await;
        t.push_items(q, &[NewItem::new("expires").with_expiry(from_millis(START + DAY))]).await;
        t.put(q, &schedule("s", MINUTE), START).await;
    }

    fn add(&mut self, ahead: i64) {
        self.processes.push(Process { sweeper: sweeper(&self.q), ahead });
    }

    /// Versions and the time go on.
    fn pass(&mut self, time: Millis) {
        assert!(self.t.jump(time * 1_000));
        self.now += time;
    }

    /// The time goes on by steps of five seconds, or larger ones if it is long, and all processes sweep after each.
    async fn run(&mut self, time: Millis) -> SweepCounts {
        let before = std::mem::take(&mut self.moved);
        let step = (5 * SECOND).max(time / 200);
        for _ in 0..time.div_ceil(step) {
            self.pass(step);
            self.sweep().await;
        }
        let moved = self.moved;
        self.moved += before;
        moved
    }

    async fn sweep(&mut self) {
        for process in &mut self.processes {
            let now = self.now.saturating_add_signed(process.ahead);
            self.moved += self.t.sweep(&mut process.sweeper, now, &self.rules).await.moved;
        }
    }

    async fn has(&self) -> Has {
        let (t, q) = (self.t, &self.q);
        let counts = t.run(async |tr| q.counts(tr).await).await;
        let ended = t.run(async |tr| q.history(tr, &HistoryFilter::default(), None, k(100)).await).await;
        Has {
            dead: counts.dead as usize,
            ended: ended.items.len(),
            expiring: t.records(q, "expiry").await.len(),
            scheduled: t.records(q, "later").await.len(),
            mark: t.first_row(q).await.unwrap() - MINUTE,
        }
    }

    /// Nothing has gone or become ready before its time.
    async fn check_untouched(&self) {
        let has = self.has().await;
        assert_eq!((has.dead, has.ended, has.expiring, has.scheduled), (1, 2, 1, 1), "{has:?}");
        assert!(has.mark <= self.now, "the schedule is silent until {}, and it is {}", has.mark, self.now);
    }
}

#[test]
fn a_process_whose_clock_is_far_ahead_removes_nothing_and_makes_nothing_due() {
    on_database(async |t| {
        let Some(mut world) = World::new(t, "q") else { return };
        world.fill().await;
        world.add(0);
        world.run(30 * SECOND).await;
        world.add(AHEAD);
        world.run(15 * MINUTE).await;
        world.check_untouched().await;
        assert!(world.has().await.mark > world.now - 2 * MINUTE, "the schedule has fired");
        // What is due by the clock that is right is done, a few seconds late at the most.
        world.run(START + HOUR + 20 * SECOND - world.now).await;
        assert_eq!(world.has().await.scheduled, 0);
    });
}

#[test]
fn a_process_whose_clock_steps_ahead_while_it_is_on_duty_removes_nothing() {
    on_database(async |t| {
        let Some(mut world) = World::new(t, "q") else { return };
        world.fill().await;
        world.add(0);
        world.run(30 * SECOND).await;
        world.add(0);
        world.run(30 * SECOND).await;
        world.processes[0].ahead = AHEAD;
        world.run(15 * MINUTE).await;
        world.check_untouched().await;
        assert!(world.has().await.mark > world.now - 2 * MINUTE, "the schedule has fired");
        // It is set right, and steps again.
        for ahead in [0, AHEAD, -AHEAD, AHEAD] {
            world.processes[0].ahead = ahead;
            world.run(10 * MINUTE).await;
            world.check_untouched().await;
        }
    });
}

#[test]
fn a_process_whose_clock_is_ahead_removes_nothing_where_nothing_was_fetched_yet() {
    on_database(async |t| {
        let Some(mut world) = World::new(t, "q") else { return };
        let (t, q) = (world.t, world.q.clone());
        t.push_items(&q, &[NewItem::new("waits").with_due(from_millis(START + HOUR))]).await;
        t.push_items(&q, &[NewItem::new("expires").with_expiry(from_millis(START + DAY))]).await;
        world.add(0);
        world.run(MINUTE).await;
        world.add(AHEAD);
        world.run(15 * MINUTE).await;
        assert_eq!((t.records(&q, "later").await.len(), t.records(&q, "expiry").await.len()), (1, 1));
    });
}

#[test]
fn a_process_asks_whether_it_is_alone_before_it_removes() {
    on_database(async |t| {
        for comes_first in [false, true] {
            let Some(mut world) = World::new(t, if comes_first { "first" } else { "later" }) else { return };
            let (t, q) = (world.t, world.q.clone());
            world.add(0);
            if comes_first {
                world.add(AHEAD);
            }
            // There is no queue, so there is no place for what clocks say.
            world.run(20 * MINUTE).await;
            assert!(t.records(&q, "clocks").await.is_empty());
            let expires = NewItem::new("expires").with_expiry(from_millis(world.now + DAY));
            t.push_items(&q, &[expires]).await;
            if !comes_first {
                world.add(AHEAD);
            }
            // The wrong one is the first to look.
            world.processes.reverse();
            world.run(15 * MINUTE).await;
            assert_eq!(t.records(&q, "expiry").await.len(), 1);
            // Alone, it is believed.
            world.processes.truncate(1);
            assert_eq!(world.run(15 * MINUTE).await.expired, 1);
        }
    });
}

#[test]
fn a_process_alone_goes_on_by_its_own_clock_after_an_outage_of_days() {
    on_database(async |t| {
        for is_new in [false, true] {
            let Some(mut world) = World::new(t, if is_new { "new" } else { "old" }) else { return };
            world.fill().await;
            world.add(0);
            world.run(30 * SECOND).await;
            if is_new {
                world.processes.clear();
                world.add(0);
            }
            // Versions stood still meanwhile.
            world.now += 8 * DAY;
            let moved = world.run(MINUTE).await;
            assert_eq!((moved.removed_dead, moved.promoted, moved.expired), (1, 1, 1), "{moved:?}");
            let has = world.has().await;
            assert!(has.mark > world.now - 2 * MINUTE, "the schedule has fired");
            assert_eq!(has.ended, 0);
        }
    });
}

#[test]
fn two_processes_that_agree_go_by_their_clocks_against_a_third() {
    on_database(async |t| {
        let Some(mut world) = World::new(t, "q") else { return };
        world.fill().await;
        world.add(-AHEAD);
        world.run(30 * SECOND).await;
        world.add(0);
        world.add(MINUTE as i64);
        world.now += 8 * DAY;
        world.pass(SECOND);
        let moved = world.run(2 * MINUTE).await;
        assert_eq!((moved.removed_dead, moved.promoted, moved.expired), (1, 1, 1), "{moved:?}");
    });
}

#[test]
fn a_process_whose_clock_is_behind_keeps_nothing_from_the_one_that_was_there_before() {
    on_database(async |t| {
        let Some(mut world) = World::new(t, "q") else { return };
        world.fill().await;
        world.add(0);
        world.run(30 * SECOND).await;
        world.add(-AHEAD);
        world.run(START + HOUR + 20 * SECOND - world.now).await;
        let has = world.has().await;
        assert_eq!(has.scheduled, 0, "{has:?}");
        assert!(has.mark > world.now - 2 * MINUTE, "{has:?}");
        // Nobody tells which of two clocks is right, so nothing is removed until one of them is gone.
        world.run(START + DAY + 10 * MINUTE - world.now).await;
        assert_eq!(world.has().await.expiring, 1);
        world.processes.pop();
        world.run(15 * MINUTE).await;
        assert_eq!(world.has().await.expiring, 0);
    });
}

/// Right clocks differ by this from the true time, in milliseconds.
const SKEW: i64 = 2 * MINUTE as i64;

#[test]
fn random_wrong_clocks_destroy_nothing_and_make_nothing_early() {
    on_database(async |t| {
        for seed in seeds(6) {
            let ran = AssertUnwindSafe(random(t, seed));
            if let Err(panic) = ran.catch_unwind().await {
                eprintln!(
                    "seed {seed} failed; repeat it with\n  KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it \
                     random_wrong_clocks_destroy_nothing"
                );
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Two processes that are right within [`SKEW`], and up to one that is not, and comes and goes, steps, and is restarted.
async fn random(t: &TestDb, seed: u64) {
    let Some(mut world) = World::new(t, &format!("q{seed}")) else { return };
    let mut rng = Rng::new(seed);
    world.fill().await;
    let right = |rng: &mut Rng| rng.below(2 * SKEW as usize) as i64 - SKEW;
    world.add(right(&mut rng));
    world.run(10 * SECOND).await;
    world.add(right(&mut rng));
    for _ in 0..40 {
        match rng.below(6) {
            0 if world.processes.len() == 2 => {
                world.add([AHEAD, -AHEAD, 400_000, -400_000, 8 * DAY as i64][rng.below(5)]);
            }
            0 => drop(world.processes.pop()),
            1 if world.processes.len() == 3 => {
                world.processes[2].ahead = [AHEAD, -AHEAD, 0, 2 * AHEAD][rng.below(4)];
            }
            // A right one is restarted.
            2 => {
                let ahead = right(&mut rng);
                world.processes[rng.below(2)] = Process { sweeper: sweeper(&world.q), ahead };
            }
            _ => {}
        }
        let time = [5, 20, 60, 200][rng.below(4)] * SECOND;
        world.run(time).await;
        let has = world.has().await;
        // One that is wrong and alone in a moment of doubt counts for less than the ones that agree.
        let tolerated = (SKEW + 300_000) as u64;
        assert!(has.mark <= world.now + tolerated, "{has:?} at {}", world.now - START);
        assert_eq!((has.dead, has.ended, has.expiring), (1, 2, 1), "{has:?} at {}", world.now - START);
        assert!(has.scheduled == 1 || world.now + tolerated >= START + HOUR, "{has:?}");
    }
    // What is due comes, as long as the ones that are right agree.
    let missing = (START + HOUR + 5 * MINUTE).saturating_sub(world.now);
    world.run(missing.max(5 * MINUTE)).await;
    let has = world.has().await;
    assert_eq!(has.scheduled, 0, "{has:?}");
    assert!(has.mark + 7 * MINUTE >= world.now, "{has:?}");
}
