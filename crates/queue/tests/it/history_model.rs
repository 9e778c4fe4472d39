//! Random ends of items under random faults, in queues of all kinds, against a list of them: each is recorded once, in order, and found.
//!
//! One seed decides everything; a failure prints the command that repeats it.

use std::collections::BTreeMap;
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    EndedItem, Ending, Failure, HistoryFilter, HistoryIndex, ItemChange, ItemId, ItemOutcome, Lease,
    MAX_RESULT, NewItem, Queue, Recording, RetryPolicy, Session, from_millis, millis,
};

use crate::common::{
    KINDS, Millis, OF_ONE_STEP, Rng, TestDb, k, on_database, rules, run_seed, seeds, sweeper,
};
use crate::history::{Clock, START, all};

const STEPS: usize = 60;
const LONG: u64 = 3_600_000_000;
/// The lengths of results.
const RESULTS: [usize; 4] = [0, 3, MAX_RESULT, MAX_RESULT + 7];

#[test]
fn random_ends_are_recorded_once_and_listed_in_order() {
    on_database(async |t| {
        for seed in seeds(35) {
            let ran = async {
                let mut run = Run::new(t, seed);
                for _ in 0..STEPS {
                    run.step().await;
                }
                run.check().await;
            };
            run_seed(seed, "random_ends_are_recorded", OF_ONE_STEP, ran).await;
        }
    });
}

struct Run<'t> {
    t: &'t TestDb,
    rng: Rng,
    queue: Queue,
    session: Session,
    clock: Clock,
    now: Millis,
    /// How many items were pushed. Each has its number modulo 3 as an attribute.
    pushed: usize,
    /// The attribute of each item that is known.
    known: BTreeMap<ItemId, String>,
    leases: Vec<Lease>,
    /// The ends, in order.
    ends: Vec<(ItemId, Ending, Millis)>,
    /// The results of items, by their lengths.
    results: BTreeMap<ItemId, usize>,
}

/// A result of this length.
fn result(len: usize) -> Vec<u8> {
    vec![b'r'; len]
}

