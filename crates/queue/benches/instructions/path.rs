//! What is done on each path, and what has to be there before.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::Database;
use kvqueue_queue::{
    Approach, FetchOptions, ItemOutcome, Kind, Lease, Limits, NewItem, Pattern, PushOptions, Queue,
    RetryPolicy, Session, SessionId,
};

const PAYLOAD: [u8; 100] = [b'x'; 100];

/// The lease, in versions: longer than anything here lasts.
const LEASE: u64 = 600_000_000;

/// Items of a push that prepares.
const FILL: usize = 500;

/// What a path does again and again, one transaction each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Adds `k` items.
    Push,
    /// Takes `k` items on a lease.
    Take,
    /// Finishes a whole lease of `k` items.
    Settle,
    /// Takes `k` items and keeps nothing of them: at-most-once.
    Remove,
}

/// The queue of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Fifo,
    /// A keyed queue without rules.
    Keyed,
    /// With limits of keys and of the queue that do not bind.
    Limited,
    /// With keys in order.
    Ordered,
}

/// A path: `rounds` times its work, with `k` items each.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    layout: Layout,
    work: Work,
    k: usize,
    rounds: usize,
}

const fn path(name: &'static str, work: Work, k: usize, rounds: usize) -> Path {
    Path { name, layout: Layout::Fifo, work, k, rounds }
}

/// A hundred times ten items, of a key each.
const fn keyed(name: &'static str, layout: Layout, work: Work) -> Path {
    Path { name, layout, work, k: 10, rounds: 100 }
}

pub(crate) const PATHS: &[Path] = &[
    path("push-1", Work::Push, 1, 300),
    path("push-100", Work::Push, 100, 100),
    path("take-1", Work::Take, 1, 300),
    path("take-100", Work::Take, 100, 100),
    path("settle-1", Work::Settle, 1, 300),
    path("settle-100", Work::Settle, 100, 100),
    path("remove-1", Work::Remove, 1, 300),
    path("remove-100", Work::Remove, 100, 100),
    keyed("keyed-push-10", Layout::Keyed, Work::Push),
    keyed("keyed-take-10", Layout::Keyed, Work::Take),
    keyed("keyed-settle-10", Layout::Keyed, Work::Settle),
    keyed("limited-take-10", Layout::Limited, Work::Take),
    keyed("limited-settle-10", Layout::Limited, Work::Settle),
    keyed("ordered-take-10", Layout::Ordered, Work::Take),
    keyed("ordered-settle-10", Layout::Ordered, Work::Settle),
];

/// How many keys a keyed queue has. Items are pushed for one after the other.
const KEYS: usize = 1_000;

/// Items in the queue in addition to the ones that the path needs, so that no take finds it short.
const REST: usize = 2_000;

/// What a path begins with, and what it has done.
pub(crate) struct Ready {
    session: Session,
    approach: Approach,
    leases: VecDeque<Lease>,
    /// Items that have been pushed with a key; `None` for a queue without keys.
    keyed: Option<usize>,
    /// Items that the path has dealt with.
    done: usize,
}

impl Path {
    /// Items that the path deals with in all.
    pub(crate) fn items(&self) -> usize {
        self.k * self.rounds
    }

    /// The path's queue.
    async fn queue(&self, db: &Database) -> Queue {
        let kind = if self.layout == Layout::Fifo { Kind::Fifo } else { Kind::Keyed };
        let queue = Queue::of_kind(b"instructions/", b"q", kind).unwrap();
        let each = Pattern::keys("*").unwrap();
        let running = |n| Limits::default().with_running(n);
        let rules = match self.layout {
            Layout::Fifo | Layout::Keyed => vec![],
            Layout::Limited => vec![(each, running(1_000)), (Pattern::QUEUE, running(10_000))],
            Layout::Ordered => vec![(each, Limits::default().with_ordered(true))],
        };
        let tr = db.create_trx().unwrap();
        for (pattern, limits) in rules {
            queue.set_rule(&tr, &pattern, &limits).await.unwrap();
        }
        tr.commit().await.unwrap();
        queue
    }

    /// Does what has to be done before.
    pub(crate) async fn prepare(&self, db: &Database) -> Ready {
        let session = Session::with_id(self.queue(db).await, SessionId([7; 16]));
        let keyed = (self.layout != Layout::Fifo).then_some(0);
        let (approach, leases) = (Approach::default(), VecDeque::new());
        let mut ready = Ready { session, approach, leases, keyed, done: 0 };
        let mut missing = REST + if self.work == Work::Push { 0 } else { self.items() };
        while missing > 0 {
            let items = missing.min(FILL);
            ready.push(db, items).await;
            missing -= items;
        }
        if self.work == Work::Settle {
            for _ in 0..self.rounds {
                ready.take(db, self.k).await;
            }
        }
        ready.done = 0;
        ready
    }

    /// Goes the path.
    pub(crate) async fn go(&self, db: &Database, ready: &mut Ready) {
        for _ in 0..self.rounds {
            match self.work {
                Work::Push => ready.push(db, self.k).await,
                Work::Take => ready.take(db, self.k).await,
                Work::Settle => ready.acknowledge(db).await,
                Work::Remove => ready.remove(db, self.k).await,
            }
        }
    }
}

impl Ready {
    async fn push(&mut self, db: &Database, items: usize) {
        let pushed = match &mut self.keyed {
            None => self.session.push(db, &vec![PAYLOAD; items]).await,
            Some(pushed) => {
                let item = |n| NewItem::new(PAYLOAD.to_vec()).with_key(format!("k{}", n % KEYS));
                let new: Vec<_> = (*pushed..*pushed + items).map(item).collect();
                *pushed += items;
                self.session.push_items(db, &new, &PushOptions::default()).await
            }
        };
        self.done += pushed.unwrap().items;
    }

    async fn take(&mut self, db: &Database, k: usize) {
        let k = NonZeroUsize::new(k).unwrap();
        let mut take = FetchOptions::new(k, Duration::from_micros(LEASE), &mut self.approach);
        let lease = self.session.fetch(db, &mut take).await.unwrap().got.unwrap();
        self.done += lease.items().len();
        self.leases.push_back(lease);
    }

    async fn acknowledge(&mut self, db: &Database) {
        let mut lease = self.leases.pop_front().unwrap();
        let done: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Done)).collect();
        lease.acknowledge(db, &RetryPolicy::default(), &done).await.unwrap();
        self.done += done.len();
    }

    async fn remove(&mut self, db: &Database, k: usize) {
        let k = NonZeroUsize::new(k).unwrap();
        let mut take = FetchOptions::new(k, Duration::from_micros(LEASE), &mut self.approach);
        self.done += self.session.take_with(db, &mut take).await.unwrap().got.len();
    }

    /// The path handled the number of items that it returned.
    pub(crate) fn check(&self, path: &Path) {
        assert_eq!(self.done, path.items(), "{}", path.name);
    }
}
