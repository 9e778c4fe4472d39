//! Random changes of items by their ids, between fetches, acknowledgements, expiries and sweeps, against a model.
//!
//! Operations follow one another, so after each the queue must be exactly what the model is. One seed decides everything; a failure prints
//! the command that repeats it. The last test has the concurrent case: of a cancellation, an acknowledgement, an expiry and a fetch of one
//! item exactly one wins.

use std::collections::BTreeMap;

use fdb_embedded::Faults;
use futures::future::join4;
use kvqueue_queue::{
    CancelFilter, Canceller, Failure, ItemChange, ItemId, ItemOutcome, ItemState, Kind, Lease, NewItem,
    Queue, RetryPolicy, Sweeper, from_millis, millis,
};

use crate::common::states::records_left;
use crate::common::{
    KINDS, OF_ONE_STEP, Rng, TestDb, at_most, later, on_database, rules, run_seed, seeds, sweeper,
};

/// Operations per seed.
const STEPS: usize = 50;
/// The length of leases, in versions.
const HOUR: u64 = 3_600_000_000;
/// Times lie on both sides of that of the sweeps.
const NOW: u64 = 100;

#[test]
fn random_changes_of_items_match_a_model() {
    on_database(async |t| {
        for seed in seeds(60) {
            run_seed(seed, "random_changes", OF_ONE_STEP, World::run(t, seed)).await;
        }
    });
}

/// An item as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    state: ItemState,
    payload: String,
    due: Option<u64>,
    attempts: u32,
}

struct World<'t> {
    t: &'t TestDb,
    rng: Rng,
    queue: Queue,
    model: BTreeMap<ItemId, Expected>,
    leases: Vec<Lease>,
    /// One alone: while a sweeper has a claim, others leave the work to it.
    sweeper: Sweeper,
    pushed: i64,
    cancelled_running: i64,
    done: i64,
}

impl<'t> World<'t> {
    async fn run(t: &'t TestDb, seed: u64) {
        let mut rng = Rng::new(seed);
        let kind = KINDS[rng.below(KINDS.len())];
        let p = [0.0, 0.1, 0.3][rng.below(3)];
        let plan = Faults::seeded(seed).unknown_committed(p).unknown_not_committed(p).conflict(p / 2.0);
        if p > 0.0 && !t.install(plan) {
            return;
        }
        let queue = t.queue_of(format!("items {seed}"), kind);
        let (model, leases, sweeper) = (BTreeMap::new(), Vec::new(), sweeper(&queue));
        let mut world =
            World { t, rng, queue, model, leases, sweeper, pushed: 0, cancelled_running: 0, done: 0 };
        for _ in 0..STEPS {
            world.step().await;
            world.check().await;
        }
        t.end_faults();
        world.empty().await;
    }

    async fn step(&mut self) {
        match self.rng.below(20) {
            0..=2 => self.push().await,
            3..=5 => self.fetch().await,
            6..=8 => self.acknowledge().await,
            9..=11 => self.cancel().await,
            12..=13 => self.reschedule().await,
            14..=15 => self.retry().await,
            16..=17 => self.edit().await,
            18 => self.promote().await,
            _ => self.look().await,
        }
    }

    fn any(&mut self) -> Option<ItemId> {
        let at = self.rng.below(self.model.len().max(1));
        self.model.keys().nth(at).cloned()
    }

    async fn push(&mut self) {
        let due = (self.rng.below(3) == 0).then(|| self.rng.below(2 * NOW as usize) as u64 + 1);
        let payload = self.payload();
        let item = NewItem::new(payload.clone()).with_unique(format!("u{}", self.pushed).into_bytes());
        let item = match due {
            Some(due) => item.with_due(from_millis(due)),
            None => item,
        };
        let item = match self.queue.kind() {
            Kind::Keyed => item.with_key(format!("key {}", self.rng.below(3))),
            _ => item,
        };
        self.t.push_items(&self.queue, &[item]).await;
        let key = format!("u{}", self.pushed).into_bytes();
        let queue = &self.queue;
        let id = self.t.run(async |tr| queue.unique_item(tr, &key).await).await.unwrap();
        self.pushed += 1;
        let state = if due.is_some() { ItemState::Scheduled } else { ItemState::Ready };
        self.model.insert(id, Expected { state, payload, due, attempts: 0 });
    }

