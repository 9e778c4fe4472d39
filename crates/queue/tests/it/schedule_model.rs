//! Random sweeps of a queue with a schedule, by clocks that differ and under random faults: every occurrence is accounted for.
//!
//! One seed decides everything; a failure prints the command that repeats it.

use std::collections::BTreeSet;
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::schedule::{Missed, MissedPolicy, OccurrenceRecord, Outcome, Overlap, Schedule};
use kvqueue_queue::{Kind, Queue, from_millis, millis};

use crate::common::schedules::{HOUR, every, schedule, span};
use crate::common::{KINDS, Millis, OF_ONE_STEP, Rng, TestDb, on_database, run_seed, seeds};

/// Steps per seed.
const STEPS: usize = 40;
/// When the schedule is made.
const START: Millis = 1_800_000_000_123;

#[test]
fn random_sweeps_account_for_every_occurrence_once() {
    run("random_sweeps_account", 1_800_000, |run, records| run.check_accounts(records));
}

#[test]
fn random_sweeps_by_clocks_that_are_days_apart_fire_no_time_twice() {
    run("random_sweeps_by_clocks", 5 * 24 * HOUR, |_, _| ());
}

fn run(name: &str, most_skew: Millis, check: impl Fn(&Run<'_>, &[OccurrenceRecord])) {
    on_database(async |t| {
        for seed in seeds(60) {
            let ran = async {
                let mut run = Run::new(t, seed, most_skew).await;
                for _ in 0..STEPS {
                    run.step().await;
                }
                let records = run.check().await;
                check(&run, &records);
            };
            run_seed(seed, name, OF_ONE_STEP, ran).await;
        }
    });
}

struct Run<'t> {
    t: &'t TestDb,
    rng: Rng,
    queue: Queue,
    period: Millis,
    schedule: Schedule,
    /// How far the clocks of the sweepers are ahead.
    clocks: [i64; 4],
    /// The true time.
    time: Millis,
    /// How many items have ended.
    ended: usize,
    /// The next nominal time, or the end of time.
    next: Millis,
}

impl<'t> Run<'t> {
    async fn new(t: &'t TestDb, seed: u64, most_skew: Millis) -> Run<'t> {
        let mut rng = Rng::new(seed);
        let kind = KINDS[rng.below(KINDS.len())];
        let queue = t.queue_of(format!("{most_skew}/{seed}"), kind);
        let period = [20_000, 60_000, HOUR][rng.below(3)];
        let mut schedule = schedule("s", period);
        schedule.missed = Missed {
            policy: [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All][rng.below(3)],
            window: [None, Some(Duration::from_secs(600)), Some(Duration::ZERO)][rng.below(3)],
            most: 1 + u32::try_from(rng.below(10)).unwrap(),
        };
        if schedule.missed.policy != MissedPolicy::All {
            schedule.overlap = [Overlap::Allow, Overlap::Skip, Overlap::Queue][rng.below(3)];
        }
        schedule.jitter = Duration::from_secs([0, 30][rng.below(2)]);
        t.put(&queue, &schedule, START).await;
        t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1));
        Run {
            t,
            rng,
            queue,
            period,
            schedule,
            clocks: [0, most_skew.cast_signed(), -most_skew.cast_signed(), most_skew.cast_signed() / 2],
            time: START,
            ended: 0,
            next: 0,
        }
    }

    async fn step(&mut self) {
        match self.rng.below(12) {
            0..8 => {
                let steps = [1_000, 30_000, self.period, 3 * self.period, 2 * HOUR, 30 * HOUR];
                self.time += steps[self.rng.below(steps.len())];
                self.look().await;
            }
            8 => self.look().await,
            9 | 10 => self.end_item().await,
            _ => self.pause_and_resume().await,
        }
    }

    async fn look(&mut self) {
        let skew = self.clocks[self.rng.below(self.clocks.len())];
        let now = self.time.saturating_add_signed(skew);
        let look = self.t.look(&self.queue, now).await;
        assert!(look.unusable.is_empty());
        assert!(look.next.is_none_or(|next| next > now), "{look:?} at {now}");
    }

    async fn end_item(&mut self) {
        let (t, queue) = (self.t, &self.queue);
        let mut session = t.session(queue);
        let taken = session.take(&t.db, crate::common::k(1)).await.unwrap();
        self.ended += taken.got.len();
    }

    async fn pause_and_resume(&mut self) {
        let (t, queue, time) = (self.t, &self.queue, self.time);
        t.run(async |tr| queue.pause_schedule(tr, "s", from_millis(time)).await).await;
        self.time += [1_000, 3 * self.period][self.rng.below(2)];
        self.look().await;
        let (now, queue) = (self.time, &self.queue);
        t.run(async |tr| queue.resume_schedule(tr, "s", from_millis(now)).await).await;
    }

    /// No time has fired twice, and each item is one that was fired. Returns the records.
    async fn check(&mut self) -> Vec<OccurrenceRecord> {
        let t = self.t;
        t.end_faults();
        let records = t.schedule_history(&self.queue, "s").await;
        assert!(records.len() < 1_000, "the history is cut");
        let fired = records.iter().filter(|record| matches!(record.outcome, Outcome::Fired { .. }));
        let fired: Vec<Millis> = fired.map(|record| millis(record.from)).collect();
        let times: BTreeSet<Millis> = fired.iter().copied().collect();
        assert_eq!(times.len(), fired.len(), "a time fired twice: {records:#?}");
        assert!(times.iter().all(|time| time % self.period == 0));
        let items = t.list(&self.queue).await.len();
        assert_eq!(items + self.ended, fired.len());
        let state = t.schedule_state(&self.queue, "s").await;
        assert_eq!(state.occurrences, fired.len() as u64);
        if self.schedule.overlap != Overlap::Allow {
            assert!(items <= 1, "{items} items overlap");
        }
        if self.queue.kind() == Kind::Fifo {
            let last = records.iter().rev().find_map(|record| record.outcome.id());
            assert_eq!(state.last.as_ref().map(|(_, id)| id), last);
        }
        self.next = millis(state.next.unwrap());
        records
    }

    /// The records, and the occurrence that waits, have every nominal time before the next one, and each once.
    fn check_accounts(&self, records: &[OccurrenceRecord]) {
        let mut spans: Vec<_> = records.iter().map(|record| (span(record), record.count)).collect();
        assert!(records.iter().all(|record| record.is_exact), "{records:#?}");
        spans.sort_unstable();
        let mut expected = every(self.period).next_after(START).unwrap();
        let mut waiting = 0;
        for ((from, to), count) in spans {
            if from != expected {
                // One occurrence may wait; it has no record yet.
                assert_eq!(
                    (from, self.schedule.overlap),
                    (expected + self.period, Overlap::Queue),
                    "{records:#?}"
                );
                waiting += 1;
            }
            assert_eq!(count, every(self.period).count(from, to, 0).times, "{records:#?}");
            expected = to + self.period;
        }
        waiting += u32::from(expected + self.period == self.next);
        assert!(expected == self.next || expected + self.period == self.next, "{records:#?}");
        assert!(waiting <= 1, "{waiting} occurrences have no record");
    }
}
