//! Queues with partitions: keys, order within the bound, changes while the queue is in use, and everything that can become of an item.

use std::collections::BTreeSet;
use std::time::Duration;

use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::{
    Approach, AtLeast, Failure, ItemId, ItemOutcome, Kind, Movable, Mover, NewItem, Packing, Partitions,
    Pause, PushEffect, PushError, PushOptions, Queue, QueueError, RetryPolicy, from_millis,
};

use crate::common::{Rng, TestDb, fetch_options, k, later, on_database, payloads, rules, sweeper};

/// Ten minutes in versions: no lease runs out.
const LONG: u64 = 600_000_000;

/// Longer than any test takes.
const LOOSE: Duration = Duration::from_hours(1);

impl TestDb {
    async fn divide(&self, queue: &Queue, count: usize, max_disorder: Duration) -> bool {
        let to = Partitions::new(count, max_disorder).unwrap();
        self.run(async |tr| queue.set_partitions(tr, to).await).await
    }

    /// Pushes each payload in a transaction of its own, all by one session.
    async fn push_each(&self, queue: &Queue, payloads: &[&str]) -> Vec<ItemId> {
        let (mut session, mut ids) = (self.session(queue), Vec::new());
        for payload in payloads {
            let pushed = session.push(&self.db, &[payload]).await.unwrap();
            ids.extend(pushed.each().filter_map(|item| item.id));
        }
        ids
    }

    async fn delete(&self, queue: &Queue) {
        self.run(async |tr| {
            queue.delete(tr);
            Ok(())
        })
        .await;
    }

    async fn ready_ids(&self, queue: &Queue) -> Vec<ItemId> {
        self.run(async |tr| queue.list(tr).await).await.into_iter().map(|item| item.id).collect()
    }
}

fn partitions_of(ids: &[ItemId]) -> BTreeSet<u8> {
    ids.iter().map(ItemId::partition).collect()
}

#[test]
fn items_lie_in_their_partitions_and_keep_their_ids() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["plain"]).await;
        assert!(t.divide(&q, 3, LOOSE).await);
        let ids = t.push_each(&q, &["a", "b", "c", "d", "e", "f"]).await;
        assert_eq!(partitions_of(&ids), BTreeSet::from([0, 1, 2]), "a session uses each in turn");
        // As the tuple layer has them.
        let name = Bytes::from(&b"q"[..]);
        for i in [1, 2] {
            let before = pack(&(name.clone(), Bytes::from(&b"part"[..]), i64::from(i)));
            let keys: Vec<_> =
                t.rows().await.into_iter().filter(|(key, _)| key.starts_with(&before)).collect();
            assert_eq!(keys.len(), ids.iter().filter(|id| id.partition() == i).count());
        }
        let listed = t.run(async |tr| q.list(tr).await).await;
        assert_eq!(payloads(&listed), ["plain", "a", "b", "c", "d", "e", "f"]);
        assert_eq!(listed[1..].iter().map(|item| item.id.clone()).collect::<Vec<_>>(), ids);
        for (id, item) in ids.iter().zip(&listed[1..]) {
            assert_eq!(t.run(async |tr| q.item(tr, id).await).await.as_ref(), Some(item));
            assert_eq!(id.to_string().parse(), Ok(id.clone()));
        }
        assert_eq!(t.len(&q).await, 7);
        assert_eq!(t.run(async |tr| q.oldest(tr).await).await, Some(listed[0].id.clone()));
        let page = t.run(async |tr| q.peek_after(tr, Some(&ids[1]), k(3)).await).await;
        assert_eq!(payloads(&page), ["c", "d", "e"]);
        assert!(t.run(async |tr| q.compare_counters(tr).await).await.is_right());
        assert!(t.run(async |tr| q.unfinished(tr).await).await.ready);
        let popped = t.run(async |tr| q.pop_k(tr, k(4)).await).await;
        assert_eq!(payloads(&popped.items), ["plain", "a", "b", "c"]);
        assert_eq!((t.len(&q).await, t.list(&q).await.len()), (3, 3));
    });
}

