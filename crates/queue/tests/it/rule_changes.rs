//! A change of the rules while a queue works: parked keys are looked at again, and nobody waits for that.

use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::{Approach, Limits, Queue};
use mutant::Bounds;

use crate::common::keyed::{keyed, limit, push_one, running};
use crate::common::{TestDb, fetch_options, on_database, record, seeds};
use crate::limits_used::{SLOTS, run};

const PARKED: u64 = 10_000;

/// Keys that are parked because none of their items may run. Their items are gone by now.
async fn park(t: &TestDb, q: &Queue) {
    limit(t, q, "z*", running(0)).await;
    let keys: Vec<u64> = (0..PARKED).collect();
    for keys in keys.chunks(2_000) {
        t.run(async |tr| {
            for n in keys {
                let key = format!("z{n:05}").into_bytes();
                let parked = pack(&(0, Bytes::from(key.as_slice()), *n, Bytes::from(key.as_slice())));
                tr.set(&record(q, "listed", &pack(&(Bytes::from(key.as_slice()),))), b"");
                tr.set(&record(q, "parked", &parked), b"");
            }
            Ok(())
        })
        .await;
    }
}

/// Changes a rule that has nothing to do with any key.
async fn change(t: &TestDb, q: &Queue) {
    limit(t, q, "other", Limits::default().with_weight(std::num::NonZeroU32::MIN)).await;
}

/// Whether parked keys are still to be looked at.
async fn is_pending(t: &TestDb, q: &Queue) -> bool {
    let rules = t.records(q, "rules").await;
    rules.iter().any(|(_, value)| value.len() > 10) || !t.records(q, "rules-pending").await.is_empty()
}

#[test]
fn ends_of_items_do_not_conflict_with_looks_at_parked_keys_after_a_change_of_the_rules() {
    let _bounds = Bounds::default().with("rules-page", 50).enter();
    for seed in seeds(2) {
        on_database(async |t| {
            let q = keyed(t);
            limit(t, &q, "", running(u32::try_from(SLOTS).unwrap())).await;
            park(t, &q).await;
            change(t, &q).await;
            let keys: Vec<_> = (0..200).map(|at| format!("k{at}")).collect();
            let Some(seen) = run(t, &q, &keys, seed).await else { return };
            println!("seed {seed}: {seen:?}");
            assert!(seen.ends > 100, "{seen:?}");
            assert!(20 * seen.conflicts_of_ends <= seen.ends, "{seen:?}");
        });
    }
}

#[test]
fn the_first_lease_after_a_change_of_the_rules_does_not_wait_for_parked_keys() {
    let _bounds = Bounds::default().with("rules-page", 50).enter();
    on_database(async |t| {
        let q = keyed(t);
        park(t, &q).await;
        change(t, &q).await;
        push_one(t, &q, "a").await;
        let mut session = t.session(&q);
        let mut approach = Approach::Front;
        let fetched =
            session.fetch(&t.db, &mut fetch_options(1, 30_000_000, &mut approach, false)).await.unwrap();
        assert!(fetched.got.is_some());
        assert!(fetched.attempts.begun <= 2, "{:?}", fetched.attempts);
        assert!(is_pending(t, &q).await, "the test is to have more keys than that");
        // Fetches that find nothing else look at all of them, each at a bounded number.
        let mut fetches = 0;
        while is_pending(t, &q).await {
            let fetched =
                session.fetch(&t.db, &mut fetch_options(1, 30_000_000, &mut approach, false)).await.unwrap();
            assert!(fetched.got.is_none());
            fetches += 1;
        }
        assert!((2..5).contains(&fetches), "{fetches}");
        assert_eq!(t.records(&q, "parked").await.len(), PARKED as usize);
    });
}

/// Two processes do not look at the same keys.
#[test]
fn one_process_looks_at_parked_keys_and_another_goes_on_when_it_has_stopped() {
    let _bounds = Bounds::default().with("rules-page", 50).with("rules-pause", 2_000_000).enter();
    on_database(async |t| {
        let q = keyed(t);
        park(t, &q).await;
        change(t, &q).await;
        push_one(t, &q, "a").await;
        let mut approach = Approach::Front;
        let (mut one, mut other) = (t.session(&q), t.session(&q));
        // It looks at a page, and then has something else to do.
        let options = &mut fetch_options(1, 30_000_000, &mut approach, false);
        assert!(one.fetch(&t.db, options).await.unwrap().got.is_some());
        let fetched = other.fetch(&t.db, options).await.unwrap();
        assert!(fetched.got.is_none() && is_pending(t, &q).await);
        let again = fetched.look_again_in.expect("it may have to go on");
        t.until_past(t.version().await + u64::try_from(again.as_micros()).unwrap()).await;
        while is_pending(t, &q).await {
            assert!(other.fetch(&t.db, options).await.unwrap().got.is_none());
        }
    });
}

/// An earlier version wrote behind the stamp in `rules` where the next look begins.
#[test]
fn a_look_at_parked_keys_that_an_earlier_version_began_is_finished() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "z", running(0)).await;
        push_one(t, &q, "z").await;
        let mut session = t.session(&q);
        assert!(crate::common::keyed::fetch(t, &mut session, 1).await.is_none());
        let parked = t.records(&q, "parked").await;
        assert_eq!(parked.len(), 1);
        limit(t, &q, "z", Limits::default()).await;
        let rules = t.records(&q, "rules").await[0].1[..10].to_vec();
        t.run(async |tr| {
            let next = record(&q, "parked", &parked[0].0);
            tr.set(&record(&q, "rules", b""), &[rules.as_slice(), next.as_slice()].concat());
            tr.clear(&record(&q, "rules-pending", b""));
            Ok(())
        })
        .await;
        assert!(crate::common::keyed::fetch(t, &mut t.session(&q), 1).await.is_some());
        assert!(crate::common::keyed::fetch(t, &mut t.session(&q), 1).await.is_none());
        assert!(!is_pending(t, &q).await);
    });
}
