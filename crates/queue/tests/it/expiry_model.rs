//! Random operations on items that expire, under random faults, next to a model: an item expires once, at its time, if no attempt has begun.
//!
//! One seed decides everything; a failure prints the command that repeats it.

use std::collections::BTreeMap;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Failure, ItemId, ItemOutcome, ItemState, Kind, Lease, NewItem, OnExpiry, Queue, RetryPolicy, Sweeper,
    from_millis,
};

use crate::common::{
    KINDS, Millis, OF_ONE_STEP, Rng, TestDb, k, on_database, rules, run_seed, seeds, sweeper,
};

/// Steps per seed.
const STEPS: usize = 60;
/// A lease that does not run out, in versions.
const LONG: u64 = 1 << 40;

#[test]
fn random_operations_leave_items_that_expire_as_the_model_says() {
    on_database(async |t| {
        for seed in seeds(60) {
            let ran = async {
                let mut run = Run::new(t, seed);
                for _ in 0..STEPS {
                    run.step().await;
                }
                run.end().await;
            };
            run_seed(seed, "random_operations_leave_items_that_expire", OF_ONE_STEP, ran).await;
        }
    });
}

/// What is known of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    state: ItemState,
    due: Millis,
    expires: Option<Millis>,
    /// No attempt has begun and ended.
    is_new: bool,
}

impl Known {
    fn expires_by(&self, now: Millis) -> bool {
        let waits = matches!(self.state, ItemState::Ready | ItemState::Scheduled);
        waits && self.is_new && self.expires.is_some_and(|expires| expires <= now)
    }
}

struct Run<'t> {
    t: &'t TestDb,
    rng: Rng,
    queue: Queue,
    on_expiry: OnExpiry,
    now: Millis,
    pushed: usize,
    items: BTreeMap<String, Known>,
    leases: Vec<Lease>,
    sweeper: Sweeper,
}

