//! Moving items from one queue to another.

use fdb_embedded::Faults;
use kvqueue_queue::{
    Counts, Kind, MAX_KEY, Movable, MoveCounts, MoveError, Mover, NewItem, PAYLOAD_CEILING, PushOptions,
    Queue, RetryPolicy, State, StoredItem, from_millis,
};

use crate::batches::{NOW, finish, new};
use crate::common::{KINDS, TestDb, k, kinds_of_records, on_database};
use crate::restored::{item, plain, restore, stored, unique};
use crate::unknown::scripts;

/// Moves all items, `n` at a time. Returns the counts.
async fn move_all(t: &TestDb, from: &Queue, to: &Queue, what: Movable, page: usize) -> MoveCounts {
    let policy = RetryPolicy::default();
    let mut mover = Mover::new(from.clone(), to.clone(), what).unwrap();
    let mut all = MoveCounts::default();
    while let Some(moved) = mover.page(&t.db, &policy, k(page)).await.unwrap() {
        all.moved += moved.moved;
        all.refused += moved.refused;
        all.unreadable += moved.unreadable;
    }
    mover.close(&t.db, &policy).await.unwrap();
    all
}

async fn counts(t: &TestDb, queue: &Queue) -> Counts {
    t.run(async |tr| queue.counts(tr).await).await
}

fn moved(moved: usize, refused: usize) -> MoveCounts {
    MoveCounts { moved, refused, unreadable: 0 }
}

/// The items in the order in which a queue gives them out that got them in this order.
fn taken(kind: Kind, mut items: Vec<StoredItem>) -> Vec<StoredItem> {
    if matches!(kind, Kind::Priority(kvqueue_queue::End::Max, _)) {
        items.reverse();
    }
    items
}

#[test]
fn ready_items_are_moved_with_all_their_records() {
    on_database(async |t| {
        let long = "x".repeat(250_000);
        let items =
            ["a", &long, "b", "c", "d"].map(|payload| unique(item(payload, State::Ready), &payload[..1]));
        for (i, from_kind) in KINDS.into_iter().enumerate() {
            for (j, to_kind) in KINDS.into_iter().enumerate() {
                let (from, to) =
                    (t.queue_of(format!("f{i}{j}"), from_kind), t.queue_of(format!("t{i}{j}"), to_kind));
                restore(t, &from, &items).await;
                let order = plain(stored(t, &from, 9).await);
                assert!(order == taken(from_kind, items.to_vec()));
                assert_eq!(move_all(t, &from, &to, Movable::Ready, 2).await, moved(5, 0));
                let there = plain(stored(t, &to, 9).await);
                assert!(there == taken(to_kind, order), "{from_kind:?} to {to_kind:?}");
                assert_eq!((counts(t, &from).await.ready, counts(t, &to).await.ready), (0, 5));
                let mut left = kinds_of_records(t, &from).await;
                // The next fetch takes the key out of the index.
                left.retain(|kind| {
                    from_kind != Kind::Keyed || !matches!(&**kind, "active" | "listed" | "nactive")
                });
                assert_eq!(left.into_iter().collect::<Vec<_>>(), ["npop", "npush"], "{from_kind:?}");
            }
        }
    });
}

#[test]
fn priorities_are_kept_between_queues_that_have_them() {
    on_database(async |t| {
        let (from, to) = (t.queue_of("from", KINDS[3]), t.queue_of("to", KINDS[5]));
        let of = |payload: &str, priority| StoredItem { priority, ..item(payload, State::Ready) };
        restore(t, &from, &[of("low", -300), of("high", 7), of("middle", 0)]).await;
        move_all(t, &from, &to, Movable::Ready, 100).await;
        assert_eq!(t.list(&to).await, ["high", "middle", "low"]);
    });
}

#[test]
fn moved_dead_letters_become_ready_with_all_attempts_left() {
    on_database(async |t| {
        let (from, to) = (t.queue("from"), t.queue("to"));
        let long = "x".repeat(250_000);
        restore(t, &from, &[item("a", State::Dead), item(&long, State::Dead), item("stays", State::Ready)])
            .await;
        assert_eq!(move_all(t, &from, &to, Movable::Dead, 1).await, moved(2, 0));
        let there = plain(stored(t, &to, 9).await);
        let moved = |payload| {
            let mut item = item(payload, State::Ready);
            (item.meta.attempts, item.meta.crashes) = (0, 0);
            item
        };
        assert!(there == [moved("a"), moved(&long)]);
        assert_eq!((counts(t, &from).await.ready, counts(t, &from).await.dead), (1, 0));
        assert!(t.records(&from, "chunk").await.is_empty() && t.records(&from, "body").await.is_empty());
    });
}

#[test]
fn an_item_whose_unique_key_is_taken_stays_and_blocks_no_other() {
    on_database(async |t| {
        for (i, (what, state)) in
            [(Movable::Ready, State::Ready), (Movable::Dead, State::Dead)].into_iter().enumerate()
        {
            let (from, to) = (t.queue(format!("from{i}")), t.queue(format!("to{i}")));
            restore(t, &to, &[unique(item("there", State::Later(from_millis(9))), "k")]).await;
            let stays = unique(item("stays", state), "k");
            restore(t, &from, &[stays.clone(), item("a", state), item("b", state)]).await;
            assert_eq!(move_all(t, &from, &to, what, 2).await, moved(2, 1));
            assert_eq!(t.list(&to).await, ["a", "b"]);
            assert!(plain(stored(t, &from, 9).await) == [stays.clone()]);
            // Its own key is still its own.
            let again = unique(item("again", State::Ready), "k");
            assert_eq!(restore(t, &from, &[again]).await, usize::from(state == State::Dead));
        }
    });
}

