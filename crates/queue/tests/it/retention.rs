//! Dead letters that are removed because they are older than their queue keeps them: which are, what goes with them, and what stays.

use std::collections::BTreeMap;
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Failure, ItemChange, ItemId, ItemOutcome, ItemState, Kind, Meta, NewItem, Pause, Queue, RetryPolicy,
    State, StoredItem, SweepRules, Sweeper, from_millis,
};

use crate::common::gate::overlaps;
use crate::common::ordered::{blocked, blocking, queue as queue_of_keys, run_one, run_rest};
use crate::common::{
    KINDS, Millis, OF_ONE_STEP, Rng, TestDb, k, kinds_of_records, on_database, rules, run_seed, seeds,
    sweeper,
};
use crate::restored::restore;
use crate::unknown::scripts;

const HOUR: u64 = 3_600_000_000;
/// How long the tests keep dead letters, in milliseconds.
const KEPT: Millis = 100;

fn keeping() -> SweepRules {
    rules().with_dead_retention(Some(Duration::from_millis(KEPT)))
}

/// A dead letter as an import has it.
fn letter(payload: &str, died: Millis) -> StoredItem {
    let mut meta = Meta::default();
    meta.death = Some(Failure::new(from_millis(died), 1, "no"));
    StoredItem { payload: payload.to_owned().into(), meta, state: State::Dead, ..StoredItem::default() }
}

/// Pushes an item, which dies at a time.
async fn die(t: &TestDb, q: &Queue, item: NewItem, died: Millis) {
    t.push_items(q, &[item]).await;
    let mut lease = t.lease_for(q, 1, HOUR).await.unwrap();
    t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(died), 1, "no"))).await;
}

/// Sweeps by a new sweeper, and returns how many dead letters were removed.
async fn sweep(t: &TestDb, q: &Queue, now: Millis) -> usize {
    t.end_claim(q).await;
    t.sweep(&mut sweeper(q), now, &keeping()).await.moved.removed_dead
}

/// Payloads and ids of all dead letters.
async fn letters(t: &TestDb, q: &Queue) -> BTreeMap<String, ItemId> {
    let letters = t.run(async |tr| q.dead_after(tr, None, k(1_000)).await).await;
    let payload = |payload: Option<bytes::Bytes>| String::from_utf8(payload.unwrap().to_vec()).unwrap();
    letters.into_iter().map(|letter| (payload(letter.payload), letter.id)).collect()
}

async fn names(t: &TestDb, q: &Queue) -> Vec<String> {
    letters(t, q).await.into_keys().collect()
}

#[test]
fn dead_letters_are_removed_when_they_are_older_than_the_retention() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let long = "x".repeat(250_000);
            // The order of their deaths is not the order of their ids.
            for (payload, died) in [("c", 30), (&long[..], 10), ("b", 20)] {
                die(t, &q, NewItem::new(payload.to_owned()).with_unique("u"), died).await;
            }
            // A new item has the unique key of all of them.
            t.push_items(&q, &[NewItem::new("lives").with_unique("u")]).await;
            assert_eq!(sweep(t, &q, KEPT + 9).await, 0, "{kind}");
            assert_eq!(sweep(t, &q, KEPT + 20).await, 2, "{kind}");
            assert_eq!(names(t, &q).await, ["c"], "{kind}");
            assert_eq!(t.push_items(&q, &[NewItem::new("second").with_unique("u")]).await.items, 0);
            assert_eq!(sweep(t, &q, KEPT + 30).await, 1, "{kind}");
            assert_eq!(t.list(&q).await, ["lives"], "{kind}");
            assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 0);
            let left = kinds_of_records(t, &q).await;
            for record in ["dead", "body", "chunk"] {
                assert!(t.records(&q, record).await.is_empty(), "{kind} {record}: {left:?}");
            }
        }
    });
}

#[test]
fn without_a_retention_dead_letters_stay() {
    on_database(async |t| {
        let q = t.queue("q");
        die(t, &q, NewItem::new("a"), 1).await;
        let swept = t.sweep(&mut sweeper(&q), Millis::MAX / 2, &rules()).await;
        assert_eq!((swept.moved.removed_dead, swept.oldest_dead), (0, None));
        assert_eq!(names(t, &q).await, ["a"]);
    });
}

#[test]
fn dead_letters_that_cannot_be_judged_stay_until_they_are_purged() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            // Nobody knows when it died.
            let timeless = StoredItem { meta: Meta::default(), ..letter("timeless", 0) };
            assert_eq!(restore(t, &q, &[letter("old", 1), timeless, letter("zero", 0)]).await, 3);
            // Its item's record cannot be read, so that it may have a unique key.
            let mut hidden = letter("hidden", 1);
            assert!(hidden.meta.add_unknown_field(11, b"?".to_vec()));
            assert_eq!(restore(t, &q, &[hidden]).await, 1);
            assert_eq!(sweep(t, &q, 2 * KEPT).await, 1, "{kind}");
            assert_eq!(names(t, &q).await, ["hidden", "timeless", "zero"], "{kind}");
            let all = q.purge_all_dead(&t.db, &RetryPolicy::default(), None).await.unwrap();
            assert_eq!((all.moved, t.run(async |tr| q.counts(tr).await).await.dead), (3, 0), "{kind}");
        }
    });
}