    /// Some have several parts.
    fn payload(&mut self) -> String {
        let long = if self.rng.below(10) == 0 { 150_000 } else { 0 };
        format!("{} {}", self.rng.next(), "x".repeat(long))
    }

    async fn fetch(&mut self) {
        let n = 1 + self.rng.below(3);
        let Some(lease) = self.t.lease_for(&self.queue, n, HOUR).await else {
            assert!(self.model.values().all(|it| it.state != ItemState::Ready));
            return;
        };
        for item in lease.items() {
            let expected = self.model.get_mut(&item.id).unwrap();
            assert_eq!((expected.state, item.payload.len()), (ItemState::Ready, expected.payload.len()));
            expected.state = ItemState::Running;
        }
        self.leases.push(lease);
    }

    async fn acknowledge(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let at = self.rng.below(self.leases.len());
        let mut lease = self.leases.swap_remove(at);
        let index = self.rng.below(lease.items().len());
        let due = self.rng.below(2 * NOW as usize) as u64 + 1;
        let outcome = match self.rng.below(5) {
            0 => ItemOutcome::Release,
            1 => later(due),
            2 => ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no")),
            _ => ItemOutcome::Done,
        };
        let was_open = lease.open().any(|open| open == index);
        let id = lease.items()[index].id.clone();
        lease.acknowledge(&self.t.db, &RetryPolicy::default(), &[(index, outcome.clone())]).await.unwrap();
        // What was cancelled, or acknowledged before, is passed over.
        let is_running = self.model.get(&id).is_some_and(|it| it.state == ItemState::Running);
        if was_open && is_running && !lease.is_cancelled(index) {
            let expected = self.model.get_mut(&id).unwrap();
            match outcome {
                ItemOutcome::Release => expected.state = ItemState::Ready,
                ItemOutcome::Retry { .. } => {
                    expected.attempts += 1;
                    (expected.state, expected.due) = (ItemState::Retrying, Some(due));
                }
                ItemOutcome::Dead(_) => {
                    expected.attempts += 1;
                    expected.state = ItemState::Dead;
                }
                _ => {
                    self.model.remove(&id);
                    self.done += 1;
                }
            }
        } else if was_open {
            assert!(lease.is_cancelled(index), "it is neither running nor cancelled");
        }
        if !lease.is_acknowledged() {
            self.leases.push(lease);
        }
    }

    async fn cancel(&mut self) {
        let Some(id) = self.any() else { return };
        let state = self.model[&id].state;
        let change = self.queue.cancel_item(&self.t.db, &RetryPolicy::default(), &id).await.unwrap();
        if state == ItemState::Dead {
            assert_eq!(change, ItemChange::Refused(state));
            return;
        }
        assert_eq!(change, ItemChange::Done(state));
        self.cancelled_running += i64::from(state == ItemState::Running);
        self.model.remove(&id);
    }

    async fn reschedule(&mut self) {
        let Some(id) = self.any() else { return };
        let due = (self.rng.below(3) > 0).then(|| self.rng.below(2 * NOW as usize) as u64 + 1);
        let (db, policy) = (&self.t.db, RetryPolicy::default());
        let change = self.queue.reschedule_item(db, &policy, &id, due.map(from_millis)).await.unwrap();
        let expected = self.model.get_mut(&id).unwrap();
        let before = expected.state;
        if matches!(before, ItemState::Running | ItemState::Dead) {
            assert_eq!(change, ItemChange::Refused(before));
            return;
        }
        assert_eq!(change, ItemChange::Done(before));
        expected.due = due;
        expected.state = match due {
            None => ItemState::Ready,
            Some(_) if expected.attempts > 0 => ItemState::Retrying,
            Some(_) => ItemState::Scheduled,
        };
    }

    async fn retry(&mut self) {
        let Some(id) = self.any() else { return };
        let change = self.queue.retry_item(&self.t.db, &RetryPolicy::default(), &id).await.unwrap();
        let expected = self.model.get_mut(&id).unwrap();
        match expected.state {
            before @ (ItemState::Ready | ItemState::Running) => {
                assert_eq!(change, ItemChange::Refused(before));
            }
            before => {
                assert_eq!(change, ItemChange::Done(before));
                if before == ItemState::Dead {
                    expected.attempts = 0;
                }
                (expected.state, expected.due) = (ItemState::Ready, None);
            }
        }
    }