impl<'t> Run<'t> {
    fn new(t: &'t TestDb, seed: u64) -> Run<'t> {
        let mut rng = Rng::new(seed);
        let kind = KINDS[rng.below(KINDS.len())];
        let clock = Clock::new();
        let queue = t.queue_of(format!("model/{seed}"), kind).with_recorder(&clock.recorder(Recording::On));
        let session = Session::new(queue.clone());
        t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.1));
        let (known, leases, ends) = (BTreeMap::new(), Vec::new(), Vec::new());
        let results = BTreeMap::new();
        Run { t, rng, queue, session, clock, now: START, pushed: 0, known, leases, ends, results }
    }

    async fn step(&mut self) {
        self.now += [0, 1, 20_000, 90_000][self.rng.below(4)];
        self.clock.set(self.now);
        if self.rng.below(12) == 0 {
            self.index().await;
        }
        match self.rng.below(10) {
            0..3 => self.push().await,
            3 | 4 => {
                let n = 1 + self.rng.below(4);
                self.leases.extend(self.t.lease_for(&self.queue, n, LONG).await);
            }
            5 | 6 => self.acknowledge().await,
            7 => self.take().await,
            8 => self.change(true).await,
            _ => self.change(false).await,
        }
    }

    async fn push(&mut self) {
        let item = |n: usize| NewItem::new("x").with_attribute("n", (n % 3).to_string());
        let n = 1 + self.rng.below(5);
        let items: Vec<_> = (self.pushed..self.pushed + n).map(item).collect();
        self.pushed += n;
        self.t.push_items(&self.queue, &items).await;
        for item in self.t.run(async |tr| self.queue.list(tr).await).await {
            let attribute = item.attribute("n").unwrap().to_owned();
            self.known.insert(item.id, attribute);
        }
    }

    /// Indexes the history by the attribute, or by another one, or no longer. What recorders knew of the index is a minute ago then.
    async fn index(&mut self) {
        // On a cluster it would take a minute.
        if !self.t.jump(1) {
            return;
        }
        let names: &[&str] = [&["n"][..], &["n", "other"], &["other"], &[]][self.rng.below(4)];
        let index = HistoryIndex::new(names.iter().copied()).unwrap();
        let (queue, now) = (&self.queue, self.now);
        self.t.run(async |tr| queue.keep_history(tr, Duration::from_hours(24)).await).await;
        self.t.run(async |tr| queue.index_history(tr, &index, from_millis(now)).await).await;
        self.t.jump(61_000_000);
    }

    /// Of one transaction.
    fn ended(&mut self, mut ends: Vec<(ItemId, Ending)>) {
        ends.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.ends.extend(ends.into_iter().map(|(id, ending)| (id, ending, self.now)));
    }

    async fn acknowledge(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let at = self.rng.below(self.leases.len());
        let mut lease = self.leases.swap_remove(at);
        let mut outcomes = Vec::new();
        for index in lease.open() {
            let outcome = match self.rng.below(5) {
                0 => ItemOutcome::Done,
                4 => {
                    let len = RESULTS[self.rng.below(RESULTS.len())];
                    ItemOutcome::DoneWith(result(len).into())
                }
                1 => ItemOutcome::Dead(Failure::new(from_millis(self.now), 1, "no")),
                2 => ItemOutcome::Release,
                _ => continue,
            };
            outcomes.push((index, outcome));
        }
        lease.acknowledge(&self.t.db, &RetryPolicy::default(), &outcomes).await.unwrap();
        let ending = |(index, outcome): &(usize, ItemOutcome)| {
            let ending = match outcome {
                _ if lease.is_cancelled(*index) => return None,
                outcome if outcome.is_done() => Ending::Done,
                ItemOutcome::Dead(_) => Ending::Dead,
                _ => return None,
            };
            Some((lease.items()[*index].id.clone(), ending))
        };
        let ends = outcomes.iter().filter_map(ending).collect();
        for (index, outcome) in &outcomes {
            if let ItemOutcome::DoneWith(result) = outcome
                && !lease.is_cancelled(*index)
            {
                self.results.insert(lease.items()[*index].id.clone(), result.len());
            }
        }
        self.ended(ends);
        if lease.open().next().is_some() {
            self.leases.push(lease);
        }
    }

    async fn take(&mut self) {
        let n = 1 + self.rng.below(3);
        let taken = self.session.take(&self.t.db, k(n)).await.unwrap();
        self.ended(taken.got.into_iter().map(|item| (item.id, Ending::Taken)).collect());
    }

    /// Cancels an item, or retries or deletes it.
    async fn change(&mut self, cancels: bool) {
        let ids: Vec<&ItemId> = self.known.keys().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.rng.below(ids.len())].clone();
        let (q, db, policy) = (&self.queue, &self.t.db, RetryPolicy::default());
        let is_dead = self.ends.iter().rev().find(|(ended, ..)| *ended == id);
        let is_dead = is_dead.is_some_and(|(_, ending, _)| *ending == Ending::Dead);
        let has_ended = if cancels {
            matches!(q.cancel_item(db, &policy, &id).await.unwrap(), ItemChange::Done(_))
        } else if is_dead {
            q.retry_item(db, &policy, &id).await.unwrap();
            false
        } else {
            matches!(q.delete_item(db, &policy, &id).await.unwrap(), ItemChange::Done(_))
        };
        // A dead letter that was retried and is ready again ends once more.
        if has_ended {
            self.ended(vec![(id, Ending::Cancelled)]);
        }
    }

    async fn check(&mut self) {
        self.t.end_faults();
        // Groups of one minute are in the order of their commits, and the clock never goes back.
        let n = 1 + self.rng.below(9);
        let has = |id: &ItemId, n: &str| self.known.get(id).is_some_and(|attribute| attribute == n);
        let attributes = |n: &str| vec![("n".to_owned(), n.to_owned())];
        let none = HistoryFilter::default();
        let [since, until] = [START + 200_000, START + 900_000].map(|at| Some(from_millis(at)));
        let filters = [
            none.clone(),
            HistoryFilter { ending: Some(Ending::Cancelled), ..none.clone() },
            HistoryFilter { attributes: attributes("1"), ..none.clone() },
            HistoryFilter { since, until, ..none },
        ];
        for filter in filters {
            let wanted = |(id, ending, at): &&(ItemId, Ending, Millis)| {
                filter.ending.is_none_or(|wanted| wanted == *ending)
                    && filter.attributes.iter().all(|(_, n)| has(id, n))
                    && filter.since.is_none_or(|since| *at >= millis(since))
                    && filter.until.is_none_or(|until| *at < millis(until))
            };
            let expected: Vec<_> = self.ends.iter().filter(wanted).rev().cloned().collect();
            let found = all(self.t, &self.queue, &filter, n).await;
            let found: Vec<_> =
                found.into_iter().map(|item| (item.id, item.ending, millis(item.ended))).collect();
            assert_eq!(found, expected, "{filter:?}");
        }
        for id in self.known.keys() {
            let last = self.ends.iter().rev().find(|(ended, ..)| ended == id);
            let found = self.t.run(async |tr| self.queue.ended_item(tr, id).await).await;
            let found = found.map(|item| (item.id, item.ending, millis(item.ended)));
            assert_eq!(found.as_ref(), last, "{id}");
        }
        self.check_results(n).await;
        // What is too old goes with its results.
        self.t.run(async |tr| self.queue.keep_history(tr, Duration::from_mins(2)).await).await;
        let mut sweeper = sweeper(&self.queue);
        for minutes in 0..4 {
            self.t.sweep(&mut sweeper, self.now + minutes * 60_000, &rules()).await;
            self.check_results(n).await;
        }
    }

    /// Each result that the history names has its row, and there is no other row.
    async fn check_results(&self, n: usize) {
        let ended = all(self.t, &self.queue, &HistoryFilter::default(), n).await;
        let mut rows = 0;
        for item in &ended {
            let EndedItem { id, ending, result: named, .. } = item;
            let given = self.results.get(id).filter(|_| *ending == Ending::Done);
            assert_eq!(*named, given.map(|len| *len.min(&(MAX_RESULT + 1))), "{id}");
            let found = self.t.run(async |tr| self.queue.result(tr, item).await).await;
            let kept = given.filter(|len| **len <= MAX_RESULT);
            assert_eq!(found.as_deref(), kept.map(|len| result(*len)).as_deref(), "{id}");
            rows += usize::from(found.is_some());
        }
        assert_eq!(self.t.records(&self.queue, "result").await.len(), rows);
    }
}