#[test]
fn a_queue_without_partitions_keeps_its_bytes() {
    on_database(async |t| {
        let q = t.queue("q");
        assert!(!t.divide(&q, 1, LOOSE).await, "it is one already");
        t.push(&q, &["a"]).await;
        let keys: Vec<_> = t.records(&q, "partitions").await;
        assert!(keys.is_empty());
        assert_eq!(t.run(async |tr| q.partitions(tr).await).await, None);
    });
}

#[test]
fn only_a_fifo_queue_has_partitions() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Recipe(Packing::Raw));
        let tr = t.db.create_trx().unwrap();
        let refused = q.set_partitions(&tr, Partitions::new(2, LOOSE).unwrap()).await.unwrap_err();
        assert!(matches!(refused, QueueError::NotDivisible { .. }), "{refused}");
        // The settings alone make no queue.
        let q = t.queue("fifo");
        t.divide(&q, 2, LOOSE).await;
        assert!(!t.run(async |tr| q.exists(tr).await).await);
        assert_eq!(t.run(async |tr| kvqueue_queue::queues(tr, &t.prefix).await).await, [] as [Vec<u8>; 0]);
    });
}

#[test]
fn an_item_waits_for_the_items_before_it_in_its_partition() {
    on_database(async |t| {
        let q = t.queue("q");
        assert!(t.divide(&q, 3, LOOSE).await);
        let ids = t.push_each(&q, &["a", "b", "c", "d", "e", "f", "g"]).await;
        for (at, id) in ids.iter().enumerate() {
            let before = ids[..at].iter().filter(|other| other.partition() == id.partition()).count();
            let waiting = t.run(async |tr| q.waiting(tr, id).await).await.unwrap();
            assert_eq!(waiting.items_before, AtLeast { counted: before, is_all: true }, "{id}");
        }
    });
}

#[test]
fn the_last_item_is_that_of_all_partitions() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 3, LOOSE).await;
        t.push_each(&q, &["a", "b", "c", "d", "e", "f"]).await;
        let (mut session, mut approach) = (t.session(&q), Approach::default());
        let mut found = Vec::new();
        for _ in 0..6 {
            let mut take = fetch_options(1, LONG, &mut approach, false).with_last(true);
            found.extend(payloads(session.fetch(&t.db, &mut take).await.unwrap().got.unwrap().items()));
        }
        assert_eq!(found, ["f", "e", "d", "c", "b", "a"]);
    });
}

#[test]
fn a_frozen_queue_is_not_divided() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 2, LOOSE).await;
        let frozen = Pause { at: from_millis(1), frozen: true, reason: String::new() };
        t.run(async |tr| {
            q.pause(tr, &frozen);
            Ok(())
        })
        .await;
        assert!(!t.divide(&q, 2, LOOSE).await, "nothing is to be changed");
        let tr = t.db.create_trx().unwrap();
        let refused = q.set_partitions(&tr, Partitions::new(3, LOOSE).unwrap()).await.unwrap_err();
        assert!(matches!(refused, QueueError::Frozen { .. }), "{refused}");
    });
}

#[test]
fn a_fetch_finds_the_items_of_a_queue_that_was_divided_a_moment_ago() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        let mut take = async || session.take(&t.db, k(10)).await.unwrap().got.len();
        // From here on it knows for a tenth of a second that there are no partitions.
        assert_eq!(take().await, 0);
        t.divide(&q, 2, LOOSE).await;
        assert_eq!(partitions_of(&t.push_each(&q, &["a", "b"]).await).len(), 2);
        // If it found nothing, it would wait for another push.
        assert_eq!([take().await, take().await], [1, 1]);
        t.divide(&q, 8, LOOSE).await;
        assert_eq!(partitions_of(&t.push_each(&q, &["c"; 8]).await).len(), 8);
        for _ in 0..8 {
            assert_eq!(take().await, 1);
        }
    });
}

