//! Items that expire while something else is done about them: of two transactions that overlap one wins, and the other sees what it did.

use kvqueue_queue::{
    ItemChange, ItemId, ItemOutcome, ItemState, Kind, NewItem, OnExpiry, Queue, RetryPolicy, Swept,
    from_millis,
};

use crate::common::gate::overlaps;
use crate::common::{KINDS, TestDb, k, on_database, rules, sweeper};

const HOUR: u64 = 3_600_000_000;
/// When the items expire.
const EXPIRES: u64 = 10;

/// The queue of one case, with an item that can expire.
async fn queue_of_one(t: &TestDb, case: &str, kind: Kind) -> (Queue, ItemId) {
    let q = t.queue_of(case, kind);
    t.push_items(&q, &[NewItem::new("a").with_unique("u").with_expiry(from_millis(EXPIRES))]).await;
    let view = t.run(async |tr| q.view(tr, ItemState::Ready, None, k(9)).await).await;
    let id = view.items[0].id.clone();
    (q, id)
}

async fn sweep(t: &TestDb, q: &Queue, on_expiry: OnExpiry) -> Swept {
    t.sweep(&mut sweeper(q), EXPIRES, &rules().with_on_expiry(on_expiry)).await
}

async fn state(t: &TestDb, q: &Queue, id: &ItemId) -> Option<ItemState> {
    t.run(async |tr| q.view_item(tr, id).await).await.map(|view| view.state)
}

/// Each kind of queue, each end of an item that expires, and whether the expiry is the transaction that arrives last.
fn cases() -> impl Iterator<Item = (String, Kind, OnExpiry, bool)> {
    let ends = [OnExpiry::Drop, OnExpiry::Dead];
    KINDS.into_iter().enumerate().flat_map(move |(n, kind)| {
        ends.into_iter().flat_map(move |on_expiry| {
            [true, false].map(|expiry_is_late| {
                let case = format!("{n} {kind} {on_expiry:?}, expiry is late: {expiry_is_late}");
                (case, kind, on_expiry, expiry_is_late)
            })
        })
    })
}

/// The state of an item after its expiry.
fn ended(on_expiry: OnExpiry) -> Option<ItemState> {
    (on_expiry == OnExpiry::Dead).then_some(ItemState::Dead)
}

#[test]
fn of_a_fetch_and_an_expiry_at_the_same_time_one_wins() {
    on_database(async |t| {
        for (case, kind, on_expiry, expiry_is_late) in cases() {
            let (q, id) = queue_of_one(t, &case, kind).await;
            let (expire, fetch) = (sweep(t, &q, on_expiry), t.lease_for(&q, 1, HOUR));
            let Some(gate) = t.close_gate() else { return };
            let (conflicted, swept, lease) = if expiry_is_late {
                overlaps(gate, expire, fetch).await
            } else {
                let (conflicted, lease, swept) = overlaps(gate, fetch, expire).await;
                (conflicted, swept, lease)
            };
            let expired = usize::from(!expiry_is_late);
            assert_eq!((conflicted, swept.moved.expired), (true, expired), "{case}");
            assert_eq!(lease.is_some(), expiry_is_late, "{case}");
            let expected = if expiry_is_late { Some(ItemState::Running) } else { ended(on_expiry) };
            assert_eq!(state(t, &q, &id).await, expected, "{case}");
            // One that was fetched and is released expires by the next sweep.
            if let Some(mut lease) = lease {
                t.acknowledge(&mut lease, &ItemOutcome::Release).await;
                // The claim of the sweeper before is over then.
                t.jump(3_000_000);
                assert_eq!(sweep(t, &q, on_expiry).await.moved.expired, 1, "{case}");
                assert_eq!(state(t, &q, &id).await, ended(on_expiry), "{case}");
            }
            let left = ["expiry", "unique"].map(|kind| t.records(&q, kind));
            assert!(futures::future::join_all(left).await.iter().all(Vec::is_empty), "{case}");
        }
    });
}

#[test]
fn of_a_change_of_an_item_and_an_expiry_at_the_same_time_one_wins() {
    on_database(async |t| {
        for (case, kind, on_expiry, expiry_is_late) in cases() {
            for what in ["cancel", "reschedule", "edit"] {
                let case = format!("{what} {case}");
                let (q, id) = queue_of_one(t, &case, kind).await;
                let policy = RetryPolicy::default();
                let change = async {
                    match what {
                        "cancel" => q.cancel_item(&t.db, &policy, &id).await.unwrap(),
                        "edit" => q.edit_item(&t.db, &policy, &id, b"b").await.unwrap(),
                        _ => {
                            // Just before it expires: a later time is refused.
                            let due = Some(from_millis(EXPIRES - 1));
                            q.reschedule_item(&t.db, &policy, &id, due).await.unwrap()
                        }
                    }
                };
                let expire = sweep(t, &q, on_expiry);
                let Some(gate) = t.close_gate() else { return };
                let (conflicted, swept, change) = if expiry_is_late {
                    overlaps(gate, expire, change).await
                } else {
                    let (conflicted, change, swept) = overlaps(gate, change, expire).await;
                    (conflicted, swept, change)
                };
                assert!(conflicted, "{case}");
                // A cancelled item has ended. Another payload and another time keep no item alive.
                let cancelled = expiry_is_late && what == "cancel";
                assert_eq!(swept.moved.expired, usize::from(!cancelled), "{case}");
                let gone = match (on_expiry, what) {
                    (OnExpiry::Drop, _) => ItemChange::Gone,
                    (OnExpiry::Dead, "edit") => ItemChange::Done(ItemState::Dead),
                    (OnExpiry::Dead, _) => ItemChange::Refused(ItemState::Dead),
                };
                let expected = if expiry_is_late { ItemChange::Done(ItemState::Ready) } else { gone };
                assert_eq!(change, expected, "{case}");
                let left = if cancelled { None } else { ended(on_expiry) };
                assert_eq!(state(t, &q, &id).await, left, "{case}");
                assert!(t.records(&q, "expiry").await.is_empty(), "{case}");
            }
        }
    });
}
