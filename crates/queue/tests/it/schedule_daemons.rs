//! Ten daemons whose clocks are minutes apart fire the schedules of a queue, and are killed at random.
//!
//! Their commits wait at a gate. One seed says which daemon goes on; which commit arrives, late or never, and with which fault; when a
//! consumer takes an item; and when an operator pauses or resumes a schedule. In the end each nominal time has exactly one record, and
//! each record of an item has one item.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::Poll;

use fdb_embedded::{Fault, Gate, HeldCommit};
use futures::{FutureExt, poll};
use kvqueue_queue::schedule::{Missed, MissedPolicy, Outcome, Overlap, SkipReason};
use kvqueue_queue::{Item, Queue, from_millis, millis};

use crate::common::gate::to_the_end;
use crate::common::schedules::{MINUTE, every, schedule, scheduler_of};
use crate::common::{KINDS, Millis, Rng, TestDb, k, on_database, rules, seeds, session_id};

const DAEMONS: usize = 10;
/// Steps per seed.
const STEPS: usize = 250;
const START: Millis = 1_800_000_000_000;
/// The names of the schedules, their periods, and what they do about overlaps.
const SCHEDULES: [(&str, Millis, Overlap); 4] = [
    ("a", MINUTE, Overlap::Allow),
    ("b", 2 * MINUTE, Overlap::Skip),
    ("c", 7 * MINUTE, Overlap::Allow),
    ("d", MINUTE, Overlap::Queue),
];

