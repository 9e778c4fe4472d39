//! Unique keys that are taken for a time, and pushes that replace the item that waits under their key.

use std::collections::BTreeMap;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Failure, ItemId, ItemOutcome, ItemState, Lease, NewItem, Pause, PushEffect, PushOptions, Queue, Sweeper,
    from_millis,
};

use crate::common::gate::overlaps;
use crate::common::states::records_left;
use crate::common::{KINDS, Millis, OF_ONE_STEP, Rng, TestDb, on_database, rules, run_seed, seeds, sweeper};
use crate::unknown::scripts;

fn item(payload: &str) -> NewItem {
    NewItem::new(payload.to_owned()).with_unique("k")
}

fn for_a_time(payload: &str, until: Millis) -> NewItem {
    item(payload).with_unique_until(from_millis(until))
}

async fn push(t: &TestDb, q: &Queue, item: &NewItem) -> (PushEffect, Option<ItemId>) {
    let pushed = t.push_items(q, std::slice::from_ref(item)).await;
    let it = pushed.each().next().unwrap();
    (it.effect, it.id)
}

async fn effect(t: &TestDb, q: &Queue, item: &NewItem) -> PushEffect {
    push(t, q, item).await.0
}

async fn sweep(t: &TestDb, by: &mut Sweeper, now: Millis) {
    t.jump(3_000_000);
    t.sweep(by, now, &rules()).await;
}

async fn finish(t: &TestDb, q: &Queue) -> String {
    let mut lease = t.lease(q, 1).await.expect("an item is ready");
    let payload = String::from_utf8(lease.items()[0].payload.to_vec()).unwrap();
    t.acknowledge(&mut lease, &ItemOutcome::Done).await;
    payload
}

#[test]
fn a_key_is_taken_for_its_time_whether_or_not_its_item_has_ended() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let mut by = sweeper(&q);
            let (_, id) = push(t, &q, &for_a_time("a", 1_000)).await;
            finish(t, &q).await;
            assert_eq!(push(t, &q, &item("b")).await, (PushEffect::Duplicate, id), "{kind}: it has ended");
            sweep(t, &mut by, 999).await;
            assert_eq!(effect(t, &q, &item("b")).await, PushEffect::Duplicate);
            sweep(t, &mut by, 1_000).await;
            assert_eq!(effect(t, &q, &for_a_time("c", 2_000)).await, PushEffect::Added);
            // It is free after its time though the item has not ended; that does not free the key of the next.
            let mut running = t.lease(&q, 1).await.unwrap();
            sweep(t, &mut by, 2_000).await;
            let (added, next) = push(t, &q, &for_a_time("d", 3_000)).await;
            assert_eq!(added, PushEffect::Added);
            t.acknowledge(&mut running, &ItemOutcome::Done).await;
            assert_eq!(push(t, &q, &item("e")).await, (PushEffect::Duplicate, next));
            finish(t, &q).await;
            sweep(t, &mut by, 3_000).await;
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind}");
        }
    });
}

#[test]
fn a_dead_letter_frees_a_key_before_its_time_and_has_it_until_it_ends_if_it_is_retried() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let mut by = sweeper(&q);
            let (_, id) = push(t, &q, &for_a_time("a", 1_000)).await;
            let mut lease = t.lease(&q, 1).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(0), 1, "no"))).await;
            assert_eq!(records_left(t, &q).await, ["body", "dead"], "{kind}");
            let id = id.unwrap();
            q.retry_item(&t.db, &kvqueue_queue::RetryPolicy::default(), &id).await.unwrap();
            sweep(t, &mut by, 5_000).await;
            assert_eq!(push(t, &q, &item("b")).await, (PushEffect::Duplicate, Some(id)));
            finish(t, &q).await;
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind}");
        }
    });
}

