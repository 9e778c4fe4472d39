//! Random pushes of every sort, and what ends items, by several sessions under random faults, against a model.
//!
//! Steps follow one another, so after each the queue must be exactly what the model is. One seed decides everything; a
//! failure prints the command that repeats it.

use std::collections::{BTreeMap, BTreeSet};

use fdb_embedded::Faults;
use kvqueue_queue::{
    Failure, ItemId, ItemOutcome, Kind, NewItem, PushEffect, PushOptions, Queue, Sweeper, from_millis,
};

use crate::common::{
    KINDS, OF_ONE_STEP, Rng, TestDb, k, on_database, records, rules, run_seed, seeds, sweeper,
};

/// Operations per seed.
const STEPS: usize = 30;

/// What a push has answered for each item.
type Answers = Vec<(PushEffect, Option<ItemId>)>;

#[test]
fn random_pushes_match_a_model() {
    on_database(async |t| {
        for seed in seeds(60) {
            run_seed(seed, "random_pushes", OF_ONE_STEP, World::run(t, seed)).await;
        }
    });
}

/// Where an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Ready,
    Later,
    Dead,
    Gone,
}

/// What the model knows of an item.
#[derive(Debug)]

struct Known {
    item: NewItem,
    place: Place,
}

struct World<'t> {
    t: &'t TestDb,
    rng: Rng,
    queue: Queue,
    sweeper: Sweeper,
    items: BTreeMap<ItemId, Known>,
    /// Items by the unique key that they hold.
    unique: BTreeMap<Vec<u8>, ItemId>,
    /// What each operation pushed, and how many items it added.
    operations: BTreeMap<Vec<u8>, (Vec<NewItem>, Answers)>,
    /// Number of the next payload; no two are alike.
    next: u64,
}

impl<'t> World<'t> {
    async fn run(t: &'t TestDb, seed: u64) {
        let mut rng = Rng::new(seed);
        let p = [0.0, 0.1, 0.3][rng.below(3)];
        let plan = Faults::seeded(seed).unknown_committed(p).unknown_not_committed(p).conflict(p / 2.0);
        if p > 0.0 && !t.install(plan) {
            return;
        }
        let queue = t.queue_of(format!("pushes {seed}"), KINDS[rng.below(KINDS.len())]);
        let (items, unique, operations) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let sweeper = sweeper(&queue);
        let mut world = World { t, rng, queue, sweeper, items, unique, operations, next: 0 };
        for _ in 0..STEPS {
            match world.rng.below(10) {
                0..=5 => world.push().await,
                6 => world.pop().await,
                7 => world.sweep().await,
                _ => world.lease().await,
            }
            world.check().await;
        }
        t.end_faults();
        t.run(async |tr| {
            world.queue.delete(tr);
            Ok(())
        })
        .await;
        assert!(t.rows().await.is_empty());
    }

    fn new_item(&mut self) -> NewItem {
        self.next += 1;
        let length = if self.rng.below(12) == 0 { 150_000 } else { 1 };
        let mut item = NewItem::new(format!("{}{}", self.next, " ".repeat(length)));
        item.unique = (self.rng.below(2) == 0).then(|| vec![b'a' + self.rng.below(4) as u8]);
        item.due = (self.rng.below(5) == 0).then_some(from_millis(1_000 + self.next));
        if self.rng.below(4) == 0 {
            item.attributes.insert("number".to_owned(), self.next.to_string());
        }
        if let Kind::Priority(..) = self.queue.kind() {
            item.priority = self.rng.below(3) as i64 - 1;
        }
        item
    }

    async fn push(&mut self) {
        let mut items: Vec<NewItem> = (0..=self.rng.below(4)).map(|_| self.new_item()).collect();
        let operation = (self.rng.below(3) == 0).then(|| format!("op {}", self.rng.below(8)).into_bytes());
        let done = operation.as_ref().and_then(|id| self.operations.get(id));
        let is_repetition = done.is_some() && self.rng.below(3) > 0;
        if let Some((same, _)) = done.filter(|_| is_repetition) {
            items.clone_from(same);
        }
        let mut options = PushOptions::default();
        options.idempotency_key.clone_from(&operation);
        let pushed = self.t.session(&self.queue).push_items(&self.t.db, &items, &options).await;
        if done.is_some() && !is_repetition {
            let error = pushed.unwrap_err();
            assert!(error.idempotency_key_reused().is_some() && !error.is_maybe_committed(), "{error:?}");
            return;
        }
        let pushed = pushed.unwrap();
        let each: Vec<_> = pushed.each().collect();
        assert_eq!(pushed.repeated, done.is_some());
        if let Some((_, first)) = done {
            let knows_added = matches!(self.queue.kind(), Kind::Fifo | Kind::Keyed);
            let again = first.iter().map(|(effect, id)| match effect {
                PushEffect::Added => (PushEffect::Repeated, id.clone().filter(|_| knows_added)),
                effect => (*effect, id.clone()),
            });
            assert!(again.eq(each.into_iter().map(|it| (it.effect, it.id))));
            assert_eq!(pushed.items, 0);
            return;
        }
        assert_eq!(each.len(), items.len());
        let answers = each.iter().map(|it| (it.effect, it.id.clone())).collect();
        for (item, came) in items.iter().cloned().zip(each) {
            let id = came.id.unwrap();
            if let Some(running) = item.unique.as_ref().and_then(|key| self.unique.get(key)) {
                assert_eq!((came.effect, &id), (PushEffect::Duplicate, running));
                continue;
            }
            assert_eq!(came.effect, PushEffect::Added);
            if let Some(key) = &item.unique {
                self.unique.insert(key.clone(), id.clone());
            }
            let place = if item.due.is_some() { Place::Later } else { Place::Ready };
            assert!(self.items.insert(id, Known { item, place }).is_none());
        }
        if let Some(id) = operation {
            self.operations.insert(id, (items, answers));
        }
    }