#[test]
fn a_sweep_removes_a_bounded_number_of_dead_letters_and_the_next_goes_on() {
    on_database(async |t| {
        let q = t.queue("q");
        // Every other one is old.
        let page: Vec<_> = (0..1_000).map(|n| letter(&format!("{n}"), 1 + n % 2 * 1_000)).collect();
        for _ in 0..22 {
            assert_eq!(restore(t, &q, &page).await, 1_000);
        }
        let mut sweeper = sweeper(&q);
        let (mut removed, mut sweeps) = (Vec::new(), 0);
        loop {
            let swept = t.sweep(&mut sweeper, KEPT + 1, &keeping()).await;
            removed.push(swept.moved.removed_dead);
            sweeps += 1;
            // 20 transactions of 500 letters at most.
            assert!(removed[removed.len() - 1] <= 10_000 / 2, "{removed:?}");
            assert!(swept.attempts.begun <= 20 + 10, "{}", swept.attempts.begun);
            if swept.oldest_dead.is_some() {
                assert_eq!(swept.oldest_dead, Some(from_millis(1_001)));
                break;
            }
        }
        assert!(sweeps >= 3, "{removed:?}");
        assert_eq!(removed.iter().sum::<usize>(), 11_000);
        assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 11_000);
    });
}

#[test]
fn large_dead_letters_are_removed_in_bounded_transactions() {
    on_database(async |t| {
        let q = t.queue("q");
        // Each with a side record of 15 KB and a payload in parts.
        let big = |n: usize| {
            let mut one = letter(&format!("{n} {}", "x".repeat(100_000)), 1);
            one.meta.attributes.insert("a".to_owned(), "y".repeat(15_000));
            one
        };
        for n in 0..20 {
            let items: Vec<_> = (0..8).map(|i| big(n * 8 + i)).collect();
            assert_eq!(restore(t, &q, &items).await, 8);
        }
        let mut sweeper = sweeper(&q);
        let mut removed = 0;
        while removed < 160 {
            let swept = t.sweep(&mut sweeper, KEPT + 1, &keeping()).await;
            assert!(swept.moved.removed_dead > 0);
            removed += swept.moved.removed_dead;
        }
        for record in ["dead", "body", "chunk"] {
            assert!(t.records(&q, record).await.is_empty(), "{record}");
        }
    });
}

#[test]
fn a_queue_without_dead_letters_costs_one_read_and_no_write() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let (mut with, mut without) = (sweeper(&q), sweeper(&q));
        let looks = async |sweeper: &mut Sweeper, rules: &SweepRules| {
            t.sweep(sweeper, 1_000, rules).await.attempts.begun
        };
        let before = t.rows().await;
        let base = looks(&mut without, &rules()).await;
        assert_eq!(looks(&mut with, &keeping()).await, base + 1);
        // It rests until a letter could be old.
        assert_eq!(looks(&mut with, &keeping()).await, looks(&mut without, &rules()).await);
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn a_retry_or_a_purge_at_the_same_time_has_the_letter_or_finds_it_gone() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            for removal_is_late in [true, false] {
                for what in ["retry", "purge"] {
                    let case = format!("{what} {n} {kind} {removal_is_late}");
                    let q = t.queue_of(&case, kind);
                    die(t, &q, NewItem::new("a").with_unique("u"), 1).await;
                    let id = letters(t, &q).await["a"].clone();
                    let policy = RetryPolicy::default();
                    let change = async {
                        match what {
                            "retry" => q.retry_dead(&t.db, &policy, &id).await.unwrap(),
                            _ => q.purge_dead(&t.db, &policy, &id).await.unwrap(),
                        }
                    };
                    let (mut by, rules) = (sweeper(&q), keeping());
                    let removal = t.sweep(&mut by, KEPT + 1, &rules);
                    let Some(gate) = t.close_gate() else { return };
                    let (conflicted, swept, effect) = if removal_is_late {
                        overlaps(gate, removal, change).await
                    } else {
                        let (conflicted, effect, swept) = overlaps(gate, change, removal).await;
                        (conflicted, swept, effect)
                    };
                    let (removed, expected) = match removal_is_late {
                        true => (0, ItemChange::Done(ItemState::Dead)),
                        false => (1, ItemChange::Gone),
                    };
                    assert_eq!((conflicted, swept.moved.removed_dead), (true, removed), "{case}");
                    assert_eq!(effect, expected, "{case}");
                    let ready = usize::from(removal_is_late && what == "retry");
                    assert_eq!(t.list(&q).await.len(), ready, "{case}");
                    assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 0, "{case}");
                }
            }
        }
    });
}

