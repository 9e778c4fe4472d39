//! Sweepers that close batches: when they look, and what does not stop them.

use std::time::Duration;

use kvqueue_queue::item_batch::{BatchCommit, BatchId, BatchView, CloseReason, NewBatch};
use kvqueue_queue::{Kind, NewItem, Sweeper, VersionHistory, from_millis};

use crate::batches::{NOW, ONE, counts, finish, left, new, policy};
use crate::common::{k, on_database, record, rules, sweeper};

#[test]
fn a_batch_calls_back_at_its_deadline() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        for commits in [true, false] {
            let watch = t.sweep(&mut sweeper(&home), NOW, &rules()).await.watch;
            let id = t.new_batch(&home, &new().with_deadline(from_millis(NOW + 500))).await;
            // Its deadline may be earlier than the next look.
            tokio::time::timeout(Duration::from_secs(10), watch).await.expect("it fires").unwrap();
            t.push_members(&work, &id, 3).await;
            finish(t, &work, 1).await;
            if commits {
                t.commit_batch(&home, &id).await;
            }
            assert_eq!(t.close(&home, NOW + 499).await, []);
            let next = t.sweep(&mut sweeper(&home), NOW + 499, &rules()).await.next;
            assert!(next.as_millis() <= 1, "it looks again at the deadline: {next:?}");
            let closed = (id.clone(), CloseReason::Deadline, counts(3, 1));
            assert_eq!(t.close(&home, NOW + 500).await, [closed]);
            let callback = t.callbacks(&home).await.pop().unwrap();
            assert_eq!(callback[..4], [&id.to_string(), "deadline", "3", "1"].map(str::to_owned));
            // The others end without a batch.
            finish(t, &work, 2).await;
            assert_eq!((t.close(&home, NOW + 501).await, left(t, &home).await), (vec![], [0; 3]));
        }
        assert_eq!(t.list(&home).await.len(), 2);
        // A batch that is complete before its deadline leaves nothing for it.
        let id = t.new_batch(&home, &new().with_deadline(from_millis(NOW + 500))).await;
        t.commit_batch(&home, &id).await;
        assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, counts(0, 0))]);
        assert_eq!((t.close(&home, NOW + 500).await, left(t, &home).await), (vec![], [0; 3]));
    });
}

#[test]
fn a_callback_that_its_queue_cannot_have_does_not_stop_others() {
    on_database(async |t| {
        let keyed = t.queue_of("q", Kind::Keyed);
        let with_key = NewBatch::new(NewItem::new("keyed").with_key("tenant"));
        let (refused, other) = (t.new_batch(&keyed, &with_key).await, t.new_batch(&keyed, &new()).await);
        // It was opened as a queue of another kind by mistake.
        let fifo = t.queue("q");
        for id in [&refused, &other] {
            assert_eq!(t.commit_batch(&fifo, id).await, BatchCommit::Committed);
        }
        let mut sweeper = Sweeper::with_id(fifo.clone(), ONE, VersionHistory::new(|| Duration::ZERO));
        let swept = t.sweep(&mut sweeper, NOW, &rules()).await;
        assert!(swept.unusable_batches.iter().eq([&refused]), "{:?}", swept.unusable_batches);
        assert_eq!((swept.closed_batches.len(), t.list(&fifo).await), (1, vec!["all done".to_owned()]));
        assert_eq!(t.run(async |tr| fifo.pop_k(tr, k(1)).await).await.items.len(), 1);
        // A minute later it is looked at again.
        assert_eq!(t.close(&keyed, NOW + 59_999).await, []);
        let closed = (refused, CloseReason::Complete, counts(0, 0));
        assert_eq!(t.close(&keyed, NOW + 60_000).await, [closed]);
        assert_eq!((t.list(&keyed).await, left(t, &keyed).await), (vec!["keyed".to_owned()], [0; 3]));
    });
}

#[test]
fn ends_in_a_row_make_a_sweeper_look_at_their_batch_twice_in_a_second() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        t.push_members(&work, &id, 3).await;
        t.commit_batch(&home, &id).await;
        let rules = rules().with_lease(Duration::from_secs(30));
        let mut sweeper = sweeper(&home);
        let marks = async || t.records(&home, "batch-due").await.len();
        assert_eq!((t.sweep(&mut sweeper, NOW, &rules).await.closed_batches.len(), marks().await), (0, 0));
        for _ in 0..2 {
            finish(t, &work, 1).await;
            // It has just looked. On a cluster versions go on by themselves.
            let swept = t.sweep(&mut sweeper, NOW, &rules).await;
            if marks().await == 1 {
                assert!((1..=500).contains(&swept.next.as_millis()), "{:?}", swept.next);
            }
        }
        finish(t, &work, 1).await;
        let past = t.version().await + 500_000;
        t.jump(500_000);
        t.until_past(past).await;
        assert_eq!(t.sweep(&mut sweeper, NOW, &rules).await.closed_batches.len(), 1);
        assert_eq!(t.list(&home).await.len(), 1);
    });
}

