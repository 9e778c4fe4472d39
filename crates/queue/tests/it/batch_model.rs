//! Random batches under random faults, against a list of them: each calls back once, with the right counts. Items are pushed to them, and join them later.
//!
//! One seed decides everything but when operations are broken off; a failure prints the command that repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use fdb_embedded::Faults;
use futures::poll;
use kvqueue_queue::item_batch::{BatchCounts, BatchId, CALLBACK_ATTRIBUTES, Join, NewBatch};
use kvqueue_queue::{
    Ending, Failure, Item, ItemChange, ItemId, ItemOutcome, Kind, Lease, Movable, Mover, NewItem,
    PushOptions, Queue, QueueError, SweepRules, Sweeper, from_millis,
};

use crate::batches::{NOW, policy};
use crate::common::{
    KINDS, Millis, OF_ONE_STEP, Rng, TestDb, k, on_database, rules, run_seed, seeds, sweeper,
};

const STEPS: usize = 80;
const LONG: u64 = 3_600_000_000;

#[test]
fn random_batches_call_back_once_with_the_right_counts() {
    on_database(async |t| {
        for seed in seeds(30) {
            let ran = async {
                let mut run = Run::new(t, seed);
                for _ in 0..STEPS {
                    run.step().await;
                }
                run.check().await;
            };
            run_seed(seed, "random_batches_call_back", OF_ONE_STEP, ran).await;
        }
    });
}

/// What is known of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    counts: BatchCounts,
    deadline: Option<Millis>,
    committed: bool,
    /// It was cancelled, and does not call back.
    cancelled: bool,
    /// It has called back: why, and with which counts.
    closed: Option<(&'static str, BatchCounts)>,
}

impl Known {
    /// What a sweep at this time makes of it.
    fn sweep(&mut self, now: Millis) {
        if self.cancelled || self.closed.is_some() {
            return;
        }
        if self.committed && self.counts.ended() == self.counts.members {
            self.closed = Some(("complete", self.counts));
        } else if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.closed = Some(("deadline", self.counts));
        }
    }

    fn end(&mut self, ending: Ending) {
        let counts = &mut self.counts;
        match ending {
            Ending::Done => counts.done += 1,
            Ending::Dead => counts.dead += 1,
            Ending::Cancelled => counts.cancelled += 1,
            _ => counts.taken += 1,
        }
    }
}

struct Run<'t> {
    t: &'t TestDb,
    rng: Rng,
    home: Queue,
    /// Two of them, which items are moved between.
    work: [Queue; 2],
    sweepers: [Sweeper; 2],
    now: Millis,
    batches: BTreeMap<BatchId, Known>,
    /// What items on leases have joined since they were fetched.
    joined: BTreeMap<ItemId, BTreeSet<BatchId>>,
    leases: Vec<Lease>,
}