#[test]
fn an_item_that_ends_without_being_done_frees_a_key_before_its_time() {
    on_database(async |t| {
        let policy = &kvqueue_queue::RetryPolicy::default();
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let mut by = sweeper(&q);
            for how in ["cancel", "cancel-scheduled", "cancel-running", "delete", "expire", "expire-fetched"]
            {
                let mut new = for_a_time("a", 100_000);
                match how {
                    "cancel-scheduled" => new = new.with_due(from_millis(50_000)),
                    "expire" | "expire-fetched" => new = new.with_expiry(from_millis(1_000)),
                    _ => {}
                }
                let id = push(t, &q, &new).await.1.unwrap();
                match how {
                    "delete" => drop(q.delete_item(&t.db, policy, &id).await.unwrap()),
                    "expire" => sweep(t, &mut by, 1_000).await,
                    "expire-fetched" => {
                        let mut lease = t.lease(&q, 1).await.unwrap();
                        let expired = ItemOutcome::Expired {
                            at: from_millis(1_000),
                            on_expiry: kvqueue_queue::OnExpiry::Drop,
                        };
                        t.acknowledge(&mut lease, &expired).await;
                    }
                    _ => {
                        let lease = if how == "cancel-running" { t.lease(&q, 1).await } else { None };
                        q.cancel_item(&t.db, policy, &id).await.unwrap();
                        drop(lease);
                    }
                }
                for record in ["unique", "expiry"] {
                    assert!(t.records(&q, record).await.is_empty(), "{kind} {how}: {record}");
                }
                assert_eq!(effect(t, &q, &item("right")).await, PushEffect::Added, "{kind} {how}");
                finish(t, &q).await;
            }
            // One that is done or popped keeps it.
            push(t, &q, &for_a_time("a", 100_000)).await;
            t.run(async |tr| q.pop(tr).await).await;
            assert_eq!(effect(t, &q, &item("b")).await, PushEffect::Duplicate, "{kind}");
        }
    });
}

#[test]
fn an_item_that_expires_when_its_keys_time_is_over_leaves_nothing() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let mut by = sweeper(&q);
            let both = for_a_time("a", 1_000).with_expiry(from_millis(1_000));
            push(t, &q, &both).await;
            assert_eq!(t.records(&q, "expiry").await.len(), 1, "one row for both");
            // Given back without an attempt, and ended: the row stays for the key.
            let mut lease = t.lease(&q, 1).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Release).await;
            finish(t, &q).await;
            assert_eq!(effect(t, &q, &item("b")).await, PushEffect::Duplicate, "{kind}");
            sweep(t, &mut by, 1_000).await;
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind}");
            // The same, and it expires.
            push(t, &q, &for_a_time("a", 2_000).with_expiry(from_millis(2_000))).await;
            sweep(t, &mut by, 2_000).await;
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind}");
            assert_eq!(t.len(&q).await, 0);
        }
    });
}

#[test]
fn a_push_replaces_the_item_that_waits_under_its_key() {
    on_database(async |t| {
        let long = "x".repeat(250_000);
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let mut by = sweeper(&q);
            let (added, id) = push(t, &q, &item("a").with_attribute("n", "1").replacing()).await;
            assert_eq!(added, PushEffect::Added);
            t.push(&q, &["behind"]).await;
            let new = item(&long).with_attribute("m", "2").replacing();
            assert_eq!(push(t, &q, &new).await, (PushEffect::Replaced, id.clone()), "{kind}");
            let new = item("c").with_attribute("m", "3").replacing();
            assert_eq!(push(t, &q, &new).await, (PushEffect::Replaced, id.clone()), "{kind}");
            assert_eq!(t.records(&q, "chunk").await.len(), 0, "the chunks of the long payload are gone");
            let view = t.run(async |tr| q.view_item(tr, id.as_ref().unwrap()).await).await.unwrap();
            let meta = view.item.unwrap().meta.unwrap();
            assert_eq!(meta.attributes, BTreeMap::from([("m".to_owned(), "3".to_owned())]));
            // Each push with a time begins the wait once more: a debounce.
            for (payload, due) in [("d", 1_000), ("e", 2_000)] {
                let new = item(payload).with_due(from_millis(due)).replacing();
                assert_eq!(push(t, &q, &new).await, (PushEffect::Replaced, id.clone()), "{kind}");
            }
            assert_eq!(finish(t, &q).await, "behind");
            sweep(t, &mut by, 1_999).await;
            assert!(t.lease(&q, 1).await.is_none(), "{kind}: it waits since the last push");
            // Without a time it keeps the one that it has.
            assert_eq!(effect(t, &q, &item("f").replacing()).await, PushEffect::Replaced);
            sweep(t, &mut by, 2_000).await;
            assert_eq!(finish(t, &q).await, "f");
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind}");
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting), (0, 0), "{kind}");
        }
    });
}

