//! A worker's place in the world: all that it does goes through here.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use kvqueue_queue::{
    LeaseId, Queue, Recorder, Recording, RetryPolicy, Session, SessionId, Watch, from_millis,
};

use crate::claims::Claim;
use crate::intent::{Intent, Operation};
use crate::rng::Rng;
use crate::world::{Millis, World};

/// Why a worker has not gone on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits for the database.
    Working,
    /// It lets others go first.
    Pausing,
    /// It waits on a watch of this counter; they are numbered.
    Watching(Counter, u64),
    /// It wants to die.
    Dying,
}

/// What a watch looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Items that became ready.
    Ready,
    /// Slots of the whole queue that became free.
    Slots,
    /// Items that were put aside.
    Later,
}

/// How far a clock on a wall is wrong at the most, in milliseconds; and how far where what items do depends on clocks.
const SKEW: u64 = 40_000;
pub(crate) const MAX_SKEW: u64 = 150_000;

/// A worker's place in the world.
pub(crate) struct Desk {
    pub(crate) world: Rc<World>,
    /// The number of its queue, and the queue.
    pub(crate) at: usize,
    pub(crate) queue: Queue,
    /// Whether it records the ends of items.
    recording: Recording,
    name: String,
    rng: RefCell<Rng>,
    /// How far its clock is wrong, in milliseconds.
    skew: i64,
    operations: Cell<u64>,
    watches: Cell<u64>,
    /// Until when its watch is to wait at most.
    until: Cell<Option<u64>>,
    /// What it is doing.
    current: RefCell<Option<Rc<Operation>>>,
    stop: Cell<Stop>,
    is_cancelled: Cell<bool>,
}

impl Desk {
    pub(crate) fn new(world: Rc<World>, at: usize, name: String, mut rng: Rng) -> Desk {
        let most = if world.has_changes { MAX_SKEW } else { SKEW }.cast_signed();
        let skew = [0, 0, most, -most][rng.below(4)];
        let mut queue = world.queues[at].clone();
        let mut recording = Recording::Off;
        if world.has_changes {
            // Some programs know that a history is kept, some know nothing of histories.
            recording = [Recording::On, Recording::Off, Recording::AsStored][rng.below(9).min(2)];
            let clock = world.clock_of(skew);
            queue = queue
                .with_recorder(&Recorder::new(recording, Some(name.clone()), move || from_millis(clock())));
        }
        Desk {
            queue,
            recording,
            world,
            at,
            name,
            rng: RefCell::new(rng),
            skew,
            operations: Cell::new(0),
            watches: Cell::new(0),
            until: Cell::new(None),
            current: RefCell::default(),
            stop: Cell::new(Stop::Working),
            is_cancelled: Cell::new(false),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound)
    }

    /// True in this many cases of a hundred.
    pub(crate) fn chance(&self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Whether operators divide its queue into partitions.
    pub(crate) fn is_divided(&self) -> bool {
        self.at == 0 && self.world.is_divided
    }

    /// What its clock says.
    pub(crate) fn now(&self) -> Millis {
        self.world.clock().saturating_add_signed(self.skew)
    }

    /// An id that is nobody else's.
    pub(crate) fn id(&self) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.rng.borrow_mut().next().to_be_bytes());
        id[8..].copy_from_slice(&self.world.next_session().to_be_bytes());
        SessionId(id)
    }

    /// A session of its own.
    pub(crate) fn session(&self) -> Session {
        Session::with_id(self.queue.clone(), self.id())
            .with_policy(self.policy())
            .with_history(&self.world.new_history())
    }

    /// How patient it is.
    pub(crate) fn policy(&self) -> RetryPolicy {
        let max_attempts =
            if self.world.is_calm.get() { None } else { [None, None, Some(1), Some(3)][self.below(4)] };
        RetryPolicy { max_attempts, timeout: None }
    }

    /// Does something, and says so; without a result if it was cancelled.
    pub(crate) async fn run<T>(
        &self,
        intent: Intent,
        doing: impl Future<Output = T>,
    ) -> (Rc<Operation>, Option<T>) {
        let number = self.operations.get() + 1;
        self.operations.set(number);
        let (begun, begun_at) = (self.world.oracle.borrow().version, self.world.time());
        let (worker, unknown) = (self.name.clone(), Cell::new(0));
        let operation = Rc::new(Operation {
            at: self.at,
            recording: self.recording,
            skew: self.skew,
            begun_turns: self.world.turns(),
            worker,
            number,
            intent,
            begun,
            begun_at,
            unknown,
            unknown_fires: Cell::new(0),
        });
        self.world.count(operation.intent.name());
        self.current.replace(Some(Rc::clone(&operation)));
        let mut doing = pin!(doing);
        let result = poll_fn(|cx| match self.is_cancelled.take() {
            true => Poll::Ready(None),
            false => doing.as_mut().poll(cx).map(Some),
        });
        let result = result.await;
        self.current.replace(None);
        (operation, result)
    }

    /// Reports the result to the judge.
    pub(crate) fn told(&self, operation: &Operation, claim: &Claim) {
        let told = self.world.oracle.borrow_mut().told(operation, claim);
        told.unwrap_or_else(|how| panic!("{how}"));
    }

    /// Counts on a lease from when an operation began that succeeded.
    pub(crate) fn believes(&self, lease: LeaseId, operation: &Operation) {
        self.world.oracle.borrow_mut().model_mut(self.at).believes(lease, operation.begun_at);
    }

    /// Whether a lease was taken away from it that it counts on.
    pub(crate) fn was_robbed_of(&self, lease: LeaseId) -> bool {
        let oracle = self.world.oracle.borrow();
        let model = oracle.model(self.at);
        model.was_taken_away(lease) && self.world.time() < model.believed_until(lease)
    }

    /// Lets others go first.
    pub(crate) async fn pause(&self) {
        self.stop(Stop::Pausing).await;
    }

    /// Whether it has waited as long as it wanted to.
    pub(crate) fn is_over(&self) -> bool {
        self.until.get().is_some_and(|until| until <= self.world.time())
    }

    /// Waits until there is something new, or until this time.
    pub(crate) async fn watch(&self, counter: Counter, watch: Watch, until: Option<u64>) {
        self.until.set(until);
        self.watches.update(|n| n + 1);
        let (mut watch, mut is_lost) = (pin!(watch), false);
        poll_fn(|cx| {
            self.stop.set(Stop::Watching(counter, self.watches.get()));
            if self.is_over() {
                self.stop.set(Stop::Working);
                return Poll::Ready(());
            }
            if !is_lost && ready!(watch.as_mut().poll(cx)).is_err() {
                // The database says so at once or a little later. So that it makes no difference, the worker goes on when
                // there is something new.
                is_lost = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.stop.set(Stop::Working);
            Poll::Ready(())
        })
        .await;
    }

    /// Dies, as a worker does that is given a poisonous item.
    pub(crate) async fn die(&self) {
        self.stop(Stop::Dying).await;
    }

    async fn stop(&self, stop: Stop) {
        let mut has_stopped = false;
        poll_fn(|_| {
            if std::mem::replace(&mut has_stopped, true) {
                self.stop.set(Stop::Working);
                return Poll::Ready(());
            }
            self.stop.set(stop);
            Poll::Pending
        })
        .await;
    }

    /// What it is doing.
    pub(crate) fn current(&self) -> Option<Rc<Operation>> {
        self.current.borrow().clone()
    }

    /// Why it has not gone on.
    pub(crate) fn stopped(&self) -> Stop {
        self.stop.get()
    }

    /// Ends what it is doing when it goes on, without ending itself.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.set(true);
    }
}