#[test]
fn a_fetch_stays_within_the_disorder_bound() {
    on_database(async |t| {
        for seed in 0..4 {
            let q = t.queue(format!("{seed}"));
            let max_disorder = Duration::from_millis([1, 5, 20, 100][seed]);
            t.divide(&q, 4, max_disorder).await;
            let mut rng = Rng::new(seed as u64);
            let mut producers: Vec<_> = (0..3).map(|_| t.session(&q)).collect();
            let mut consumers: Vec<_> = (0..4).map(|_| t.session(&q)).collect();
            let (mut pushed, mut fetched) = (0, 0);
            let mut partitions = BTreeSet::new();
            while pushed < 200 || fetched < 200 {
                if pushed < 200 && rng.below(3) > 0 {
                    let payloads = vec!["x"; (rng.below(4) + 1).min(200 - pushed)];
                    pushed += payloads.len();
                    producers[rng.below(3)].push(&t.db, &payloads).await.unwrap();
                    continue;
                }
                let before = t.ready_ids(&q).await;
                let mut approach = Approach::Front;
                let mut take = fetch_options(rng.below(6) + 1, LONG, &mut approach, false);
                let fetch = consumers[rng.below(4)].fetch(&t.db, &mut take).await.unwrap();
                let Some(mut lease) = fetch.got else {
                    assert_eq!(before, []);
                    continue;
                };
                let oldest = before[0].stamp().unwrap().version();
                for item in lease.items() {
                    let version = item.id.stamp().unwrap().version();
                    let ahead = Duration::from_micros(version.saturating_sub(oldest));
                    assert!(ahead <= max_disorder, "{ahead:?} ahead of the oldest item");
                    partitions.insert(item.id.partition());
                }
                assert_eq!(
                    partitions_of(&lease.items().iter().map(|item| item.id.clone()).collect::<Vec<_>>())
                        .len(),
                    1
                );
                fetched += lease.items().len();
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
            assert_eq!((partitions.len(), t.len(&q).await), (4, 0));
        }
    });
}

#[test]
fn without_disorder_items_are_fetched_in_the_order_of_pushes() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 5, Duration::ZERO).await;
        let names: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
        t.push_each(&q, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut fetched = Vec::new();
        let mut session = t.session(&q);
        while fetched.len() < 20 {
            let mut approach = Approach::Front;
            let mut take = fetch_options(7, LONG, &mut approach, false);
            let mut lease = session.fetch(&t.db, &mut take).await.unwrap().got.unwrap();
            fetched.extend(payloads(lease.items()));
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        while fetched.len() < 40 {
            let taken = session.take(&t.db, k(3)).await.unwrap();
            fetched.extend(payloads(&taken.got));
        }
        assert_eq!(fetched, names);
    });
}

#[test]
fn sessions_at_one_queue_soon_stop_to_conflict() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 8, LOOSE).await;
        for _ in 0..30 {
            t.push(&q, &["x"; 800]).await;
        }
        let fetch_all = async |n: u64| {
            let (mut session, mut conflicts, mut late) = (t.session(&q), 0, 0);
            for fetch in 0..60 {
                let mut approach = Approach::Front;
                let mut take = fetch_options(10, LONG, &mut approach, false);
                let fetched = session.fetch(&t.db, &mut take).await.unwrap();
                conflicts += fetched.attempts.conflicts;
                late += if fetch >= 30 { fetched.attempts.conflicts } else { 0 };
                t.acknowledge(&mut fetched.got.unwrap(), &ItemOutcome::Done).await;
            }
            println!("session {n}: {conflicts} conflicts in 60 fetches, {late} in the last 30");
            late
        };
        let late = futures::future::join_all((0..4).map(fetch_all)).await;
        assert!(late.iter().sum::<u32>() <= 4, "{late:?}");
    });
}

