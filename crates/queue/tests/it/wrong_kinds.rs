//! A queue opened with another kind than its items were pushed with: nothing is moved or cleared, and the error says so.

use kvqueue_queue::{
    Approach, DeadLetterError, End, Failure, ItemOutcome, Kind, NewItem, Packing, PushOptions, Queue,
    QueueError, RetryPolicy, from_millis,
};

use crate::common::{KINDS, SHORT, TestDb, fetch_options, k, on_database, rules, sweeper};

/// The kinds that `kind` can be mistaken for.
fn others(kind: Kind) -> impl Iterator<Item = Kind> {
    let of = [Kind::Fifo, Kind::Recipe(Packing::Raw), Kind::Priority(End::Min, Packing::Raw)];
    of.into_iter().filter(move |other| other.to_string() != kind.to_string())
}

fn item(payload: &str) -> NewItem {
    NewItem::new(payload.to_owned()).with_unique(b"u".to_vec()).with_attribute("a", "b")
}

fn is_wrong_kind(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        matches!(
            error.downcast_ref::<QueueError>(),
            Some(QueueError::WrongKind { .. } | QueueError::OtherKind { .. })
        ) && error.to_string().contains("; set ")
    })
}

/// Opens the queue as each kind that it is not, and sees a sweep fail that leaves all as it was.
async fn sweep_as_others(t: &TestDb, queue: &Queue, now: u64) {
    let before = t.rows().await;
    for wrong in others(queue.kind()) {
        let wrong = t.queue_of("q", wrong);
        let swept = sweeper(&wrong).sweep(&t.db, &|| from_millis(now), &rules()).await.unwrap();
        assert!(swept.moved.is_nothing(), "{:?} as {:?}: {:?}", queue.kind(), wrong.kind(), swept.moved);
        assert!(is_wrong_kind(&swept.trouble.unwrap()));
        assert_eq!(t.rows().await, before);
    }
}

#[test]
fn a_sweeper_of_the_wrong_kind_clears_no_side_records() {
    for kind in KINDS {
        on_database(async |t| {
            let q = t.queue_of("q", kind);
            t.push_items(&q, &[item(&"x".repeat(250_000)), NewItem::new("second")]).await;
            sweep_as_others(t, &q, 0).await;
            assert_eq!(t.list(&q).await.len(), 2);
        });
    }
}

#[test]
fn a_queue_with_items_of_another_kind_is_refused() {
    for kind in KINDS {
        for other in others(kind) {
            for state in ["ready", "later", "dead"] {
                // Waiting items and dead letters do not prevent pushes to a FIFO queue: consumers of the other kind find its items.
                if state == "ready" || other != Kind::Fifo {
                    on_database(async |t| refused_in(t, kind, other, state).await);
                }
            }
        }
    }
}

/// Whether this, or a cause of it, says of which kind the items are.
fn names(error: &dyn std::error::Error, kind: Kind) -> bool {
    let text = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    text.collect::<String>().contains(&format!("it has items of kind {kind}"))
}

async fn refused_in(t: &TestDb, kind: Kind, other: Kind, state: &str) {
    let (q, wrong) = (t.queue_of("q", kind), t.queue_of("q", other));
    let due = (state == "later").then_some(5);
    t.push_items(
        &q,
        &[{
            let mut item = NewItem::new("first");
            item.due = due.map(from_millis);
            item
        }],
    )
    .await;
    if state == "dead" {
        let mut lease = t.lease(&q, 1).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
    }
    let before = t.rows().await;
    let mut session = t.session(&wrong);
    let refused = session.push_items(&t.db, &[NewItem::new("x")], &PushOptions::default()).await;
    assert!(names(&refused.unwrap_err(), kind), "{kind} as {other}, {state}");
    let tr = t.db.create_trx().unwrap();
    let mut pusher = wrong.pusher(&tr).seeded([1; 16]);
    let refused = pusher.push_items(&[NewItem::new("x")], &PushOptions::default()).await;
    assert!(names(&refused.unwrap_err(), kind), "{kind} as {other}, {state}");
    assert!(names(&wrong.check_kind(&tr).await.unwrap_err(), kind));
    if state == "ready" {
        assert!(names(&session.take(&t.db, k(1)).await.unwrap_err(), kind), "{kind} as {other}");
        let mut approach = Approach::default();
        let mut take = fetch_options(1, 1, &mut approach, true);
        assert!(names(&session.fetch(&t.db, &mut take).await.unwrap_err(), kind), "{kind} as {other}");
        assert!(names(&wrong.peek_k(&tr, k(1)).await.unwrap_err(), kind), "{kind} as {other}");
        assert!(names(&wrong.pop_k(&tr, k(1)).await.unwrap_err(), kind), "{kind} as {other}");
        let policy = RetryPolicy::default();
        assert!(names(&wrong.recount(&t.db, &policy).await.unwrap_err(), kind), "{kind} as {other}");
    }
    assert_eq!(t.rows().await, before);
}