impl<'t> Run<'t> {
    fn new(t: &'t TestDb, seed: u64) -> Run<'t> {
        let mut rng = Rng::new(seed);
        let home = t.queue_of(format!("model/{seed}/home"), KINDS[rng.below(KINDS.len())]);
        let kinds = [Kind::Fifo, Kind::Keyed];
        let work = [0, 1].map(|n| t.queue_of(format!("model/{seed}/{n}"), kinds[rng.below(2)]));
        // The home may be where the members are.
        let home = if rng.below(3) == 0 { work[0].clone() } else { home };
        t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.1));
        let sweepers = [sweeper(&home), sweeper(&home)];
        let (batches, joined) = (BTreeMap::new(), BTreeMap::new());
        Run { t, rng, home, work, sweepers, now: NOW, batches, joined, leases: Vec::new() }
    }

    async fn step(&mut self) {
        self.now += [0, 1, 300][self.rng.below(3)];
        match self.rng.below(16) {
            0 | 1 => self.make().await,
            2..5 => self.push().await,
            5 | 6 => self.lease().await,
            7 | 8 => self.acknowledge().await,
            9 => self.take_or_cancel().await,
            10 => self.move_some().await,
            11 => self.commit().await,
            12 if self.rng.below(4) == 0 => self.cancel().await,
            13 | 14 => self.join().await,
            _ => self.sweep().await,
        }
    }

    async fn make(&mut self) {
        let deadline = (self.rng.below(3) == 0).then(|| self.now + 1 + self.rng.below(5_000) as u64);
        let batch =
            NewBatch { deadline: deadline.map(from_millis), ..NewBatch::new(NewItem::new("callback")) };
        let id = self.home.create_batch(&self.t.db, &policy(), &batch, from_millis(self.now)).await.unwrap();
        self.batches.insert(id, Known { deadline, ..Known::default() });
    }

    /// One of the batches.
    fn choose(&mut self) -> Option<BatchId> {
        let n = self.batches.len();
        (n > 0).then(|| self.batches.keys().nth(self.rng.below(n)).unwrap().clone())
    }

    async fn push(&mut self) {
        let Some(id) = self.choose() else { return };
        let n = 1 + self.rng.below(4);
        let items: Vec<_> = (0..n).map(|_| NewItem::new("member").with_batch(id.clone())).collect();
        let work = &self.work[self.rng.below(2)];
        let pushed = self.t.session(work).push_items(&self.t.db, &items, &PushOptions::default()).await;
        let known = self.batches.get_mut(&id).unwrap();
        if known.committed || known.cancelled || known.closed.is_some() {
            assert!(pushed.unwrap_err().batch_refused().is_some());
        } else {
            pushed.unwrap();
            known.counts.members += n as u64;
        }
    }

    async fn lease(&mut self) {
        let (work, n) = (&self.work[self.rng.below(2)], 1 + self.rng.below(4));
        self.leases.extend(self.t.lease_for(work, n, LONG).await);
    }

    /// A ready item, or one on a lease, joins a batch.
    async fn join(&mut self) {
        let Some(batch) = self.choose() else { return };
        let work = self.work[self.rng.below(2)].clone();
        let leased = self.leases.iter().find_map(|lease| Some(lease.items()[lease.open().next()?].clone()));
        let item = match leased.filter(|_| self.rng.below(2) == 0) {
            Some(item) => item,
            None => match self.t.run(async |tr| work.list(tr).await).await.pop() {
                Some(item) => item,
                None => return,
            },
        };
        let known = self.batches.get_mut(&batch).unwrap();
        let is_open = !known.committed && !known.cancelled && known.closed.is_none();
        // What a foreign batch refuses, the transaction leaves unchanged.
        let (ids, mut is_there) = (std::slice::from_ref(&item.id), false);
        for work in &self.work {
            let joined = self.t.run(async |tr| match work.join_batch(tr, &batch, ids).await {
                Ok(joined) => Ok(Some(joined)),
                Err(QueueError::NoBatch { .. } | QueueError::BatchCommitted { .. }) => Ok(None),
                // It is an item of the other queue.
                Err(QueueError::WrongKind { .. }) => Ok(Some(vec![Join::Gone])),
                Err(error) => Err(error),
            });
            let joined = joined.await;
            assert_eq!(joined.is_some(), is_open);
            // After a commit of unknown outcome it was a member before.
            is_there |= joined.is_some_and(|joined| matches!(joined[0], Join::Joined(_) | Join::WasMember));
        }
        let has = item.meta.as_ref().is_some_and(|meta| meta.batches.contains(&batch));
        if is_there && !has && self.joined.entry(item.id.clone()).or_default().insert(batch.clone()) {
            self.batches.get_mut(&batch).unwrap().counts.members += 1;
        }
    }

    /// The end of an item.
    fn ended(&mut self, item: &Item, ending: Ending) {
        let mut batches = self.joined.remove(&item.id).unwrap_or_default();
        batches.extend(item.meta.iter().flat_map(|meta| meta.batches.iter().cloned()));
        for id in batches {
            let Some(known) = self.batches.get_mut(&id) else { continue };
            if !known.cancelled && known.closed.is_none() {
                known.end(ending);
            }
        }
    }

    async fn acknowledge(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let at = self.rng.below(self.leases.len());
        let mut lease = self.leases.swap_remove(at);
        let mut outcomes = Vec::new();
        for index in lease.open() {
            let outcome = match self.rng.below(6) {
                0..3 => ItemOutcome::Done,
                3 => ItemOutcome::Dead(Failure::new(from_millis(self.now), 1, "no")),
                4 => ItemOutcome::Release,
                _ => continue,
            };
            outcomes.push((index, outcome));
        }
        lease.acknowledge(&self.t.db, &policy(), &outcomes).await.unwrap();
        for (index, outcome) in outcomes {
            let ending = match outcome {
                _ if lease.is_cancelled(index) => continue,
                ItemOutcome::Done => Ending::Done,
                ItemOutcome::Dead(_) => Ending::Dead,
                _ => continue,
            };
            self.ended(&lease.items()[index], ending);
        }
        if lease.open().next().is_some() {
            self.leases.push(lease);
        }
    }

    async fn take_or_cancel(&mut self) {
        let work = self.work[self.rng.below(2)].clone();
        let (db, policy) = (&self.t.db, policy());
        match self.rng.below(4) {
            0 => {
                let taken = self.t.session(&work).take(db, k(1)).await.unwrap();
                for item in taken.got {
                    self.ended(&item, Ending::Taken);
                }
            }
            // Retried dead letters are no members.
            1 => drop(work.retry_all_dead(db, &policy, None).await.unwrap()),
            2 => {
                let items = self.t.run(async |tr| work.list(tr).await).await;
                let Some(item) = items.first() else { return };
                let cancelled = work.cancel_item(db, &policy, &item.id).await.unwrap();
                assert!(matches!(cancelled, ItemChange::Done(_)));
                self.ended(item, Ending::Cancelled);
            }
            _ => {
                let running =
                    self.leases.iter().find_map(|lease| Some(lease.items()[lease.open().next()?].clone()));
                let Some(item) = running else { return };
                if self.cancel_running(&item.id).await {
                    self.ended(&item, Ending::Cancelled);
                }
            }
        }
    }

    async fn cancel_running(&self, id: &ItemId) -> bool {
        for work in &self.work {
            let done = work.cancel_item(&self.t.db, &policy(), id).await.unwrap();
            if matches!(done, ItemChange::Done(_)) {
                return true;
            }
        }
        false
    }

    async fn move_some(&mut self) {
        let (from, to) = if self.rng.below(2) == 0 { (0, 1) } else { (1, 0) };
        let what = if self.rng.below(2) == 0 { Movable::Ready } else { Movable::Dead };
        // Callbacks stay where they are looked for.
        if self.home.name() == self.work[from].name() {
            return;
        }
        let mut mover = Mover::new(self.work[from].clone(), self.work[to].clone(), what).unwrap();
        mover.page(&self.t.db, &policy(), k(2)).await.unwrap();
        mover.close(&self.t.db, &policy()).await.unwrap();
    }

    async fn commit(&mut self) {
        let Some(id) = self.choose() else { return };
        if self.rng.below(4) == 0 {
            // The program is killed, and tries once more.
            let polls = self.rng.below(6);
            killed(self.home.finish_batch(&self.t.db, &policy(), &id, from_millis(self.now)), polls).await;
        }
        self.home.finish_batch(&self.t.db, &policy(), &id, from_millis(self.now)).await.unwrap();
        let known = self.batches.get_mut(&id).unwrap();
        known.committed |= !known.cancelled && known.closed.is_none();
    }

    async fn cancel(&mut self) {
        let Some(id) = self.choose() else { return };
        let dropped = self.home.drop_batch(&self.t.db, &policy(), &id).await.unwrap();
        let known = self.batches.get_mut(&id).unwrap();
        let is_there = !known.cancelled && known.closed.is_none();
        assert_eq!(dropped, is_there.then_some(known.counts));
        known.cancelled |= is_there;
    }

    async fn sweep(&mut self) {
        let (now, which, dies) = (self.now, self.rng.below(2), self.rng.below(4) == 0);
        let rules: SweepRules = rules();
        if dies {
            let polls = self.rng.below(12);
            let clock = move || from_millis(now);
            killed(self.sweepers[which].sweep(&self.t.db, &clock, &rules), polls).await;
            // The claim of a sweeper that died keeps others away for a while.
            self.sweepers[which] = sweeper(&self.home);
            self.t.jump(3_000_000);
        }
        // Until nothing is left to do: a claim of the other sweeper makes it wait.
        loop {
            let swept = self.t.sweep(&mut self.sweepers[which], now, &rules).await;
            if swept.closed_batches.is_empty() && !self.has_marks().await {
                break;
            }
            self.t.jump(3_000_000);
        }
        self.batches.values_mut().for_each(|known| known.sweep(now));
    }

    /// Whether a batch is to be looked at by now.
    async fn has_marks(&self) -> bool {
        let due = self.t.records(&self.home, "batch-due").await;
        let deadlines = self.batches.values().filter_map(|known| {
            let is_open = !known.cancelled && known.closed.is_none();
            known.deadline.filter(|deadline| is_open && *deadline > self.now)
        });
        due.len() > deadlines.count()
    }

    async fn check(&mut self) {
        self.t.end_faults();
        self.sweep().await;
        let closed: BTreeMap<BatchId, _> =
            self.batches.iter().filter_map(|(id, known)| Some((id.clone(), known.closed?))).collect();
        // They may be on leases, or among the ready items.
        for mut lease in std::mem::take(&mut self.leases) {
            self.t.acknowledge(&mut lease, &ItemOutcome::Release).await;
        }
        let found = self.t.run(async |tr| self.home.list(tr).await).await;
        let found = found.iter().filter(|item| item.attribute("batch").is_some());
        let mut called: BTreeMap<BatchId, Vec<Vec<String>>> = BTreeMap::new();
        for item in found {
            let values = CALLBACK_ATTRIBUTES[1..].iter().map(|name| item.attribute(name).unwrap().to_owned());
            let id = item.attribute("batch").unwrap().parse().unwrap();
            called.entry(id).or_default().push(values.collect());
        }
        // Callbacks in a home that is worked on may have been handled.
        if self.work.iter().all(|work| work.name() != self.home.name()) {
            assert_eq!(called.keys().collect::<Vec<_>>(), closed.keys().collect::<Vec<_>>());
        }
        for (id, values) in called {
            let (reason, counts) = closed[&id];
            let BatchCounts { members, done, dead, cancelled, taken, .. } = counts;
            let numbers = [members, done, dead, cancelled, 0, taken].map(|n| n.to_string());
            let expected: Vec<_> = std::iter::once(reason.to_owned()).chain(numbers).collect();
            assert_eq!(values, [expected], "{id}");
        }
        for (id, known) in &self.batches {
            let found = self.t.run(async |tr| self.home.batch(tr, id).await).await;
            let expected = (!known.cancelled && known.closed.is_none()).then_some(known.counts);
            assert_eq!(found.map(|view| view.counts), expected, "{id}");
        }
        let open = self.batches.values().filter(|known| !known.cancelled && known.closed.is_none()).count();
        assert_eq!(self.t.records(&self.home, "batch").await.len(), open);
    }
}

/// Begins something, and drops it after it was polled so many times.
async fn killed(doing: impl Future, polls: usize) {
    let mut doing = pin!(doing);
    for _ in 0..polls {
        if poll!(doing.as_mut()).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