#[test]
fn the_number_of_partitions_changes_while_the_queue_is_in_use() {
    on_database(async |t| {
        let q = t.queue("q");
        let (mut producer, mut consumer) = (t.session(&q), t.session(&q));
        let mut rest = BTreeSet::new();
        let mut fetched = BTreeSet::new();
        let mut pushed_to = Vec::new();
        for (round, count) in [1, 4, 2, 8, 1].into_iter().enumerate() {
            t.divide(&q, count, LOOSE).await;
            // Until everybody knows.
            t.until_past(t.version().await + 100_000).await;
            let mut used = BTreeSet::new();
            for n in 0..24 {
                let name = format!("{round} {n}");
                let pushed = producer.push(&t.db, &[&name]).await.unwrap();
                used.extend(pushed.each().map(|item| item.id.unwrap().partition()));
                rest.insert(name);
            }
            pushed_to.push(used);
            for _ in 0..12 {
                let taken = consumer.take(&t.db, k(1)).await.unwrap();
                fetched.extend(payloads(&taken.got));
            }
        }
        let expected = [1, 4, 2, 8, 1].map(|count| (0..count).collect::<BTreeSet<u8>>());
        assert_eq!(pushed_to, expected);
        // What is in partitions that are no longer pushed to is fetched too, by sessions that have never seen another division.
        let mut late = t.session(&q);
        loop {
            let taken = late.take(&t.db, k(5)).await.unwrap();
            if taken.got.is_empty() {
                break;
            }
            fetched.extend(payloads(&taken.got));
        }
        assert_eq!((fetched, t.len(&q).await), (rest, 0));
        assert_eq!(t.run(async |tr| q.partitions(tr).await).await, Some(Partitions::new(1, LOOSE).unwrap()));
    });
}

#[test]
fn a_push_conflicts_with_a_change_of_its_partitions() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 4, LOOSE).await;
        let push = t.db.create_trx().unwrap();
        q.pusher(&push).push(b"x").await.unwrap();
        // Without the record nobody would look for the item.
        t.delete(&q).await;
        assert_eq!(push.commit().await.unwrap_err().code(), 1020);
        t.divide(&q, 4, LOOSE).await;
        let push = t.db.create_trx().unwrap();
        q.pusher(&push).push(b"x").await.unwrap();
        t.divide(&q, 2, LOOSE).await;
        assert_eq!(push.commit().await.unwrap_err().code(), 1020);
        t.delete(&q).await;
        // A push to a queue without partitions does not.
        let push = t.db.create_trx().unwrap();
        q.pusher(&push).push(b"x").await.unwrap();
        t.divide(&q, 4, LOOSE).await;
        push.commit().await.unwrap();
        // A session that has known of partitions looks at each push.
        let mut session = t.session(&q);
        session.push(&t.db, &["a"]).await.unwrap();
        t.delete(&q).await;
        let pushed = session.push(&t.db, &["b"]).await.unwrap();
        assert_eq!(pushed.each().next().unwrap().id.unwrap().partition(), 0);
        assert_eq!(t.list(&q).await, ["b"]);
    });
}

#[test]
fn items_return_to_their_places_in_their_partitions() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 4, Duration::ZERO).await;
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let ids = t.push_each(&q, &names).await;
        assert_eq!(partitions_of(&ids).len(), 4);
        let outcomes: [&[ItemOutcome]; 4] = [
            &[ItemOutcome::Release],
            &[ItemOutcome::Retry { due: None, failure: Failure::new(from_millis(1), 1, "no") }],
            &[later(1_000)],
            &[ItemOutcome::Dead(Failure::new(from_millis(1), 1, "dead"))],
        ];
        for outcome in outcomes {
            let mut lease = t.lease(&q, 8).await.unwrap();
            assert_eq!(payloads(lease.items()), names);
            t.acknowledge(&mut lease, &outcome[0]).await;
            match &outcome[0] {
                ItemOutcome::Dead(_) => {
                    assert_eq!(t.len(&q).await, 0);
                    let all = q.retry_all_dead(&t.db, &RetryPolicy::default(), None).await.unwrap();
                    assert_eq!(all.moved, names.len());
                }
                ItemOutcome::Retry { due: Some(_), .. } => {
                    t.sweep(&mut sweeper(&q), 2_000, &rules()).await;
                }
                _ => {}
            }
            assert_eq!(t.ready_ids(&q).await, ids, "after {:?}", outcome[0]);
            assert!(t.run(async |tr| q.compare_counters(tr).await).await.is_right());
        }
        // A lease that expires gives them back as well.
        drop(t.lease_for(&q, 8, 1).await.unwrap());
        t.sweep_leases(&q, 1, &rules()).await;
        assert_eq!(t.ready_ids(&q).await, ids);
    });
}