#[test]
fn ten_daemons_that_are_killed_at_random_fire_each_time_once() {
    on_database(async |t| {
        for seed in seeds(40) {
            let Some(gate) = t.close_gate() else { return };
            drop(gate);
            if let Err(panic) = AssertUnwindSafe(run(t, seed)).catch_unwind().await {
                eprintln!(
                    "seed {seed} failed; repeat it with\n  \
                     KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it ten_daemons"
                );
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// A daemon: its clock, and the look that is under way.
struct Daemon<'t> {
    skew: i64,
    look: Option<Pin<Box<dyn Future<Output = ()> + 't>>>,
    /// The commit of its look, which has not arrived.
    commit: Option<HeldCommit>,
}

impl<'t> Daemon<'t> {
    fn new(rng: &mut Rng) -> Daemon<'t> {
        let minutes = i64::try_from(rng.below(21)).unwrap() - 10;
        Daemon { skew: minutes * 60_000, look: None, commit: None }
    }

    fn begin(&mut self, t: &'t TestDb, queue: &Queue, now: Millis) {
        let mut sweeper = scheduler_of(queue, session_id());
        self.look = Some(Box::pin(async move {
            t.sweep(&mut sweeper, now, &rules()).await;
        }));
    }

    /// Goes on until its next commit waits at the gate, or its look has ended.
    async fn go_on(&mut self, gate: &Gate) {
        let Some(look) = &mut self.look else { return };
        loop {
            if let Poll::Ready(()) = poll!(look.as_mut()) {
                self.look = None;
                return;
            }
            drop(gate.backoffs());
            if let Some(commit) = gate.arrived().pop() {
                self.commit = Some(commit);
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn run(t: &TestDb, seed: u64) {
    let mut rng = Rng::new(seed);
    let queue = t.queue_of(format!("q{seed}"), KINDS[rng.below(KINDS.len())]);
    for (name, period, overlap) in SCHEDULES {
        let mut one = schedule(name, period);
        one.overlap = overlap;
        if overlap == Overlap::Allow {
            one.missed = Missed { policy: MissedPolicy::All, window: None, most: 1_000 };
        }
        t.put(&queue, &one, START).await;
    }
    let gate = t.close_gate().unwrap();
    let mut daemons: Vec<_> = std::iter::repeat_with(|| Daemon::new(&mut rng)).take(DAEMONS).collect();
    // Commits of daemons that are dead.
    let (mut late, mut time): (Vec<HeldCommit>, Millis) = (Vec::new(), START);
    let mut taken = Vec::new();
    for _ in 0..STEPS {
        let at = rng.below(DAEMONS);
        let daemon = &mut daemons[at];
        match rng.below(12) {
            0..5 => match daemon.commit.take() {
                Some(commit) => {
                    let faults =
                        [Fault::None, Fault::None, Fault::UnknownCommitted, Fault::UnknownNotCommitted];
                    let _told_to_its_client = commit.pass(faults[rng.below(faults.len())]);
                    daemon.go_on(&gate).await;
                }
                None => {
                    daemon.begin(t, &queue, time.saturating_add_signed(daemon.skew));
                    daemon.go_on(&gate).await;
                }
            },
            // It is killed, and its commit is still on its way.
            5..7 => {
                late.extend(daemon.commit.take());
                *daemon = Daemon::new(&mut rng);
            }
            7 => {
                let arrives = (!late.is_empty()).then(|| late.swap_remove(rng.below(late.len())));
                if let Some(commit) = arrives {
                    let _told_to_nobody = commit.pass(Fault::None);
                }
            }
            8 => {
                let mut session = t.session(&queue);
                let take = pin!(session.take(&t.db, k(1)));
                taken.extend(to_the_end(&gate, take).await.unwrap().got);
            }
            9 => {
                let (name, ..) = SCHEDULES[rng.below(SCHEDULES.len())];
                let pauses = rng.below(2) == 0;
                to_the_end(&gate, pin!(change(t, &queue, name, pauses, time))).await;
            }
            _ => {
                let passes = [1_000, 20_000, MINUTE][rng.below(3)];
                time += passes;
                // A sweeper that was killed has claimed the queue for two seconds.
                gate.advance(passes * 1_000);
            }
        }
    }
    drop((late, daemons, gate));
    for (name, ..) in SCHEDULES {
        change(t, &queue, name, false, time).await;
    }
    check(t, &queue, time + 10 * MINUTE, taken).await;
}

/// An operator pauses or resumes a schedule.
async fn change(t: &TestDb, queue: &Queue, name: &str, pauses: bool, now: Millis) {
    t.run(async |tr| match pauses {
        true => queue.pause_schedule(tr, name, from_millis(now)).await,
        false => queue.resume_schedule(tr, name, from_millis(now)).await,
    })
    .await;
}

/// The last daemon looks at `now`, which no clock has been ahead of. Then every nominal time has one record.
async fn check(t: &TestDb, queue: &Queue, now: Millis, taken: Vec<Item>) {
    // The claim of the sweeper before it has ended.
    t.jump(3_000_000);
    t.look(queue, now).await;
    let mut items = t.run(async |tr| queue.list(tr).await).await;
    items.extend(taken);
    let mut ids = BTreeSet::new();
    for (name, period, overlap) in SCHEDULES {
        let records = t.schedule_history(queue, name).await;
        let waiting = t.schedule_state(queue, name).await.waiting;
        assert!(waiting.is_none() || overlap == Overlap::Queue);
        // A record of skipped or missed occurrences may have several, from its first time on.
        let every = every(period);
        let times = records.iter().flat_map(|record| {
            let count = usize::try_from(record.count).unwrap();
            std::iter::successors(Some(millis(record.from)), |time| every.next_after(*time)).take(count)
        });
        let mut times: Vec<Millis> = times.chain(waiting.map(millis)).collect();
        times.sort_unstable();
        let expected = std::iter::successors(every.next_after(START), |time| every.next_after(*time));
        let expected: Vec<Millis> = expected.take_while(|time| *time <= now).collect();
        assert_eq!(times, expected, "schedule {name}");
        for record in &records {
            if let Outcome::Skipped(reason) = record.outcome {
                assert!(reason == SkipReason::Paused || overlap != Overlap::Allow, "{record:?}");
                continue;
            }
            if matches!(record.outcome, Outcome::Missed(_)) {
                assert!(overlap != Overlap::Allow, "{record:?}");
                continue;
            }
            assert!(matches!(record.outcome, Outcome::Fired { .. }), "{record:?}");
            let id = record.outcome.id().unwrap();
            let item = items.iter().find(|item| item.id == *id).unwrap();
            let meta = item.meta.as_ref().unwrap();
            assert_eq!(meta.attributes["schedule-time"], millis(record.from).to_string());
            assert!(ids.insert(id.clone()), "an item has two records");
        }
    }
    assert_eq!(ids.len(), items.len(), "an item has no record");
}