    async fn edit(&mut self) {
        let Some(id) = self.any() else { return };
        let payload = self.payload();
        let (db, policy) = (&self.t.db, RetryPolicy::default());
        let change = self.queue.edit_item(db, &policy, &id, payload.as_bytes()).await.unwrap();
        let expected = self.model.get_mut(&id).unwrap();
        if expected.state == ItemState::Running {
            assert_eq!(change, ItemChange::Refused(ItemState::Running));
        } else {
            assert_eq!(change, ItemChange::Done(expected.state));
            expected.payload = payload;
        }
    }

    async fn promote(&mut self) {
        self.t.sweep(&mut self.sweeper, NOW, &rules()).await;
        for expected in self.model.values_mut().filter(|it| it.due.is_some_and(|due| due <= NOW)) {
            if matches!(expected.state, ItemState::Scheduled | ItemState::Retrying) {
                (expected.state, expected.due) = (ItemState::Ready, None);
            }
        }
    }

    async fn look(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let at = self.rng.below(self.leases.len());
        let lease = &mut self.leases[at];
        lease.look_for_cancelled(&self.t.db, &RetryPolicy::default()).await.unwrap();
        for index in lease.open() {
            assert_eq!(self.model[&lease.items()[index].id].state, ItemState::Running);
        }
        if lease.is_acknowledged() {
            self.leases.swap_remove(at);
        }
    }

    async fn check(&self) {
        let (t, queue) = (self.t, &self.queue);
        for (id, expected) in &self.model {
            let view = t.run(async |tr| queue.view_item(tr, id).await).await;
            let view = view.unwrap_or_else(|| panic!("{id} is gone: {expected:?}"));
            let due = view.due.filter(|_| matches!(view.state, ItemState::Scheduled | ItemState::Retrying));
            let payload = String::from_utf8(view.item.clone().unwrap().payload.to_vec()).unwrap();
            let attempts = view.attempts();
            let found = Expected { state: view.state, payload, due: due.map(millis), attempts };
            let waits = matches!(expected.state, ItemState::Scheduled | ItemState::Retrying);
            let expected = Expected { due: expected.due.filter(|_| waits), ..expected.clone() };
            assert!(
                found == expected,
                "{id}: {:?}, {:?}",
                (found.state, found.due, found.attempts),
                expected.state
            );
        }
        let counts = t.run(async |tr| queue.counts(tr).await).await;
        let of = |state| self.model.values().filter(|it| it.state == state).count() as i64;
        assert_eq!(counts.ready, of(ItemState::Ready));
        assert_eq!(counts.running as i64, of(ItemState::Running));
        assert_eq!(counts.waiting, of(ItemState::Scheduled) + of(ItemState::Retrying));
        assert_eq!(counts.dead, of(ItemState::Dead));
        assert_eq!(counts.done as i64, self.done);
        assert!(counts.pushed.is_none_or(|pushed| pushed as i64 == self.pushed));
        assert_eq!(t.counter(queue, "ncancel").await, self.cancelled_running);
        // An item has its unique key until it ends or dies.
        let unique = self.model.values().filter(|it| it.state != ItemState::Dead).count();
        assert_eq!(t.records(queue, "unique").await.len(), unique);
        let waiting = of(ItemState::Scheduled) + of(ItemState::Retrying);
        assert_eq!(t.records(queue, "due").await.len() as i64, waiting);
    }

    /// Cancels all, after which nothing of them is left.
    async fn empty(mut self) {
        let (db, policy) = (&self.t.db, RetryPolicy::default());
        self.queue.purge_all_dead(db, &policy, None).await.unwrap();
        let mut canceller = Canceller::new(self.queue.clone(), CancelFilter::default());
        let mut cancelled = 0;
        while let Some(page) = canceller.page(db, &policy).await.unwrap() {
            cancelled += page.cancelled;
        }
        canceller.close(db, &policy).await.unwrap();
        assert_eq!(cancelled, self.model.values().filter(|it| it.state != ItemState::Dead).count());
        for lease in &mut self.leases {
            lease.look_for_cancelled(db, &policy).await.unwrap();
            assert!(lease.is_acknowledged());
        }
        assert_eq!(records_left(self.t, &self.queue).await, [""; 0]);
        // After an unknown outcome a holder may leave a record of cancelled items to sweepers.
        self.t.jump(2 * HOUR);
        self.t.sweep(&mut self.sweeper, NOW, &rules()).await;
        assert!(self.t.records(&self.queue, "cancelled").await.is_empty());
    }
}