#[test]
fn keys_operations_and_long_payloads_work_in_every_partition() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 3, LOOSE).await;
        let long = "x".repeat(250_000);
        let mut session = t.session(&q);
        for n in 0..6 {
            let options = PushOptions::default().with_idempotency_key(format!("op {n}"));
            let key = format!("key {n}");
            let items =
                [NewItem::new(long.clone()).with_unique(key), NewItem::new("b").with_attribute("k", "v")];
            let first = session.push_items(&t.db, &items, &options).await.unwrap();
            let ids: Vec<_> = first.each().map(|item| item.id.unwrap()).collect();
            // Repeated by a session that knows nothing, after the division has changed.
            t.divide(&q, 2 + n, LOOSE).await;
            let again = t.session(&q).push_items(&t.db, &items, &options).await.unwrap();
            assert!(again.repeated);
            assert_eq!(again.each().map(|item| item.id.unwrap()).collect::<Vec<_>>(), ids);
            let duplicate = t.push_items(&q, &items[..1]).await;
            let found = duplicate.each().next().unwrap();
            assert_eq!((found.effect, found.id.as_ref()), (PushEffect::Duplicate, Some(&ids[0])));
            t.divide(&q, 3, LOOSE).await;
        }
        assert_eq!(partitions_of(&t.ready_ids(&q).await), BTreeSet::from([0, 1, 2]));
        for _ in 0..6 {
            let taken = session.take(&t.db, k(2)).await.unwrap();
            assert_eq!(payloads(&taken.got), [long.as_str(), "b"]);
            assert_eq!(taken.got[1].attribute("k"), Some("v"));
        }
        session.close(&t.db).await.unwrap();
        let left = crate::common::kinds_of_records(t, &q).await;
        let counters = ["nback", "ndone", "npop", "npush", "op", "oplog", "partitions", "token"];
        assert!(left.is_subset(&BTreeSet::from(counters.map(String::from))), "{left:?}");
    });
}

#[test]
fn a_large_push_is_dealt_out_to_all_partitions() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 4, LOOSE).await;
        let names: Vec<String> = (0..1_000).map(|n| format!("{n:04}")).collect();
        let mut session = t.session(&q);
        let options = PushOptions::default().with_idempotency_key("op");
        let items: Vec<_> = names.iter().map(|name| NewItem::new(name.clone())).collect();
        let first = session.push_items(&t.db, &items, &options).await.unwrap();
        let ids: Vec<_> = first.each().map(|item| item.id.unwrap()).collect();
        for i in 0..4 {
            let share = ids.iter().filter(|id| id.partition() == i).count();
            assert!((200..=300).contains(&share), "{share} of 1000 in partition {i}");
        }
        assert_eq!((t.list(&q).await, t.ready_ids(&q).await), (names, ids.clone()));
        let again = t.session(&q).push_items(&t.db, &items, &options).await.unwrap();
        assert!(again.each().map(|item| item.id.unwrap()).eq(ids));
    });
}

#[test]
fn a_second_pusher_is_refused_whatever_the_partition() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 3, LOOSE).await;
        let mut used = BTreeSet::new();
        while used.len() < 3 {
            let tr = t.db.create_trx().unwrap();
            let items = [NewItem::new("a").with_due(from_millis(9)), NewItem::new("b")];
            let placed = q.pusher(&tr).push_items(&items, &PushOptions::default()).await.unwrap();
            let refused = q.pusher(&tr).push(b"c").await.unwrap_err();
            let second = matches!(refused, PushError::Queue(QueueError::SecondPusher { .. }));
            assert!(second, "{refused:?}");
            used.extend(placed.items(Some([1; 10])).map(|item| item.id.unwrap().partition()));
            t.until_past(t.version().await).await;
        }
    });
}

