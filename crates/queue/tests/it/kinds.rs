//! What the layer does, with queues of every kind.

use kvqueue_queue::{Approach, Failure, ItemOutcome, Kind, Lease, Queue, RetryPolicy, Session, from_millis};

use crate::common::{KINDS, Rng, TestDb, fetch_options, k, on_database, payloads};

/// Thirty seconds in versions.
const LONG: u64 = 30_000_000;

/// Runs a test with a queue of every kind.
fn of_every_kind(mut test: impl AsyncFnMut(&TestDb, Queue)) {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            println!("{kind:?}");
            test(t, t.queue_of(format!("q{i}"), kind)).await;
        }
    });
}

async fn lease(t: &TestDb, session: &mut Session, n: usize) -> Option<Lease> {
    let mut approach = Approach::Front;
    let mut take = fetch_options(n, LONG, &mut approach, false);
    session.fetch(&t.db, &mut take).await.unwrap().got
}

async fn acknowledge(t: &TestDb, lease: &mut Lease, outcomes: &[(usize, ItemOutcome)]) {
    lease.acknowledge(&t.db, &RetryPolicy::default(), outcomes).await.unwrap();
}

#[test]
fn items_are_peeked_and_taken_in_order() {
    of_every_kind(async |t, q| {
        t.fill(&q, &["a", "b", "c", "d"]).await;
        assert_eq!(t.list(&q).await, ["a", "b", "c", "d"]);
        assert_eq!(payloads(&t.run(async |tr| q.peek_k(tr, k(2)).await).await), ["a", "b"]);
        let mut session = t.session(&q);
        let taken = session.take(&t.db, k(2)).await.unwrap();
        assert_eq!((payloads(&taken.got), taken.attempts.begun), (vec!["a".into(), "b".into()], 1));
        assert_eq!(t.len(&q).await, 2);
        let popped = t.run(async |tr| q.pop_k(tr, k(3)).await).await;
        assert_eq!((payloads(&popped.items), popped.short), (vec!["c".into(), "d".into()], true));
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn a_fetch_of_the_last_item_leaves_the_others_in_order() {
    of_every_kind(async |t, q| {
        t.fill(&q, &["a", "b", "c", "d"]).await;
        let mut session = t.session(&q);
        let mut fetch = async |last| {
            let mut approach = Approach::default();
            let mut take = fetch_options(1, LONG, &mut approach, false).with_last(last);
            let lease = session.fetch(&t.db, &mut take).await.unwrap().got;
            lease.map_or_else(Vec::new, |lease| payloads(lease.items())).concat()
        };
        // The keys of a keyed queue take turns anyway.
        let expected = if q.kind() == Kind::Keyed { "abcd" } else { "dacb" };
        let mut found = String::new();
        for last in [true, false, true, true, true] {
            found += &fetch(last).await;
        }
        assert_eq!(found, expected);
    });
}

#[test]
fn an_idle_take_is_woken_by_a_push() {
    of_every_kind(async |t, q| {
        let mut session = t.session(&q);
        let watch = session.take(&t.db, k(2)).await.unwrap().watch.unwrap();
        t.push_by(&q, 1, "a").await;
        watch.await.unwrap();
        assert_eq!(payloads(&session.take(&t.db, k(2)).await.unwrap().got), ["a"]);
    });
}

#[test]
fn items_have_their_own_outcomes_and_released_ones_keep_their_places() {
    of_every_kind(async |t, q| {
        t.fill(&q, &["a", "b", "c", "d", "e"]).await;
        let mut session = t.session(&q);
        let mut first = lease(t, &mut session, 4).await.unwrap();
        assert_eq!(payloads(first.items()), ["a", "b", "c", "d"]);
        assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["e".to_owned()], 1));
        let failure = Failure::new(from_millis(7), 1, "no");
        let retry = ItemOutcome::Retry { due: None, failure: failure.clone() };
        let dead = ItemOutcome::Dead(failure);
        acknowledge(t, &mut first, &[(0, retry), (1, ItemOutcome::Done)]).await;
        acknowledge(t, &mut first, &[(2, ItemOutcome::Release), (3, dead)]).await;
        assert!(first.is_acknowledged());
        assert_eq!((t.list(&q).await, t.len(&q).await), (["a", "c", "e"].map(String::from).to_vec(), 3));
        let again = lease(t, &mut session, 9).await.unwrap();
        assert_eq!(payloads(again.items()), ["a", "c", "e"]);
        assert_eq!(again.items().iter().map(|item| item.attempt).collect::<Vec<_>>(), [2, 1, 1]);
    });
}

#[test]
fn released_items_and_their_records_are_unchanged() {
    of_every_kind(async |t, q| {
        t.fill(&q, &["a", "b", "c"]).await;
        let items = async || t.run(async |tr| q.list(tr).await).await;
        let before = (items().await, t.rows().await.len());
        let mut session = t.session(&q);
        let mut all = lease(t, &mut session, 9).await.unwrap();
        assert_eq!(all.items(), before.0);
        let back: Vec<_> = all.open().map(|index| (index, ItemOutcome::Release)).collect();
        acknowledge(t, &mut all, &back).await;
        // Nothing is left of it but two more counters, and the virtual time of keys.
        let more = if q.kind() == Kind::Keyed { 3 } else { 2 };
        assert_eq!((items().await, t.rows().await.len()), (before.0, before.1 + more));
    });
}

#[test]
fn a_spread_window_starts_at_the_queues_fetch_end() {
    of_every_kind(async |t, q| {
        let names: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
        t.fill(&q, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut approach = Approach::default();
        let (mut session, mut all) = (t.session(&q), Vec::new());
        let mut take = fetch_options(4, 0, &mut approach, false);
        let first = session.take_with(&t.db, &mut take).await.unwrap().got;
        assert_eq!(payloads(&first), names[..4]);
        // Two sessions that read before either commits: the loser spreads.
        let mut other = t.session(&q);
        let mut wide = Approach::default();
        while all.len() < 36 {
            let mut one = fetch_options(4, 0, &mut approach, false);
            let mut two = fetch_options(4, 0, &mut wide, false);
            let (one, two) =
                tokio::join!(session.take_with(&t.db, &mut one), other.take_with(&t.db, &mut two));
            for items in [one.unwrap().got, two.unwrap().got] {
                let run = payloads(&items);
                assert!(run.is_sorted(), "{run:?}");
                all.extend(run);
            }
        }
        all.sort_unstable();
        assert_eq!(all, names[4..]);
        assert_eq!(t.len(&q).await, 0);
    });
}

/// A recipe's push may land between other items, not only behind them. A take must not fail because
/// of it.
#[test]
fn pushes_make_no_take_conflict() {
    of_every_kind(async |t, q| {
        const ITEMS: usize = 60;
        let mut rng = Rng::new(7);
        let (mut session, mut conflicts, mut taken) = (t.session(&q), 0, 0);
        let push = async |n: usize, priority: i64| {
            t.push_by(&q, priority, &n.to_string()).await;
        };
        let produce = async {
            for n in 0..ITEMS / 3 {
                let priority = rng.below(5) as i64;
                tokio::join!(push(n, priority), push(n, priority + 1), push(n, priority - 1));
            }
        };
        let consume = async {
            while taken < ITEMS {
                let got = session.take(&t.db, k(50)).await.unwrap();
                taken += got.got.len();
                conflicts += got.attempts.conflicts;
                if let Some(watch) = got.watch {
                    watch.await.unwrap();
                }
            }
        };
        tokio::join!(produce, consume);
        // A push of unknown outcome is repeated, and may then have happened twice.
        assert!(taken >= ITEMS, "{taken} items");
        // A fetch of a keyed queue conflicts once for each wave of pushes that it overlaps, and then leaves the key in the index.
        let most = if q.kind() == Kind::Keyed { 10 } else { 0 };
        assert!(conflicts <= most, "{conflicts} conflicts");
    });
}

#[test]
fn deleting_a_queue_clears_all_its_records() {
    of_every_kind(async |t, q| {
        t.fill(&q, &["a", "b", "c", "d"]).await;
        let mut session = t.session(&q);
        let mut held = lease(t, &mut session, 3).await.unwrap();
        let failure = Failure::new(from_millis(7), 1, "no");
        let later = ItemOutcome::Retry { due: Some(from_millis(1 << 40)), failure: failure.clone() };
        acknowledge(t, &mut held, &[(0, later), (1, ItemOutcome::Dead(failure))]).await;
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        assert_eq!(t.rows().await, []);
    });
}
