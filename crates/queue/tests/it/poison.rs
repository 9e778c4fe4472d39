//! Items that a worker may have died of: they wait before they are tried again, and are tried apart from each other.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use kvqueue_queue::{
    Approach, End, ItemOutcome, Kind, Lease, Limits, Packing, Quarantine, Queue, Rate, RetryRules, Session,
    SweepCounts, SweepRules, Sweeper, millis,
};

use crate::common::keyed;
use crate::common::{SHORT, TestDb, at_most, fetch_options, k, on_database, payloads, rules, sweeper};

/// Longer than a test takes, in versions.
const LONG: u64 = 600_000_000;

/// The pause after the first crash, in milliseconds, or up to half as long.
const PAUSE: u64 = 60_000;

fn with_a_pause() -> SweepRules {
    let retry = RetryRules { base: Duration::from_millis(PAUSE), ..RetryRules::default() };
    rules().with_retry(retry)
}

#[test]
fn items_of_a_crashed_lease_become_ready_one_after_the_other() {
    on_database(async |t| {
        let q = t.queue("q");
        let names: Vec<String> = (0..64).map(|n| format!("{n:02}")).collect();
        t.push(&q, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut sweeper = sweeper(&q);
        crash(t, &q, 64, &mut sweeper, &with_a_pause()).await;
        let counts = t.run(async |tr| q.counts(tr).await).await;
        assert_eq!((counts.ready, counts.waiting, counts.running), (0, 64, 0));
        // The sweep was at the time 0.
        let waiting = t.run(async |tr| q.scheduled_after(tr, None, k(100)).await).await;
        let due: BTreeSet<u64> = waiting.iter().map(|delayed| millis(delayed.due)).collect();
        assert!(due.iter().all(|due| (PAUSE / 2..=PAUSE).contains(due)), "{due:?}");
        assert!(due.len() > 60, "they come back at {due:?}");
        // Half of them are back after about three quarters of the pause, each at its own place.
        let swept = t.sweep(&mut sweeper, PAUSE / 4 * 3, &with_a_pause()).await;
        assert!((16..48).contains(&swept.moved.promoted), "{swept:?}");
        t.sweep(&mut sweeper, PAUSE, &with_a_pause()).await;
        assert_eq!(t.list(&q).await, names);
    });
}

#[test]
fn each_crash_doubles_the_backoff_of_its_items() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["poison"]).await;
        let mut sweeper = sweeper(&q);
        for nth in 0..3 {
            crash(t, &q, 1, &mut sweeper, &with_a_pause()).await;
            let waiting = t.run(async |tr| q.scheduled_after(tr, None, k(100)).await).await;
            let whole = PAUSE << nth;
            assert!((whole / 2..=whole).contains(&millis(waiting[0].due)), "{waiting:?}");
            t.sweep(&mut sweeper, whole, &with_a_pause()).await;
        }
    });
}

/// Fetches this many items, and dies.
async fn crash(t: &TestDb, q: &Queue, n: usize, sweeper: &mut Sweeper, rules: &SweepRules) {
    t.lease_for(q, n, SHORT).await.unwrap();
    let mut moved = SweepCounts::default();
    while moved.leases == 0 {
        moved += t.sweep(sweeper, 0, rules).await.moved;
    }
    assert_eq!(moved, SweepCounts { leases: 1, returned: n, ..SweepCounts::default() });
}

/// Keys whose first items have crashed hold up no other key, at any K, whether they wait for a timer or not.
#[test]
fn suspects_of_some_keys_hold_up_no_other_key() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        for n in 0..5 {
            keyed::push(t, &q, &format!("a{n}"), ["suspect", "behind"]).await;
        }
        let mut sweeper = sweeper(&q);
        crash(t, &q, 5, &mut sweeper, &rules()).await;
        let rate = Rate::new(NonZeroU32::MIN, Duration::from_millis(10)).unwrap();
        keyed::limit(t, &q, "t", Limits::default().with_rate(rate)).await;
        keyed::push(t, &q, "t/x", ["timed", "timed"]).await;
        for key in ["b", "c", "d"] {
            keyed::push(t, &q, key, ["x", "y", "z"]).await;
        }
        let quarantine = Quarantine::default();
        let mut session = t.session(&q).with_quarantine(&quarantine);
        let held = keyed::fetch(t, &mut session, 1).await.unwrap();
        assert!(held.is_in_quarantine());
        let mut others = 0;
        let deadline = Instant::now() + Duration::from_secs(20);
        while others < 11 {
            for k in [1, 3, 10] {
                let Some(mut lease) = keyed::fetch(t, &mut session, k).await else { continue };
                assert!(payloads(lease.items()).iter().all(|name| name != "suspect"), "{lease:?}");
                others += lease.items().len();
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
            assert!(Instant::now() < deadline, "{others} items of other keys are fetched, of 11");
        }
        drop(held);
    });
}