#[test]
fn another_sweeper_closes_a_batch_if_the_one_on_duty_is_late() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        // A queue that was never fetched from has no sweeper on duty.
        t.push(&home, &["x"]).await;
        finish(t, &home, 1).await;
        let id = t.new_batch(&home, &new()).await;
        t.push_members(&work, &id, 1).await;
        t.commit_batch(&home, &id).await;
        let rules = rules().with_lease(Duration::from_secs(30));
        let (mut on_duty, mut other) = (sweeper(&home), sweeper(&home));
        t.sweep(&mut on_duty, NOW, &rules).await;
        assert_eq!(t.records(&home, "duty").await.len(), 1);
        finish(t, &work, 1).await;
        let swept = t.sweep(&mut other, NOW, &rules).await;
        assert_eq!(swept.closed_batches.len(), 0, "it leaves the batch to the one on duty");
        assert!(swept.patience >= Duration::from_secs(1));
        // Longer than the claim of the other one, and than any grace time.
        let past = t.version().await + 4_000_000;
        t.jump(4_000_000);
        t.until_past(past).await;
        assert_eq!(t.sweep(&mut other, NOW + 4_000, &rules).await.closed_batches.len(), 1);
    });
}

#[test]
fn many_batches_are_closed_listed_and_ended_together() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let mut ids = Vec::new();
        for _ in 0..250 {
            ids.push(t.new_batch(&home, &new()).await);
        }
        let items: Vec<_> = ids.iter().map(|id| NewItem::new("x").with_batch(id.clone())).collect();
        t.push_items(&work, &items).await;
        for id in &ids {
            t.commit_batch(&home, id).await;
        }
        assert_eq!(t.close(&home, NOW).await, []);
        let mut listed = Vec::new();
        loop {
            let behind = listed.last().map(|view: &BatchView| &view.id);
            let page = t.run(async |tr| home.batches_after(tr, behind, k(60)).await).await;
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        ids.sort();
        assert_eq!(listed.iter().map(|view| view.id.clone()).collect::<Vec<_>>(), ids);
        assert!(
            listed
                .iter()
                .all(|view| view.counts == counts(1, 0) && view.committed == Some(from_millis(NOW + 1)))
        );
        finish(t, &work, 250).await;
        let mut closed: Vec<_> = t.close(&home, NOW).await.into_iter().map(|(id, ..)| id).collect();
        closed.sort();
        assert_eq!((closed, left(t, &home).await), (ids, [0; 3]));
        assert_eq!(t.list(&home).await.len(), 250);
    });
}

#[test]
fn rows_and_records_that_cannot_be_read_do_not_stop_other_batches() {
    on_database(async |t| {
        let home = t.queue("home");
        let (damaged, other) = (t.new_batch(&home, &new()).await, t.new_batch(&home, &new()).await);
        for id in [&damaged, &other] {
            t.commit_batch(&home, id).await;
        }
        let key = t.records(&home, "batch").await.remove(0).0;
        t.run(async |tr| {
            // Time 1, and no id.
            tr.set(&record(&home, "batch-due", b"\x15\x01x"), b"");
            tr.set(&record(&home, "batch", &key), b"\x01");
            Ok(())
        })
        .await;
        let sweep = async |now| {
            let mut sweeper = Sweeper::with_id(home.clone(), ONE, VersionHistory::new(|| Duration::ZERO));
            sweeper.sweep(&t.db, &|| from_millis(now), &rules()).await.unwrap()
        };
        let swept = sweep(NOW).await;
        assert!(swept.unusable_batches.iter().eq([&damaged]), "{:?}", swept.unusable_batches);
        assert!(swept.closed_batches.iter().map(|of| &of.id).eq([&other]), "{:?}", swept.closed_batches);
        let trouble = swept.trouble.expect("the row is named").error.to_string();
        assert!(trouble.contains("batch-due"), "{trouble}");
        // The record is looked at again after a minute.
        assert!(sweep(NOW + 59_999).await.unusable_batches.is_empty());
        assert_eq!(sweep(NOW + 60_000).await.unusable_batches.len(), 1);
        assert_eq!(t.list(&home).await.len(), 1);
    });
}