#[test]
fn a_push_that_replaces_a_running_item_is_added_and_has_the_key() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            push(t, &q, &item("a")).await;
            let mut running = t.lease(&q, 1).await.unwrap();
            let (added, id) = push(t, &q, &item("b").replacing()).await;
            assert_eq!(added, PushEffect::Added, "{kind}");
            t.acknowledge(&mut running, &ItemOutcome::Done).await;
            assert_eq!(push(t, &q, &item("c")).await, (PushEffect::Duplicate, id), "the key is the second's");
            assert_eq!(finish(t, &q).await, "b");
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind}");
        }
    });
}

#[test]
fn a_push_that_replaces_conflicts_with_a_fetch_and_then_is_added() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            push(t, &q, &item("a")).await;
            let Some(gate) = t.close_gate() else { return };
            let new = item("b").replacing();
            let (conflicted, added, lease) = overlaps(gate, effect(t, &q, &new), t.lease(&q, 1)).await;
            assert_eq!((conflicted, added), (true, PushEffect::Added), "{kind}");
            t.acknowledge(&mut lease.unwrap(), &ItemOutcome::Done).await;
            assert_eq!(finish(t, &q).await, "b");
        }
    });
}

#[test]
fn a_replacement_of_unknown_outcome_is_done_once() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), KINDS[i % KINDS.len()]);
            let (_, id) = push(t, &q, &item("a")).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let items = [item("b").replacing(), NewItem::new("other"), item("c").replacing()];
            let pushed = t.push_items(&q, &items).await;
            t.end_faults();
            let each: Vec<_> = pushed.each().map(|it| (it.effect, it.id == id)).collect();
            let replaced = (PushEffect::Replaced, true);
            assert_eq!(each, [replaced, (PushEffect::Added, false), replaced], "{script:?}");
            let mut payloads = t.list(&q).await;
            payloads.sort();
            assert_eq!(payloads, ["c", "other"], "{script:?}");
        }
    });
}

#[test]
fn a_replacement_that_would_expire_before_its_time_keeps_the_expiry_before() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let mut by = sweeper(&q);
            let first = item("a").with_due(from_millis(1_000)).with_expiry(from_millis(2_000)).replacing();
            push(t, &q, &first).await;
            let sooner = item("b").with_expiry(from_millis(900)).replacing();
            assert_eq!(effect(t, &q, &sooner).await, PushEffect::Replaced);
            sweep(t, &mut by, 999).await;
            sweep(t, &mut by, 1_000).await;
            assert_eq!(finish(t, &q).await, "b", "{kind}");
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind}");
        }
    });
}

#[test]
fn a_session_that_knows_the_queue_as_not_frozen_replaces_nothing_once_it_is() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        session.push_items(&t.db, &[item("a")], &PushOptions::default()).await.unwrap();
        let pause = Pause { at: from_millis(1), frozen: true, reason: "moving".to_owned() };
        t.run(async |tr| {
            q.pause(tr, &pause);
            Ok(())
        })
        .await;
        let items = [item("b").replacing()];
        let refused = session.push_items(&t.db, &items, &PushOptions::default()).await.unwrap_err();
        assert!(refused.frozen().is_some(), "{refused:?}");
        assert_eq!(t.list(&q).await, ["a"]);
    });
}