#[test]
fn all_items_that_match_are_cancelled() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let item = |n: usize| {
                let item = NewItem::new(n.to_string()).with_attribute("odd", (n % 2).to_string());
                match kind {
                    Kind::Keyed => item.with_key(format!("key {}", n % 3)),
                    _ => item,
                }
            };
            // More than a page of each state.
            let items: Vec<_> = (0..1_300).map(item).collect();
            t.push_items(&q, &items).await;
            let waiting: Vec<_> = (0..600).map(|n| item(n).with_due(from_millis(7))).collect();
            t.push_items(&q, &waiting).await;
            let mut leases = Vec::new();
            for _ in 0..120 {
                leases.push(t.lease_for(&q, 1, HOUR).await.unwrap());
            }
            let cancel = async |filter: CancelFilter| {
                let mut canceller = Canceller::new(q.clone(), filter);
                let mut cancelled = 0;
                while let Some(page) = canceller.page(&t.db, &RetryPolicy::default()).await.unwrap() {
                    cancelled += page.cancelled;
                }
                cancelled
            };
            let filter = CancelFilter { state: Some(ItemState::Running), ..CancelFilter::default() };
            let odd = CancelFilter { attribute: Some(("odd".into(), "1".into())), ..filter.clone() };
            assert_eq!(cancel(odd).await + cancel(filter).await, 120, "{kind:?}");
            let odd = CancelFilter { attribute: Some(("odd".into(), "1".into())), ..CancelFilter::default() };
            let before = t.run(async |tr| q.counts(tr).await).await;
            let of_odd = cancel(odd).await;
            assert!((900 - 61..=951).contains(&of_odd), "{kind:?}: {of_odd}");
            if kind == Kind::Keyed {
                let key = CancelFilter { key: Some(b"key 1".to_vec()), ..CancelFilter::default() };
                let ready = CancelFilter { state: Some(ItemState::Ready), ..key.clone() };
                let of_ready = cancel(ready).await;
                assert!(of_ready > 150 && cancel(key).await == 100, "{of_ready}");
            }
            cancel(CancelFilter::default()).await;
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting, counts.running), (0, 0, 0), "{kind:?}");
            assert_eq!((counts.pushed, counts.done), (before.pushed, 0), "{kind:?}");
        }
    });
}

#[test]
fn of_a_cancellation_and_what_happens_at_the_same_time_one_wins() {
    on_database(async |t| {
        let policy = &RetryPolicy::default();
        for round in 0..40 {
            let q = &t.queue(format!("q{round}"));
            t.push(q, &["a"]).await;
            // Its lease has run out, and its holder is alive.
            let mut lease = t.lease_for(q, 1, 1).await.unwrap();
            let id = &lease.items()[0].id.clone();
            t.until_past(lease.deadline()).await;
            let (mut sweeping, rules) = (sweeper(q), at_most(2));
            let acknowledged = async {
                lease.acknowledge(&t.db, policy, &[(0, ItemOutcome::Done)]).await.is_ok().then_some(&lease)
            };
            let expired =
                async { sweeping.sweep(&t.db, &|| from_millis(1), &rules).await.unwrap().moved.returned };
            let cancelled = async { q.cancel_item(&t.db, policy, id).await.unwrap() };
            let again = async { q.cancel_item(&t.db, policy, id).await.unwrap() };
            let (held, returned, first, second) = join4(acknowledged, expired, cancelled, again).await;
            let is_cancelled = |change: &ItemChange| matches!(change, ItemChange::Done(_));
            let cancelled = usize::from(is_cancelled(&first)) + usize::from(is_cancelled(&second));
            let done = t.counter(q, "ndone").await;
            let left = t.run(async |tr| q.view_item(tr, id).await).await;
            // It is done, or cancelled once, or back in the queue.
            assert_eq!(done as usize + cancelled + usize::from(left.is_some()), 1, "{first:?}, {second:?}");
            assert!(done == 0 || held.is_some_and(|lease| !lease.is_cancelled(0)));
            assert!(returned == 0 || done == 0);
            let counts = t.run(async |tr| q.counts(tr).await).await;
            let there = i64::from(left.is_some());
            assert_eq!((counts.ready + counts.waiting, counts.running), (there, 0));
        }
    });
}