#[test]
fn pushes_and_ends_of_members_do_not_read_the_callback() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let mut records = Vec::new();
        for len in [1, 60_000] {
            let id = t.new_batch(&home, &NewBatch::new(NewItem::new(vec![b'x'; len]))).await;
            t.push_members(&work, &id, 1).await;
            t.commit_batch(&home, &id).await;
            finish(t, &work, 1).await;
            records.push(t.records(&home, "batch").await.remove(0).1);
            // What they read is short, and there is nothing else of the batch that could be long but this.
            let callbacks = t.records(&home, "batch-item").await;
            assert!(callbacks[0].1.len() >= len && t.records(&home, "batch-item").await.len() == 1);
            assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, counts(1, 1))]);
            let pushed = t.run(async |tr| home.pop(tr).await).await.unwrap();
            assert_eq!((pushed.payload.len(), left(t, &home).await), (len, [0; 3]));
        }
        assert!(records.iter().all(|record| record.len() < 60), "{records:?}");
        assert_eq!(records[0].len(), records[1].len());
    });
}

/// A batch as an earlier version made it: its record has the callback.
#[test]
fn a_batch_of_an_earlier_version_lives_on() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let mut ids = Vec::new();
        for n in 0..2_u8 {
            let id = BatchId::with_unique(home.name(), [n; 16]);
            let field = |tag: u8, content: &[u8]| {
                [&[tag][..], &u32::try_from(content.len()).unwrap().to_le_bytes(), content].concat()
            };
            let record = [field(1, &NOW.to_le_bytes()), field(5, b"old"), field(6, b"\x01\0\0\0kv")].concat();
            let key = crate::common::record(&home, "batch", &[&[0x30][..], &[n; 16]].concat());
            t.run(async |tr| {
                tr.set(&key, &record);
                Ok(())
            })
            .await;
            ids.push(id);
        }
        let [id, other] = &ids[..] else { panic!() };
        t.push_members(&work, id, 1).await;
        t.commit_batch(&home, id).await;
        let view = t.batch(&home, id).await.unwrap();
        assert_eq!((&view.batch.callback.payload[..], view.counts), (&b"old"[..], counts(1, 0)));
        assert_eq!(t.run(async |tr| home.batches_after(tr, None, k(9)).await).await.len(), 2);
        finish(t, &work, 1).await;
        assert_eq!(t.close(&home, NOW).await, [(id.clone(), CloseReason::Complete, counts(1, 1))]);
        let pushed = t.run(async |tr| home.pop(tr).await).await.unwrap();
        assert_eq!((&pushed.payload[..], pushed.attribute("k")), (&b"old"[..], Some("v")));
        assert!(home.drop_batch(&t.db, &policy(), other).await.unwrap().is_some());
        assert_eq!(left(t, &home).await, [0; 3]);
    });
}

#[test]
fn a_batch_whose_callback_is_gone_is_reported_and_keeps_no_other_back() {
    on_database(async |t| {
        let home = t.queue("home");
        let (damaged, other) = (t.new_batch(&home, &new()).await, t.new_batch(&home, &new()).await);
        for id in [&damaged, &other] {
            t.commit_batch(&home, id).await;
        }
        let key = t.records(&home, "batch-item").await.remove(0).0;
        t.run(async |tr| {
            tr.clear(&record(&home, "batch-item", &key));
            Ok(())
        })
        .await;
        // A page of one has the next batch that can be read.
        let page = t.run(async |tr| home.batches_after(tr, None, k(1)).await).await;
        assert!(page.iter().map(|of| &of.id).eq([&other]), "{page:?}");
        let mut sweeper = Sweeper::with_id(home.clone(), ONE, VersionHistory::new(|| Duration::ZERO));
        let swept = sweeper.sweep(&t.db, &|| from_millis(NOW), &rules()).await.unwrap();
        assert!(swept.unusable_batches.iter().eq([&damaged]), "{:?}", swept.unusable_batches);
        assert!(swept.closed_batches.iter().map(|of| &of.id).eq([&other]), "{:?}", swept.closed_batches);
        let listed = t.run(async |tr| home.batches_after(tr, None, k(9)).await).await;
        assert_eq!(listed, []);
    });
}