#[test]
fn a_key_for_a_time_outlives_an_item_that_a_foreign_program_took() {
    on_database(async |t| {
        let q = t.queue("q");
        let (_, id) = push(t, &q, &for_a_time("a", 1_000)).await;
        let id = id.unwrap();
        t.foreign_pop(&q, &id).await;
        assert_eq!(push(t, &q, &item("b")).await, (PushEffect::Duplicate, Some(id.clone())));
        let mut by = sweeper(&q);
        sweep(t, &mut by, 999).await;
        assert_eq!(push(t, &q, &item("b")).await, (PushEffect::Duplicate, Some(id)));
        sweep(t, &mut by, 1_000).await;
        assert_eq!(records_left(t, &q).await, [""; 0]);
    });
}

#[test]
fn a_push_that_cannot_replace_says_why() {
    on_database(async |t| {
        let q = t.queue("q");
        let refused = async |item: NewItem| {
            let refused = t.session(&q).push_items(&t.db, &[item], &PushOptions::default()).await;
            refused.unwrap_err().to_string()
        };
        let no_key = refused(NewItem::new("a").replacing()).await;
        assert!(no_key.contains("item has no unique key"), "{no_key}");
        let both = refused(for_a_time("a", 9).replacing()).await;
        assert!(both.contains("cannot both replace"), "{both}");
        push(t, &q, &item("a")).await;
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr);
        pusher.push_items(&[NewItem::new("first")], &PushOptions::default()).await.unwrap();
        let error = pusher.push_items(&[item("b").replacing()], &PushOptions::default()).await.unwrap_err();
        let text = std::error::Error::source(&error).expect("it has a cause").to_string();
        assert!(text.contains("after another push in the same transaction"), "{text}");
        tr.commit().await.unwrap();
        assert_eq!(t.list(&q).await, ["a", "first"]);
    });
}

/// What is known of an item.
#[derive(Debug, Clone)]
struct Known {
    payload: String,
    state: ItemState,
    due: Millis,
}

/// A queue, and what its items and its unique keys are to be.
struct Run<'t> {
    t: &'t TestDb,
    rng: Rng,
    queue: Queue,
    now: Millis,
    number: usize,
    items: BTreeMap<ItemId, Known>,
    /// Who has each key, and until when if it is for a time.
    keys: BTreeMap<&'static str, (ItemId, Option<Millis>)>,
    leases: Vec<Lease>,
    sweeper: Sweeper,
}