#[test]
fn suspects_are_taken_in_groups_that_shrink_with_each_crash() {
    on_database(async |t| {
        let q = t.queue("q");
        let names: Vec<String> = (0..100).map(|n| format!("{n:02}")).collect();
        t.push(&q, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut sweeper = sweeper(&q);
        for expected in [&names[..], &names[..6], &names[..1], &names[..1]] {
            let lease = t.lease_for(&q, 100, SHORT).await.unwrap();
            assert_eq!(payloads(lease.items()), expected);
            let mut moved = SweepCounts::default();
            while moved.leases == 0 {
                moved += t.sweep(&mut sweeper, 0, &rules()).await.moved;
            }
        }
    });
}

/// What a process takes on leases until there is nothing more for it.
async fn take_all(t: &TestDb, session: &mut Session, n: usize) -> Vec<Lease> {
    take_all_for(t, session, n, LONG).await
}

async fn take_all_for(t: &TestDb, session: &mut Session, n: usize, length: u64) -> Vec<Lease> {
    let mut leases = Vec::new();
    loop {
        let mut approach = Approach::Front;
        let mut take = fetch_options(n, length, &mut approach, false);
        match session.fetch(&t.db, &mut take).await.unwrap().got {
            Some(lease) => leases.push(lease),
            None => return leases,
        }
    }
}

fn all_payloads(leases: &[Lease]) -> Vec<Vec<String>> {
    leases.iter().map(|lease| payloads(lease.items())).collect()
}

#[test]
fn a_process_leases_suspects_once_and_continues_with_other_items() {
    for kind in [Kind::Fifo, Kind::Recipe(Packing::Raw), Kind::Priority(End::Max, Packing::Raw)] {
        on_database(async |t| {
            let q = t.queue_of("q", kind);
            t.fill(&q, &["a", "b", "c"]).await;
            t.lease_for(&q, 3, SHORT).await.unwrap();
            t.sweep_leases(&q, 1, &rules()).await;
            t.fill(&q, &["d", "e", "f"]).await;
            let mut session = t.session(&q);
            let leases = take_all(t, &mut session, 2).await;
            let mut all = all_payloads(&leases).concat();
            all.sort_unstable();
            assert_eq!(all.len(), 4, "{all:?}");
            assert_eq!(leases.iter().filter(|lease| lease.is_in_quarantine()).count(), 1);
            for mut lease in leases {
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
            // Each time that it is done with one, it gets the next.
            for _ in 0..2 {
                let leases = take_all(t, &mut session, 2).await;
                assert_eq!(leases.len(), 1);
                assert!(leases[0].is_in_quarantine() && leases[0].items().len() == 1);
                for mut lease in leases {
                    t.acknowledge(&mut lease, &ItemOutcome::Done).await;
                }
            }
            assert_eq!(t.len(&q).await, 0);
        });
    }
}

#[test]
fn a_process_holds_one_item_that_crashed_twice_among_all_its_queues() {
    on_database(async |t| {
        let queues = ["p", "q"].map(|name| t.queue(name));
        for q in &queues {
            t.push(q, &["a"]).await;
            for _ in 0..2 {
                t.lease_for(q, 1, SHORT).await.unwrap();
                t.sweep_leases(q, 1, &rules()).await;
            }
        }
        let quarantine = Quarantine::default();
        let mut sessions = queues.each_ref().map(|q| t.session(q).with_quarantine(&quarantine));
        let first = take_all(t, &mut sessions[0], 1).await;
        assert_eq!(all_payloads(&first), [["a"]]);
        assert!(take_all(t, &mut sessions[1], 1).await.is_empty());
        drop(first);
        assert_eq!(all_payloads(&take_all(t, &mut sessions[1], 1).await), [["a"]]);
    });
}

/// One item kills its process on every attempt, while the process holds other items.
#[test]
fn a_crashing_item_makes_no_other_item_a_dead_letter() {
    // With one lease for each item, with one for all, and in between; three attempts are enough for the innocent.
    for (k, items) in [(1, 16), (16, 64), (64, 64), (200, 400)] {
        on_database(async |t| {
            let q = t.queue("q");
            let names: Vec<String> = (0..items).map(|n| format!("{n:03}")).collect();
            t.push(&q, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
            let (mut sweeper, mut done, mut deaths) = (sweeper(&q), BTreeSet::new(), 0);
            loop {
                let mut session = t.session(&q);
                let mut leases = take_all_for(t, &mut session, k, SHORT).await;
                if leases.is_empty() {
                    break;
                }
                if all_payloads(&leases).concat().contains(&"007".to_owned()) {
                    deaths += 1;
                    let mut moved = SweepCounts::default();
                    while moved.leases < leases.len() {
                        moved += t.sweep(&mut sweeper, 0, &at_most(3)).await.moved;
                    }
                    continue;
                }
                for lease in &mut leases {
                    done.extend(payloads(lease.items()));
                    t.acknowledge(lease, &ItemOutcome::Done).await;
                }
            }
            assert_eq!((deaths, done.len(), done.contains("007")), (3, items - 1, false), "k = {k}");
        });
    }
}

/// How many items a take asks for in the measurement, and how many steps it has.
const BATCH: usize = 16;
const ROUNDS: usize = 12;
const STEPS: usize = 40;

/// A process that takes and finishes items, and keeps a lease of suspects if there are any.
struct Worker<'t> {
    t: &'t TestDb,
    session: Session,
    suspects: Option<Lease>,
}

impl Worker<'_> {
    /// Finishes a batch of items; returns how many seconds that took.
    async fn work(&mut self) -> f64 {
        let (began, mut items) = (Instant::now(), 0);
        while items < BATCH {
            let mut approach = Approach::Front;
            let mut take = fetch_options(BATCH, LONG, &mut approach, false);
            let mut lease = self.session.fetch(&self.t.db, &mut take).await.unwrap().got.unwrap();
            if lease.is_in_quarantine() {
                assert!(self.suspects.replace(lease).is_none());
                continue;
            }
            assert!(lease.items().iter().all(|item| item.attempt == 1), "a suspect among others");
            items += lease.items().len();
            self.t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        began.elapsed().as_secs_f64()
    }

    /// Finishes the suspects that it has taken.
    async fn finish_suspects(&mut self) {
        if let Some(mut lease) = self.suspects.take() {
            self.t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
    }
}

/// Compared in one run, in turn, so that whatever else the machine does slows down both.
#[test]
fn items_behind_two_thousand_suspects_are_handled_at_the_usual_pace() {
    on_database(async |t| {
        let (plain, behind) = (t.queue("plain"), t.queue("behind"));
        let names: Vec<String> = (0..2_000).map(|n| format!("{n:04}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        t.push(&behind, &names).await;
        t.lease_for(&behind, 2_000, SHORT).await.unwrap();
        t.sweep_leases(&behind, 1, &rules()).await;
        for q in [&plain, &behind] {
            for _ in 0..5 {
                t.push(q, &names).await;
            }
        }
        let [mut plain, mut behind] =
            [plain, behind].map(|q| Worker { t, session: t.session(&q), suspects: None });
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let mut seconds = (0.0, 0.0);
            for _ in 0..STEPS {
                seconds.0 += plain.work().await;
                seconds.1 += behind.work().await;
            }
            ratios.push(seconds.1 / seconds.0);
            assert!(behind.suspects.is_some(), "suspects are not taken at all");
            behind.finish_suspects().await;
        }
        println!("items behind suspects took {ratios:.2?} times as long as others");
        ratios.sort_by(f64::total_cmp);
        assert!(ratios[ROUNDS / 2] < 1.25, "{ratios:?}");
    });
}