#[test]
fn dead_letters_are_removed_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            assert_eq!(restore(t, &q, &[letter("a", 1), letter("b", 2), letter("c", 9)]).await, 3);
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let removed = t.sweep(&mut sweeper(&q), KEPT + 2, &keeping()).await.moved.removed_dead;
            t.end_faults();
            let dead = t.run(async |tr| q.counts(tr).await).await.dead;
            assert_eq!((removed, dead, names(t, &q).await), (2, 1, vec!["c".to_owned()]), "{script:?}");
        }
    });
}

#[test]
fn a_key_goes_on_when_the_dead_letter_that_blocks_it_is_removed() {
    on_database(async |t| {
        let (q, mut session) = queue_of_keys(t, blocking(), &["1", "2"]).await;
        run_one(t, &mut session, "1", &ItemOutcome::Dead(Failure::new(from_millis(5), 1, "no"))).await;
        assert_eq!((blocked(t, &q).await, run_rest(t, &mut session).await.len()), (1, 0));
        assert_eq!(sweep(t, &q, KEPT + 5).await, 1);
        assert_eq!(blocked(t, &q).await, 0);
        assert_eq!(run_rest(t, &mut session).await, ["2"]);
    });
}

#[test]
fn a_frozen_queue_keeps_its_dead_letters() {
    on_database(async |t| {
        let q = t.queue("q");
        die(t, &q, NewItem::new("a"), 1).await;
        t.run(async |tr| {
            q.pause(tr, &Pause { frozen: true, ..Pause::default() });
            Ok(())
        })
        .await;
        let swept = sweeper(&q).sweep(&t.db, &|| from_millis(KEPT + 1), &keeping()).await.unwrap();
        assert!(swept.trouble.unwrap().error.frozen().is_some());
        assert_eq!((swept.moved.removed_dead, names(t, &q).await.len()), (0, 1));
    });
}

#[test]
fn random_deaths_retries_and_sweeps_remove_what_the_model_says() {
    on_database(async |t| {
        for seed in seeds(40) {
            run_seed(seed, "random_deaths_retries_and_sweeps", OF_ONE_STEP, run(t, seed)).await;
        }
    });
}

async fn run(t: &TestDb, seed: u64) {
    let mut rng = Rng::new(seed);
    let kind = KINDS[rng.below(KINDS.len())];
    let q = t.queue_of(format!("model {seed}"), kind);
    let policy = RetryPolicy::default();
    // When each dead letter died, by its payload.
    let (mut now, mut pushed, mut dead) = (1_000, 0, BTreeMap::<String, Millis>::new());
    if !t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1)) {
        return;
    }
    for _ in 0..40 {
        now += [0, 7, KEPT / 2][rng.below(3)];
        match rng.below(6) {
            0..3 => {
                // Clocks of processes differ, and so do times of death and their order.
                let died = now - [0, 3, KEPT, 2 * KEPT][rng.below(4)];
                let name = format!("{pushed}");
                pushed += 1;
                let mut item = NewItem::new(name.clone());
                if kind == Kind::Keyed {
                    item.key = Some(vec![b'a' + u8::try_from(rng.below(3)).unwrap()]);
                }
                die(t, &q, item, died).await;
                dead.insert(name, died);
            }
            3 => {
                let there = letters(t, &q).await;
                assert!(there.keys().eq(dead.keys()));
                let Some((name, id)) = there.into_iter().next_back() else { continue };
                assert_eq!(
                    q.retry_dead(&t.db, &policy, &id).await.unwrap(),
                    ItemChange::Done(ItemState::Dead)
                );
                dead.remove(&name);
                let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
            _ => {
                let before = dead.len();
                dead.retain(|_, died| *died + KEPT > now);
                t.jump(3_000_000);
                let swept = t.sweep(&mut sweeper(&q), now, &keeping()).await;
                assert_eq!(swept.moved.removed_dead, before - dead.len());
                assert_eq!(swept.oldest_dead, dead.values().min().copied().map(from_millis));
            }
        }
    }
    t.end_faults();
    assert!(names(t, &q).await.iter().eq(dead.keys()));
    let counts = t.run(async |tr| q.counts(tr).await).await;
    assert_eq!((counts.dead, counts.ready), (i64::try_from(dead.len()).unwrap(), 0));
}

#[test]
fn the_sweeper_on_duty_of_an_idle_queue_removes_dead_letters_and_others_leave_them() {
    on_database(async |t| {
        let q = t.queue("q");
        let rules = SweepRules::default().with_dead_retention(Some(Duration::from_secs(10)));
        die(t, &q, NewItem::new("a"), 1_000).await;
        // The first is on duty.
        let mut sweepers = [sweeper(&q), sweeper(&q)];
        let mut removed = [0, 0];
        for n in 0..8 {
            let now = 2_000 + n * 2_000;
            for (sweeper, removed) in sweepers.iter_mut().zip(&mut removed) {
                let swept = t.sweep(sweeper, now, &rules).await;
                *removed += swept.moved.removed_dead;
            }
            // Past the length of a lease, and not to the end of an idle queue's rest.
            if !t.jump(31_000_000) {
                return;
            }
        }
        assert_eq!((removed, names(t, &q).await.len()), ([1, 0], 0));
    });
}