impl<'t> Run<'t> {
    fn new(t: &'t TestDb, seed: u64) -> Run<'t> {
        let mut rng = Rng::new(seed);
        let kind = KINDS[rng.below(KINDS.len())];
        let queue = t.queue_of(format!("{seed}"), kind);
        let sweeper = sweeper(&queue);
        let on_expiry = [OnExpiry::Drop, OnExpiry::Dead][rng.below(2)];
        t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1));
        Run {
            t,
            rng,
            queue,
            on_expiry,
            now: 1_000,
            pushed: 0,
            items: BTreeMap::new(),
            leases: Vec::new(),
            sweeper,
        }
    }

    async fn step(&mut self) {
        match self.rng.below(10) {
            0..3 => self.push().await,
            3 | 4 => self.fetch().await,
            5 | 6 => self.acknowledge().await,
            7 => self.change().await,
            _ => self.sweep().await,
        }
    }

    async fn push(&mut self) {
        let name = format!("{}", self.pushed);
        self.pushed += 1;
        let due = [0, self.now + 20][self.rng.below(2)];
        let expires = [None, Some(self.now + 5), Some(self.now + 50)][self.rng.below(3)];
        let expires = expires.filter(|expires| *expires > due);
        let mut item = NewItem::new(name.clone()).with_unique(name.clone());
        item.expires = expires.map(from_millis);
        item.due = (due > 0).then(|| from_millis(due));
        if self.queue.kind() == Kind::Keyed {
            item.key = Some(vec![b'a' + u8::try_from(self.rng.below(3)).unwrap()]);
        }
        self.t.push_items(&self.queue, &[item]).await;
        let state = if due > 0 { ItemState::Scheduled } else { ItemState::Ready };
        self.items.insert(name, Known { state, due, expires, is_new: true });
    }

    async fn fetch(&mut self) {
        let Some(lease) = self.t.lease_for(&self.queue, 3, LONG).await else { return };
        for item in lease.items() {
            let known = self.items.get_mut(str::from_utf8(&item.payload).unwrap()).unwrap();
            assert_eq!(known.state, ItemState::Ready);
            assert_eq!(item.meta.as_ref().is_some_and(|meta| meta.has_expired(from_millis(self.now))), {
                known.is_new && known.expires.is_some_and(|expires| expires <= self.now)
            });
            known.state = ItemState::Running;
        }
        self.leases.push(lease);
    }

    async fn acknowledge(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let mut lease = self.leases.swap_remove(self.rng.below(self.leases.len()));
        let due = self.now + 10;
        let at = from_millis(self.now);
        let outcomes = [
            ItemOutcome::Done,
            ItemOutcome::Release,
            ItemOutcome::Postpone { due: from_millis(due) },
            ItemOutcome::Retry {
                due: Some(from_millis(due)),
                failure: Failure::new(from_millis(1), 1, "no"),
            },
            ItemOutcome::Retry { due: None, failure: Failure::new(from_millis(1), 1, "no") },
            ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no")),
            ItemOutcome::Expired { at, on_expiry: OnExpiry::Drop },
            ItemOutcome::Expired { at, on_expiry: OnExpiry::Dead },
        ];
        let outcome = outcomes[self.rng.below(outcomes.len())].clone();
        self.t.acknowledge(&mut lease, &outcome).await;
        for item in lease.items() {
            let name = str::from_utf8(&item.payload).unwrap();
            let known = self.items.get_mut(name).unwrap();
            (known.due, known.state) = match &outcome {
                ItemOutcome::Release => (0, ItemState::Ready),
                ItemOutcome::Retry { due: None, .. } => (0, ItemState::Ready),
                ItemOutcome::Postpone { .. } => (due, ItemState::Scheduled),
                ItemOutcome::Retry { .. } => (due, ItemState::Retrying),
                ItemOutcome::Dead(_) | ItemOutcome::Expired { on_expiry: OnExpiry::Dead, .. } => {
                    (0, ItemState::Dead)
                }
                _ => {
                    self.items.remove(name);
                    continue;
                }
            };
            known.is_new &= matches!(outcome, ItemOutcome::Release | ItemOutcome::Postpone { .. });
        }
    }

    /// Cancels an item, or retries a dead letter.
    async fn change(&mut self) {
        let names: Vec<_> = self.items.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = &names[self.rng.below(names.len())];
        let Some(id) = self.ids().await.remove(name) else { panic!("{name} is not there") };
        let (t, policy) = (self.t, RetryPolicy::default());
        let known = self.items.get_mut(name).unwrap();
        match known.state {
            ItemState::Dead => {
                self.queue.retry_item(&t.db, &policy, &id.1).await.unwrap();
                *known = Known { state: ItemState::Ready, due: 0, expires: None, is_new: false };
            }
            ItemState::Running => {}
            _ => {
                self.queue.cancel_item(&t.db, &policy, &id.1).await.unwrap();
                self.items.remove(name);
            }
        }
    }

    async fn sweep(&mut self) {
        self.now += [0, 3, 30][self.rng.below(3)] as Millis;
        let rules = rules().with_on_expiry(self.on_expiry);
        let moved = self.t.sweep(&mut self.sweeper, self.now, &rules).await.moved;
        let now = self.now;
        let gone: Vec<_> = self
            .items
            .iter()
            .filter(|(_, known)| known.expires_by(now))
            .map(|(name, _)| name.clone())
            .collect();
        assert_eq!(moved.expired, gone.len());
        for name in gone {
            match self.on_expiry {
                OnExpiry::Drop => drop(self.items.remove(&name)),
                OnExpiry::Dead => {
                    let known = self.items.get_mut(&name).unwrap();
                    (known.state, known.is_new) = (ItemState::Dead, false);
                }
            }
        }
        for known in self.items.values_mut() {
            if matches!(known.state, ItemState::Scheduled | ItemState::Retrying) && known.due <= now {
                known.state = ItemState::Ready;
            }
        }
        self.check().await;
    }

    /// State and id of each item in the queue, by its payload.
    async fn ids(&self) -> BTreeMap<String, (ItemState, ItemId)> {
        let (t, mut found) = (self.t, BTreeMap::new());
        for state in
            [ItemState::Ready, ItemState::Scheduled, ItemState::Retrying, ItemState::Running, ItemState::Dead]
        {
            let mut after = None;
            loop {
                let page = t.run(async |tr| self.queue.view(tr, state, after.as_ref(), k(100)).await).await;
                for view in page.items {
                    let payload = view.item.unwrap().payload.to_vec();
                    found.insert(String::from_utf8(payload).unwrap(), (view.state, view.id));
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        found
    }

    /// The queue has the items of the model in their states, and a row for each item that can still expire.
    async fn check(&self) {
        let found = self.ids().await;
        // A tried item that was postponed is scheduled here, and retrying there.
        let waiting = |state| if state == ItemState::Retrying { ItemState::Scheduled } else { state };
        let states: BTreeMap<_, _> = found.iter().map(|(name, (state, _))| (name, waiting(*state))).collect();
        let expected: BTreeMap<_, _> =
            self.items.iter().map(|(name, known)| (name, waiting(known.state))).collect();
        assert_eq!(states, expected);
        let rows = self.t.records(&self.queue, "expiry").await;
        for (name, known) in &self.items {
            let id = &found[name].1;
            let has_row = rows.iter().any(|(key, _)| key.ends_with(id.as_bytes()));
            let waits = matches!(known.state, ItemState::Ready | ItemState::Scheduled);
            if waits && known.is_new && known.expires.is_some() {
                assert!(has_row, "{name}: {known:?}");
            }
            assert!(!has_row || known.expires.is_some_and(|expires| expires > self.now), "{name}: {known:?}");
        }
        let most = self.items.values().filter(|known| known.expires.is_some()).count();
        assert!(rows.len() <= most, "{} rows of {most} items", rows.len());
    }

    /// Far in the future all items that can expire have.
    async fn end(mut self) {
        self.now += 1_000;
        self.sweep().await;
        self.t.end_faults();
        assert!(self.items.values().all(|known| !known.expires_by(self.now)));
        let leases: Vec<_> = std::mem::take(&mut self.leases);
        for mut lease in leases {
            self.t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            for item in lease.items() {
                self.items.remove(str::from_utf8(&item.payload).unwrap());
            }
        }
        self.check().await;
        let counts = self.t.run(async |tr| self.queue.counts(tr).await).await;
        let of = |states: &[ItemState]| {
            i64::try_from(self.items.values().filter(|known| states.contains(&known.state)).count()).unwrap()
        };
        assert_eq!(counts.ready, of(&[ItemState::Ready]));
        assert_eq!(counts.waiting, of(&[ItemState::Scheduled, ItemState::Retrying]));
        assert_eq!(counts.dead, of(&[ItemState::Dead]));
        if let Some(pushed) = counts.pushed {
            assert_eq!(pushed, self.pushed as u64);
        }
    }
}