    /// Takes note of where an item now is, and that its key is free if it has ended.
    fn moved(&mut self, id: &ItemId, place: Place) {
        let known = self.items.get_mut(id).expect("it was pushed");
        assert_eq!(known.place, Place::Ready);
        known.place = place;
        if matches!(place, Place::Gone | Place::Dead)
            && let Some(key) = &known.item.unique
        {
            self.unique.remove(key);
        }
    }

    async fn pop(&mut self) {
        let taken = self.t.session(&self.queue).take(&self.t.db, k(1)).await.unwrap().got;
        taken.iter().for_each(|item| self.moved(&item.id, Place::Gone));
    }

    async fn lease(&mut self) {
        let Some(mut lease) = self.t.lease(&self.queue, self.rng.below(4) + 1).await else { return };
        let failure = Failure::new(from_millis(0), 1, "no");
        let (outcome, place) = match self.rng.below(5) {
            0 => (ItemOutcome::Release, Place::Ready),
            1 => (ItemOutcome::Retry { due: None, failure }, Place::Ready),
            2 => (ItemOutcome::Retry { due: Some(from_millis(9)), failure }, Place::Later),
            3 => (ItemOutcome::Dead(failure), Place::Dead),
            _ => (ItemOutcome::Done, Place::Gone),
        };
        for item in lease.items() {
            let known = &self.items[&item.id].item;
            assert!(item.payload == known.payload, "a payload changed");
            assert_eq!(item.attribute("number"), known.attributes.get("number").map(String::as_str));
            self.moved(&item.id, place);
        }
        self.t.acknowledge(&mut lease, &outcome).await;
    }

    /// A sweep at the end of time: nothing waits for later any more, and all else stays as it is.
    async fn sweep(&mut self) {
        self.t.sweep(&mut self.sweeper, u64::MAX, &rules()).await;
        let later = self.items.values_mut().filter(|known| known.place == Place::Later);
        later.for_each(|known| known.place = Place::Ready);
    }

    fn at(&self, place: Place) -> BTreeSet<Vec<u8>> {
        let at = self.items.iter().filter(|(_, known)| known.place == place);
        at.map(|(id, _)| id.as_bytes().to_vec()).collect()
    }

    async fn check(&self) {
        let listed = self.t.run(async |tr| self.queue.list(tr).await).await;
        let listed: BTreeSet<_> = listed.iter().map(|item| item.id.as_bytes().to_vec()).collect();
        assert_eq!(listed, self.at(Place::Ready));
        assert_eq!(self.t.len(&self.queue).await, listed.len() as i64);
        let rows = self.t.rows().await;
        let ids = |second| -> BTreeSet<Vec<u8>> {
            records(&rows, &self.queue, second).into_iter().map(|(id, _)| id).collect()
        };
        assert_eq!(ids("dead"), self.at(Place::Dead));
        assert_eq!(ids("body"), &self.at(Place::Dead) | &self.at(Place::Later));
        assert!(ids("meta").is_subset(&listed));
        let long = |known: &Known| known.place != Place::Gone && known.item.payload.len() > 100_000;
        assert_eq!(ids("chunk").len(), self.items.values().filter(|known| long(known)).count());
        let unique = records(&rows, &self.queue, "unique").into_iter().map(|(_, id)| id);
        let held = self.unique.values().map(|id| id.as_bytes().to_vec());
        assert_eq!(unique.collect::<BTreeSet<_>>(), held.collect());
        assert_eq!(ids("op").len(), self.operations.len());
        assert_eq!(ids("oplog").len(), self.operations.len());
        assert!(ids("lease").is_empty() && ids("held").is_empty());
    }
}