#[test]
fn items_pushed_after_the_move_began_stay() {
    on_database(async |t| {
        let (from, to) = (t.queue("from"), t.queue("to"));
        let policy = RetryPolicy::default();
        t.push(&from, &["a", "b", "c"]).await;
        let mut mover = Mover::new(from.clone(), to.clone(), Movable::Ready).unwrap();
        assert_eq!(mover.page(&t.db, &policy, k(2)).await.unwrap(), Some(moved(2, 0)));
        t.push(&from, &["d"]).await;
        assert_eq!(mover.page(&t.db, &policy, k(2)).await.unwrap(), Some(moved(1, 0)));
        assert_eq!(mover.page(&t.db, &policy, k(2)).await.unwrap(), None);
        assert_eq!((t.list(&from).await, t.list(&to).await.len()), (vec!["d".to_owned()], 3));
    });
}

#[test]
fn a_queue_is_not_moved_to_itself() {
    on_database(async |t| {
        let (fifo, recipe) = (t.queue("q"), t.queue_of("q", KINDS[1]));
        let error = Mover::new(fifo, recipe, Movable::Ready).unwrap_err();
        assert!(matches!(error, MoveError::SameQueue { .. }));
    });
}

#[test]
fn an_item_is_moved_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            for (what, state) in [(Movable::Ready, State::Ready), (Movable::Dead, State::Dead)] {
                let (from, to) =
                    (t.queue(format!("from{i}{what:?}")), t.queue_of(format!("to{i}{what:?}"), KINDS[i % 6]));
                restore(t, &from, &["a", "b", "c"].map(|payload| item(payload, state))).await;
                if !t.install(Faults::script(script.clone())) {
                    return;
                }
                let done = move_all(t, &from, &to, what, 2).await;
                t.end_faults();
                assert_eq!(done, moved(3, 0), "{script:?}");
                let mut there = t.list(&to).await;
                there.sort();
                assert_eq!(there, ["a", "b", "c"], "{script:?}");
                let left = counts(t, &from).await;
                assert_eq!((left.ready, left.dead), (0, 0), "{script:?}");
                assert!(t.records(&from, "token").await.is_empty());
            }
        }
    });
}

#[test]
fn items_popped_during_a_move_are_not_moved() {
    on_database(async |t| {
        let (from, to) = (t.queue("from"), t.queue("to"));
        let all: Vec<String> = (0..600).map(|n| format!("{n:03}")).collect();
        t.push(&from, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let pops = async {
            let mut popped = Vec::new();
            let mut session = t.session(&from);
            while popped.len() < 200 {
                let items = session.take(&t.db, k(3)).await.unwrap().got;
                if items.is_empty() {
                    break;
                }
                popped.extend(crate::common::payloads(&items));
            }
            popped
        };
        let (popped, done) = futures::future::join(pops, move_all(t, &from, &to, Movable::Ready, 7)).await;
        let mut seen = t.list(&to).await;
        assert_eq!(seen.len(), done.moved);
        seen.extend(popped);
        seen.extend(t.list(&from).await);
        seen.sort();
        assert_eq!(seen, all);
        assert_eq!(t.len(&from).await, 0);
    });
}

#[test]
fn the_largest_item_is_moved() {
    on_database(async |t| {
        let options = PushOptions::default().with_max_payload(PAYLOAD_CEILING);
        let largest = NewItem::new(vec![7; PAYLOAD_CEILING]).with_unique(vec![0; MAX_KEY]);
        for (i, kind) in KINDS.into_iter().enumerate() {
            let (from, to) = (t.queue_of(format!("f{i}"), kind), t.queue_of(format!("t{i}"), kind));
            t.session(&from).push_items(&t.db, std::slice::from_ref(&largest), &options).await.unwrap();
            t.push_by(&from, 0, "small").await;
            assert_eq!(move_all(t, &from, &to, Movable::Ready, 100).await, moved(2, 0), "{kind:?}");
            let there = stored(t, &to, 9).await;
            assert!(there.iter().any(|(_, item)| item.payload == largest.payload), "{kind:?}");
            assert!(t.records(&from, "chunk").await.is_empty());
        }
    });
}

#[test]
fn a_member_of_a_batch_does_not_move_behind_another_prefix() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let elsewhere = Queue::new(&[t.prefix.as_slice(), b"other/"].concat(), b"work").unwrap();
        let id = t.new_batch(&home, &new()).await;
        t.push_members(&work, &id, 2).await;
        t.push(&work, &["not a member"]).await;
        t.commit_batch(&home, &id).await;
        assert_eq!(move_all(t, &work, &elsewhere, Movable::Ready, 9).await, moved(1, 2));
        assert_eq!(t.list(&elsewhere).await, ["not a member"]);
        // A queue behind the same prefix gets the members.
        let neighbour = t.queue("neighbour");
        assert_eq!(move_all(t, &work, &neighbour, Movable::Ready, 9).await, moved(2, 0));
        finish(t, &neighbour, 2).await;
        assert_eq!(t.close(&home, NOW).await.len(), 1);
    });
}