impl<'t> Run<'t> {
    fn new(t: &'t TestDb, seed: u64) -> Run<'t> {
        let mut rng = Rng::new(seed);
        let queue = t.queue_of(format!("{seed}"), KINDS[rng.below(KINDS.len())]);
        let sweeper = sweeper(&queue);
        t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1));
        let (items, keys) = (BTreeMap::new(), BTreeMap::new());
        Run { t, rng, queue, now: 1_000, number: 0, items, keys, leases: Vec::new(), sweeper }
    }

    async fn step(&mut self) {
        match self.rng.below(8) {
            0..4 => self.push().await,
            4 => self.fetch().await,
            5 | 6 => self.acknowledge().await,
            _ => self.sweep().await,
        }
    }

    async fn push(&mut self) {
        let key = ["a", "b"][self.rng.below(2)];
        let payload = format!("{}", self.number);
        self.number += 1;
        let due = (self.rng.below(3) == 0).then(|| self.now + 20);
        let (replaces, until) = match self.rng.below(3) {
            0 => (false, None),
            1 => (true, None),
            _ => (false, Some(self.now + 30)),
        };
        let mut item = NewItem::new(payload.clone()).with_unique(key);
        (item.due, item.unique_until) = (due.map(from_millis), until.map(from_millis));
        let item = if replaces { item.replacing() } else { item };
        let (effect, id) = push(self.t, &self.queue, &item).await;
        let holder = self.keys.get(key).map(|(id, _)| id.clone());
        let waits = |known: &Known| !matches!(known.state, ItemState::Running | ItemState::Dead);
        let replaced = holder.clone().filter(|id| replaces && self.items.get(id).is_some_and(waits));
        match (holder, replaced) {
            (Some(holder), Some(_)) => {
                assert_eq!((effect, id.as_ref()), (PushEffect::Replaced, Some(&holder)));
                let known = self.items.get_mut(&holder).unwrap();
                known.payload = payload;
                if let Some(due) = due {
                    let tried = known.state == ItemState::Retrying;
                    known.state = if tried { ItemState::Retrying } else { ItemState::Scheduled };
                    known.due = due;
                }
            }
            (Some(holder), None) if !replaces => {
                assert_eq!((effect, id), (PushEffect::Duplicate, Some(holder)));
            }
            _ => {
                assert_eq!(effect, PushEffect::Added);
                let state = if due.is_some() { ItemState::Scheduled } else { ItemState::Ready };
                self.keys.insert(key, (id.clone().unwrap(), until));
                self.items.insert(id.unwrap(), Known { payload, state, due: due.unwrap_or(0) });
            }
        }
    }

    async fn fetch(&mut self) {
        let Some(lease) = self.t.lease_for(&self.queue, 2, 1 << 40).await else { return };
        for item in lease.items() {
            let known = self.items.get_mut(&item.id).unwrap();
            assert_eq!((known.state, known.payload.as_bytes()), (ItemState::Ready, &item.payload[..]));
            known.state = ItemState::Running;
        }
        self.leases.push(lease);
    }

    async fn acknowledge(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let mut lease = self.leases.swap_remove(self.rng.below(self.leases.len()));
        let failure = || Failure::new(from_millis(1), 1, "no");
        let due = self.now + 10;
        let (outcome, state) = match self.rng.below(4) {
            0 => (ItemOutcome::Release, Some(ItemState::Ready)),
            1 => (
                ItemOutcome::Retry { due: Some(from_millis(due)), failure: failure() },
                Some(ItemState::Retrying),
            ),
            2 => (ItemOutcome::Dead(failure()), Some(ItemState::Dead)),
            _ => (ItemOutcome::Done, None),
        };
        self.t.acknowledge(&mut lease, &outcome).await;
        for item in lease.items() {
            let ends = matches!(state, None | Some(ItemState::Dead));
            self.keys
                .retain(|_, (id, until)| !(ends && *id == item.id) || (until.is_some() && state.is_none()));
            match state {
                None => drop(self.items.remove(&item.id)),
                Some(state) => {
                    let known = self.items.get_mut(&item.id).unwrap();
                    (known.state, known.due) = (state, due);
                }
            }
        }
    }

    async fn sweep(&mut self) {
        self.now += [0, 5, 40][self.rng.below(3)];
        sweep(self.t, &mut self.sweeper, self.now).await;
        let now = self.now;
        self.keys.retain(|_, (_, until)| until.is_none_or(|until| until > now));
        for known in self.items.values_mut() {
            if matches!(known.state, ItemState::Scheduled | ItemState::Retrying) && known.due <= now {
                known.state = ItemState::Ready;
            }
        }
        self.check().await;
    }

    /// The keys are those of the model, and so are the payloads.
    async fn check(&self) {
        for key in ["a", "b"] {
            let found = self.t.run(async |tr| self.queue.unique_item(tr, key.as_bytes()).await).await;
            assert_eq!(found.as_ref(), self.keys.get(key).map(|(id, _)| id), "{key}");
        }
        for (id, known) in &self.items {
            let view = self.t.run(async |tr| self.queue.view_item(tr, id).await).await.unwrap();
            assert_eq!(view.item.unwrap().payload, known.payload.as_bytes(), "{known:?}");
        }
    }
}

#[test]
fn random_pushes_replace_and_take_keys_as_the_model_says() {
    on_database(async |t| {
        for seed in seeds(60) {
            let ran = async {
                let mut run = Run::new(t, seed);
                for _ in 0..60 {
                    run.step().await;
                }
                run.sweep().await;
                t.end_faults();
            };
            run_seed(seed, "random_pushes_replace_and_take_keys", OF_ONE_STEP, ran).await;
        }
    });
}