#[test]
fn items_are_moved_to_and_from_partitions() {
    on_database(async |t| {
        let (divided, plain) = (t.queue("divided"), t.queue("plain"));
        t.divide(&divided, 3, LOOSE).await;
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        t.push_each(&divided, &names).await;
        for (from, to) in [(&divided, &plain), (&plain, &divided)] {
            let mut mover = Mover::new(from.clone(), to.clone(), Movable::Ready).unwrap();
            let policy = RetryPolicy::default();
            let mut moved = 0;
            while let Some(page) = mover.page(&t.db, &policy, k(2)).await.unwrap() {
                moved += page.moved;
            }
            mover.close(&t.db, &policy).await.unwrap();
            assert_eq!(
                (moved, t.len(from).await, t.list(to).await),
                (7, 0, names.map(String::from).to_vec())
            );
        }
    });
}

#[test]
fn foreign_programs_go_on_with_partition_0() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 2, LOOSE).await;
        // As the Erlang program pushes.
        let name = Bytes::from(&b"q"[..]);
        let tr = t.db.create_trx().unwrap();
        for user in 0..2 {
            crate::interop::erlang_push(t, &tr, b"q", user, b"foreign");
        }
        tr.commit().await.unwrap();
        t.push_each(&q, &["a", "b"]).await;
        let taken = t.session(&q).take(&t.db, k(9)).await.unwrap();
        let more = t.session(&q).take(&t.db, k(9)).await.unwrap();
        let mut all = payloads(&[taken.got, more.got].concat());
        all.sort_unstable();
        assert_eq!(all, ["a", "b", "foreign", "foreign"]);
        assert_eq!(t.len(&q).await, 0);
        // And as it pops: the first value, in a range of its own.
        t.push_each(&q, &["c", "d"]).await;
        let vals = pack(&(name, Bytes::from(&b"val"[..])));
        let rows = t.rows().await;
        assert_eq!(rows.iter().filter(|(key, _)| key.starts_with(&vals)).count(), 1);
    });
}

#[test]
fn an_idle_fetch_is_woken_by_a_push_to_any_partition() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 4, LOOSE).await;
        let mut consumer = t.session(&q);
        for round in 0..8 {
            let taken = consumer.take(&t.db, k(1)).await.unwrap();
            assert!(taken.got.is_empty(), "round {round}");
            let watch = taken.watch.unwrap();
            t.push_each(&q, &["x"]).await;
            watch.await.unwrap();
            assert_eq!(payloads(&consumer.take(&t.db, k(1)).await.unwrap().got), ["x"]);
        }
    });
}

#[test]
fn suspects_do_not_hold_up_the_other_partitions() {
    on_database(async |t| {
        let q = t.queue("q");
        t.divide(&q, 2, LOOSE).await;
        t.push_each(&q, &["a", "b", "c", "d"]).await;
        // All of them have crashed once.
        drop(t.lease_for(&q, 4, 1).await.unwrap());
        drop(t.lease_for(&q, 4, 1).await.unwrap());
        t.sweep_leases(&q, 2, &rules()).await;
        t.divide(&q, 2, Duration::from_millis(1)).await;
        t.until_past(t.version().await + 100_000).await;
        t.push_each(&q, &["e", "f", "g", "h"]).await;
        let mut session = t.session(&q);
        let (mut leases, mut fetched) = (Vec::new(), Vec::new());
        loop {
            let mut approach = Approach::Front;
            let mut take = fetch_options(4, LONG, &mut approach, false);
            let Some(lease) = session.fetch(&t.db, &mut take).await.unwrap().got else { break };
            fetched.extend(payloads(lease.items()));
            leases.push(lease);
        }
        // One suspect is on a lease. The other suspects wait; younger items do not.
        fetched.sort_unstable();
        assert_eq!(fetched.len(), 5, "{fetched:?}");
        assert_eq!(fetched[1..], ["e", "f", "g", "h"]);
    });
}