#[test]
fn rows_of_foreign_programs_under_the_same_text_name_are_not_items() {
    on_database(async |t| {
        let tr = t.db.create_trx().unwrap();
        tr.set(&[&t.prefix[..], &foundationdb::tuple::pack(&("q", 1, "of another program"))].concat(), b"");
        tr.commit().await.unwrap();
        let q = t.queue_of("q", Kind::Fifo);
        t.push_items(&q, &[NewItem::new("first")]).await;
        let taken = t.session(&q).take(&t.db, k(1)).await.unwrap();
        assert_eq!(taken.got.len(), 1);
        assert!(t.session(&q).take(&t.db, k(1)).await.unwrap().watch.is_some());
    });
}

#[test]
fn a_sweeper_of_the_wrong_kind_promotes_nothing() {
    for kind in KINDS {
        on_database(async |t| {
            let q = t.queue_of("q", kind);
            t.push_items(&q, &[NewItem::new("later").with_due(from_millis(5))]).await;
            sweep_as_others(t, &q, 10).await;
            assert_eq!(t.sweep(&mut sweeper(&q), 10, &rules()).await.moved.promoted, 1);
        });
    }
}

#[test]
fn a_sweeper_of_the_wrong_kind_returns_nothing() {
    for kind in KINDS {
        on_database(async |t| {
            let q = t.queue_of("q", kind);
            t.push_by(&q, 0, "held").await;
            let lease = t.lease_for(&q, 1, SHORT).await.unwrap();
            t.until_past(lease.deadline()).await;
            sweep_as_others(t, &q, 10).await;
            assert_eq!(t.sweep_leases(&q, 1, &rules()).await.returned, 1);
        });
    }
}

#[test]
fn dead_letters_and_unique_keys_of_another_kind_are_unchanged() {
    for kind in KINDS {
        on_database(async |t| {
            let q = t.queue_of("q", kind);
            t.push_items(&q, &[item("first")]).await;
            for wrong in others(kind).map(|kind| t.queue_of("q", kind)) {
                let mut session = t.session(&wrong);
                let refused = session.push_items(&t.db, &[item("again")], &PushOptions::default()).await;
                assert!(is_wrong_kind(&refused.unwrap_err()));
            }
            let mut lease = t.lease(&q, 1).await.unwrap();
            let id = lease.items()[0].id.clone();
            t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
            let (before, policy) = (t.rows().await, RetryPolicy::default());
            for wrong in others(kind).map(|kind| t.queue_of("q", kind)) {
                assert!(is_wrong_kind(&wrong.retry_dead(&t.db, &policy, &id).await.unwrap_err()));
                // One such letter stops none of the others.
                let all = wrong.retry_all_dead(&t.db, &policy, None).await.unwrap();
                assert_eq!((all.moved, all.unreadable), (0, 1));
                let tr = t.db.create_trx().unwrap();
                let refused = wrong.dead_retry(&tr, &id).await;
                assert!(matches!(refused, Err(DeadLetterError::Queue(QueueError::WrongKind { .. }))));
                assert_eq!(wrong.dead_list(&tr, None, k(1)).await.unwrap().len(), 1);
            }
            assert_eq!(t.rows().await, before);
        });
    }
}
