use super::*;
use crate::PushOptions;
use crate::client::approach::Approach;
use crate::client::queue::Queue;
use crate::client::session::{FetchOptions, Session};
use crate::model::kind::Kind;
use crate::model::limits::{Limits, Pattern};
use crate::model::new_item::NewItem;
use crate::model::session_id::SessionId;
use crate::ops::keyed::lanes::Others;
use crate::testing::on_database;

#[test]
fn a_fetch_parks_a_bounded_number_of_keys() {
    on_database(async |db| {
        let queue = Queue::of_kind(b"", b"q", Kind::Keyed).unwrap();
        let tr = db.create_trx().unwrap();
        queue.set_rule(&tr, &Pattern::keys("*").unwrap(), &Limits::default().with_running(1)).await.unwrap();
        tr.commit().await.unwrap();
        let mut session = Session::new(queue.clone());
        let item = |n: usize| NewItem::new("x").with_key(format!("k{}", n % 200));
        let items: Vec<_> = (0..400).map(item).collect();
        session.push_items(db, &items, &PushOptions::default()).await.unwrap();
        let k = NonZeroUsize::new(190).unwrap();
        let (mut approach, length) = (Approach::Front, std::time::Duration::from_secs(30));
        // Other keys are active, so these 190 stay active.
        let fetched = session.fetch(db, &mut FetchOptions::new(k, length, &mut approach)).await.unwrap();
        let _lease = fetched.got.unwrap();
        let (space, keyed) = (queue.space(), queue.space().keyed.as_ref().unwrap());
        for k in [1, 500] {
            let k = NonZeroUsize::new(k).unwrap();
            let tr = db.create_trx().unwrap();
            let choice =
                choose(space, keyed, &tr, wanted(k), &mut Rng::of(SessionId([7; 16]))).await.unwrap();
            // The ten keys that were not served come first.
            assert_eq!(choice.items, k.get().min(10));
            assert_eq!(choice.parked(), if k.get() == 1 { 0 } else { max_parked() });
        }
    });
}
/// A fetch of up to `k` items on a lease.
fn wanted(k: NonZeroUsize) -> Wanted {
    Wanted {
        k,
        on_lease: true,
        suspects: k,
        allows: Suspicion::None,
        lazy: false,
        scatter: 0,
        taker: Taker { session: SessionId([7; 16]), gate: 0, others: Others::Take },
    }
}

#[test]
fn a_fetch_estimates_the_size_of_its_transaction() {
    on_database(async |db| {
        for key in [10, 30, 100, 200] {
            for items_of_a_key in [1, 20] {
                let queue =
                    Queue::of_kind(b"", format!("q{key}-{items_of_a_key}").as_bytes(), Kind::Keyed).unwrap();
                let (space, keyed) = (queue.space(), queue.space().keyed.as_ref().unwrap());
                let item = |n: usize| NewItem::new("x").with_key(format!("{:0>key$}", n / items_of_a_key));
                let items: Vec<_> = (0..100).map(item).collect();
                Session::new(queue.clone()).push_items(db, &items, &PushOptions::default()).await.unwrap();
                let (tr, k) = (db.create_trx().unwrap(), NonZeroUsize::new(100).unwrap());
                let choice =
                    choose(space, keyed, &tr, wanted(k), &mut Rng::of(SessionId([7; 16]))).await.unwrap();
                choice.write(space, keyed, &tr).await.unwrap();
                assert_eq!(choice.items, 100);
                // The lease is not written here.
                let held: usize = choice
                    .keys
                    .iter()
                    .flat_map(|key| &key.rows)
                    .map(|row| row.id.as_bytes().len() + 12)
                    .sum();
                let real = held + usize::try_from(tr.get_approximate_size().await.unwrap()).unwrap();
                let estimate = choice.bytes + choice.index_bytes;
                assert!(
                    (real..real * 13 / 10).contains(&estimate),
                    "{estimate} for {real}, {key} {items_of_a_key}"
                );
            }
        }
    });
}
