//! Payloads that are longer than a value may be.

use foundationdb::tuple::pack;
use kvqueue_queue::{
    End, Failure, ItemOutcome, Kind, MAX_PAYLOAD, MAX_VALUE, NewItem, PAYLOAD_CEILING, Packing, PushError,
    PushOptions, RetryPolicy, from_millis,
};

use crate::common::{KINDS, TestDb, k, on_database};

/// Bytes that differ wherever they are cut.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i / 1_000) as u8).collect()
}

/// Compares without printing megabytes.
#[track_caller]
fn same(found: &[u8], expected: &[u8]) {
    assert!(found == expected, "{} bytes instead of {}, or other ones", found.len(), expected.len());
}

/// The keys that are left of all items: what neither counts nor is a session's.
async fn left(t: &TestDb) -> usize {
    let records = ["npush", "npop", "ndone", "ndead", "nback", "nactive", "vtime", "token"]
        .map(|name| [name.as_bytes(), &[0]].concat());
    let own = |key: &[u8]| records.iter().any(|name| key.windows(name.len()).any(|part| part == name));
    t.rows().await.iter().filter(|(key, _)| !own(key)).count()
}

#[test]
fn long_payloads_are_returned_complete_and_leave_no_key() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let lens: &[usize] = if i == 0 { &[MAX_VALUE + 1, 250_000, MAX_PAYLOAD] } else { &[250_000] };
            for &len in lens {
                let q = t.queue_of(format!("q{i} {len}"), kind);
                let long = payload(len);
                t.session(&q).push(&t.db, &[&long]).await.unwrap();
                let chunks = t.records(&q, "chunk").await;
                assert_eq!(chunks.len(), len.div_ceil(MAX_VALUE) - 1);
                assert!(chunks.iter().all(|(_, chunk)| chunk.len() <= MAX_VALUE));
                same(&t.run(async |tr| q.peek_k(tr, k(1)).await).await[0].payload, &long);

                let mut lease = t.lease(&q, 1).await.unwrap();
                same(&lease.items()[0].payload, &long);
                t.acknowledge(&mut lease, &ItemOutcome::Release).await;
                let mut lease = t.lease(&q, 1).await.unwrap();
                let failure = Failure::new(from_millis(0), 1, "no");
                t.acknowledge(&mut lease, &ItemOutcome::Retry { due: None, failure }).await;
                let mut lease = t.lease(&q, 1).await.unwrap();
                same(&lease.items()[0].payload, &long);
                assert_eq!(lease.items()[0].attempt, 2);
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
                assert_eq!(left(t).await, 0, "{kind:?} {len}");
            }
        }
    });
}

#[test]
fn pop_and_take_clear_long_payloads() {
    on_database(async |t| {
        let q = t.queue("q");
        let long = payload(250_000);
        t.session(&q).push(&t.db, &[&long, &long]).await.unwrap();
        same(&t.run(async |tr| q.pop(tr).await).await.unwrap().payload, &long);
        same(&t.session(&q).take(&t.db, k(1)).await.unwrap().got[0].payload, &long);
        assert_eq!(left(t).await, 0);
    });
}

#[test]
fn a_pusher_mixes_long_and_short_payloads() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr);
        let (one, other) = (payload(250_000), payload(300_000));
        for bytes in [&b"first"[..], &one, b"between", &other] {
            pusher.push(bytes).await.unwrap();
        }
        tr.commit().await.unwrap();
        let items = t.run(async |tr| q.list(tr).await).await;
        for (item, expected) in items.iter().zip([&b"first"[..], &one, b"between", &other]) {
            same(&item.payload, expected);
        }
        assert_eq!(items.len(), 4);
    });
}

/// A payload that would be too long for a value only once it is packed.
#[test]
fn packing_may_make_a_payload_long() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Recipe(Packing::Tuple));
        for bytes in
            [vec![b'x'; MAX_VALUE - 2], vec![b'x'; MAX_VALUE - 1], vec![0; MAX_VALUE / 2], vec![0; MAX_VALUE]]
        {
            t.session(&q).push(&t.db, &[&bytes]).await.unwrap();
            let mut lease = t.lease(&q, 1).await.unwrap();
            same(&lease.items()[0].payload, &bytes);
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        assert_eq!(left(t).await, 0);
    });
}

#[test]
fn the_limit_can_be_lowered_and_raised_a_little() {
    on_database(async |t| {
        let q = t.queue("q");
        let push = async |len: usize, max_payload: usize| {
            let options = PushOptions::default().with_max_payload(max_payload);
            t.session(&q).push_items(&t.db, &[NewItem::new(payload(len))], &options).await
        };
        push(10, 10).await.unwrap();
        let refused = push(11, 10).await.unwrap_err();
        assert!(matches!(refused, PushError::PayloadTooLarge { len: 11, limit: 10 }));
        push(PAYLOAD_CEILING, PAYLOAD_CEILING).await.unwrap();
        let refused = push(0, PAYLOAD_CEILING + 1).await.unwrap_err();
        assert!(matches!(refused, PushError::LimitTooHigh { .. }));
        assert_eq!(t.len(&q).await, 2);
    });
}

#[test]
fn ending_an_item_keeps_payloads_of_longer_ids_with_its_prefix() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Priority(End::Min, Packing::Raw));
        // The recipe's programs would not give an item such a key, others might.
        let key = [t.prefix.as_slice(), &pack(&("q",)), &pack(&(0,))].concat();
        let (policy, long) = (RetryPolicy::default(), payload(250_000));
        for purged in [true, false] {
            t.run(async |tr| {
                tr.set(&key, b"short");
                Ok(())
            })
            .await;
            let mut lease = t.lease(&q, 1).await.unwrap();
            let id = lease.items()[0].id.clone();
            t.push_items(&q, &[NewItem::new(long.clone())]).await;
            if purged {
                t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
                q.purge_dead(&t.db, &policy, &id).await.unwrap();
            } else {
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
            let mut lease = t.lease(&q, 1).await.unwrap();
            same(&lease.items()[0].payload, &long);
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            assert_eq!(left(t).await, 0);
        }
    });
}
