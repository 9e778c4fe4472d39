//! The people of a run. Each does what a program would do with the layer, and reports its results to the judge.

mod batcher;
mod changer;
mod consumer;
mod historian;
mod joiner;
mod once;
mod operator;
mod planner;
mod producer;
mod sweeper;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use kvqueue_queue::Kind;

use crate::desk::Desk;
use crate::rng::Rng;

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Producer,
    /// Takes on leases.
    Consumer,
    /// Takes on leases, and settles together with what its handler writes.
    ConsumerOnce,
    /// Has several leases at a time.
    Process,
    /// Takes for good.
    Taker,
    Sweeper,
    /// Decides about dead letters.
    Operator,
    /// Lets keys go on that wait for dead letters.
    Unblocker,
    /// Says how long ended items are kept, and reads them.
    Historian,
    /// Makes, commits and cancels batches.
    Batcher,
    /// Lets items join batches, and freezes the queue.
    Joiner,
    /// Commits the batches.
    Closer,
    /// Changes single items.
    Changer,
    /// Changes schedules.
    Planner,
    /// Removes the schedules.
    Remover,
}

/// How often an item is tried.
const MAX_ATTEMPTS: u32 = 3;

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Producer => "producer",
            Role::Consumer => "consumer",
            Role::ConsumerOnce => "once",
            Role::Process => "process",
            Role::Taker => "taker",
            Role::Sweeper => "sweeper",
            Role::Operator => "operator",
            Role::Unblocker => "unblocker",
            Role::Historian => "historian",
            Role::Batcher => "batcher",
            Role::Joiner => "joiner",
            Role::Closer => "closer",
            Role::Changer => "changer",
            Role::Planner => "planner",
            Role::Remover => "remover",
        }
    }
    /// How soon it goes on, in comparison.
    pub(crate) fn haste(self) -> usize {
        match self {
            Role::Producer => 150,
            Role::Consumer | Role::ConsumerOnce | Role::Process | Role::Taker => 200,
            Role::Sweeper => 70,
            Role::Operator | Role::Unblocker | Role::Remover | Role::Closer => 60,
            Role::Changer | Role::Batcher | Role::Joiner => 100,
            Role::Historian => 40,
            Role::Planner => 180,
        }
    }

    /// Its work, from its coming to its going.
    pub(crate) fn work(self, desk: Rc<Desk>) -> Pin<Box<dyn Future<Output = ()>>> {
        match self {
            Role::Producer => Box::pin(producer::work(desk)),
            Role::Consumer => Box::pin(consumer::work(desk, false)),
            Role::ConsumerOnce => Box::pin(consumer::work(desk, true)),
            Role::Process => Box::pin(consumer::work_on_several(desk)),
            Role::Taker => Box::pin(consumer::take_for_good(desk)),
            Role::Sweeper => Box::pin(sweeper::work(desk)),
            Role::Operator => Box::pin(operator::work(desk)),
            Role::Unblocker => Box::pin(operator::unblock_all(desk)),
            Role::Historian => Box::pin(historian::work(desk)),
            Role::Batcher => Box::pin(batcher::work(desk)),
            Role::Joiner => Box::pin(joiner::work(desk)),
            Role::Closer => Box::pin(batcher::finish(desk)),
            Role::Changer => Box::pin(changer::work(desk)),
            Role::Planner => Box::pin(planner::work(desk)),
            Role::Remover => Box::pin(planner::finish(desk)),
        }
    }
}

/// Who works in a run.
pub(crate) fn staff(rng: &mut Rng, has_schedules: bool, has_changes: bool) -> Vec<Role> {
    let mut staff = vec![Role::Producer; 1 + rng.below(3)];
    let consumers = [Role::Consumer, Role::Consumer, Role::Process, Role::ConsumerOnce, Role::Taker];
    staff.extend((0..2 + rng.below(3)).map(|_| consumers[rng.below(5)]));
    staff.extend(vec![Role::Sweeper; 1 + rng.below(2)]);
    staff.push(Role::Operator);
    if has_changes {
        staff.extend(vec![Role::Changer; 1 + rng.below(2)]);
        staff.extend([Role::Batcher, Role::Historian]);
    }
    if has_schedules {
        staff.extend(vec![Role::Planner; 1 + rng.below(2)]);
        staff.push(Role::Sweeper);
    }
    staff
}

/// Who works at a second queue.
pub(crate) fn second_staff(rng: &mut Rng) -> Vec<Role> {
    let consumers = [Role::Consumer, Role::Process, Role::ConsumerOnce, Role::Taker];
    vec![Role::Producer, consumers[rng.below(4)], Role::Sweeper, Role::Changer, Role::Joiner]
}

/// Who finishes what there is.
pub(crate) fn finishers(kind: Kind, has_schedules: bool, has_batches: bool) -> Vec<Role> {
    let mut finishers = vec![Role::Consumer, Role::ConsumerOnce, Role::Sweeper];
    if kind == Kind::Keyed {
        finishers.push(Role::Unblocker);
    }
    if has_batches {
        finishers.push(Role::Closer);
    }
    if has_schedules {
        finishers.push(Role::Remover);
    }
    finishers
}
