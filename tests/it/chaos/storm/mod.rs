//! The storm: processes at work, faults, and new processes in place of dead ones.

mod batches;
mod faults;
mod operators;
mod slot;

use std::{
    collections::{BTreeSet, VecDeque},
    thread,
    time::{Duration, Instant},
};

pub(super) use self::{batches::Batch, faults::Faults, operators::Cancellation};
use self::{
    faults::{RECOVER, RECOVERIES, RESTART, RESTARTS, command_of},
    operators::Operator,
    slot::{Actor, Slot},
};
use super::{
    arena::Arena,
    errand::Errand,
    plan::Worker,
    process::{End, Process},
    producers::{Producer, Pushed},
};
use crate::support::Random;

/// Who takes part.
const WORKERS: [Worker; 11] = [
    Worker::Helper,
    Worker::Program,
    Worker::Helper,
    Worker::Program,
    Worker::Keeper,
    Worker::Keeper,
    Worker::Steady,
    Worker::Steady,
    Worker::Puller,
    Worker::Puller,
    Worker::Puller,
];
const PRODUCERS: usize = 3;

/// Between two faults.
const GAP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(600));

/// Between two looks at the processes.
const TICK: Duration = Duration::from_millis(10);

/// A dead process is replaced within this.
const REPLACED_WITHIN: Duration = Duration::from_millis(500);

/// How many of a thousand are killed within this of their start.
const KILLED_AT_START: (u64, Duration) = (80, Duration::from_millis(200));

/// The processes of a run, and what has become of those before them.
pub(super) struct Storm<'a> {
    arena: &'a Arena,
    random: Random,
    slots: Vec<Slot>,
    /// Commands that nobody waits for.
    commands: Vec<Process>,
    operators: Vec<Operator>,
    /// When the next operator comes.
    operate_at: Instant,
    /// The producers whose items may be replaced.
    replacing: BTreeSet<u64>,
    /// Errands for the next producers.
    waiting: VecDeque<Errand>,
    restart_at: Option<Instant>,
    recover_at: Option<Instant>,
    started: u64,
    pub(super) faults: Faults,
    pub(super) pushed: Vec<Pushed>,
    /// The queues whose dead letters were retried.
    pub(super) retried: BTreeSet<String>,
    pub(super) cancellations: Vec<Cancellation>,
    pub(super) batches: Vec<Batch>,
    /// Daemons that were killed.
    pub(super) killed_daemons: u64,
    /// Processes that failed though nobody hurt them.
    pub(super) failed: Vec<String>,
}

impl<'a> Storm<'a> {
    pub(super) fn new(arena: &'a Arena, random: Random) -> Self {
        Self {
            arena,
            random,
            slots: WORKERS.map(Some).into_iter().chain([None; PRODUCERS]).map(Slot::new).collect(),
            commands: Vec::new(),
            operators: Vec::new(),
            operate_at: Instant::now() + GAP.1,
            replacing: BTreeSet::new(),
            waiting: VecDeque::new(),
            restart_at: command_of(RESTART).map(|_| Instant::now() + RESTARTS.0 / 2),
            recover_at: command_of(RECOVER).map(|_| Instant::now() + RECOVERIES.0),
            started: 0,
            faults: Faults::default(),
            pushed: Vec::new(),
            retried: BTreeSet::new(),
            cancellations: Vec::new(),
            batches: Vec::new(),
            killed_daemons: 0,
            failed: Vec::new(),
        }
    }

    /// Rages for so long.
    pub(super) fn rage(&mut self, time: Duration) {
        let end = Instant::now() + time;
        let mut fault_at = Instant::now() + GAP.1;
        while Instant::now() < end {
            self.tick(true);
            if Instant::now() >= fault_at {
                self.strike();
                fault_at = Instant::now() + self.random.time_between(GAP.0, GAP.1);
            }
            // The pace of the storm.
            thread::sleep(TICK);
        }
    }

    /// Ends it: everybody goes on, pushes what there is to push within `patience`, and stops.
    pub(super) fn calm(&mut self, patience: Duration) {
        for slot in &mut self.slots {
            slot.kill_at = None;
            slot.go_on();
        }
        let began = Instant::now();
        let deadline = began + patience;
        while self.is_busy() {
            assert!(Instant::now() < deadline, "{patience:?} after the storm: {}", self.at_work());
            for slot in &self.slots {
                if let Some(Actor::Producer(producer)) = &slot.actor {
                    producer.enough();
                }
            }
            self.tick(false);
            thread::sleep(TICK);
        }
        println!("chaos: producers and operators were done {:?} after the storm", began.elapsed());
        for mut command in std::mem::take(&mut self.commands) {
            command.wait();
        }
        for slot in &mut self.slots {
            slot.terminate();
        }
        for at in 0..self.slots.len() {
            if let Some(actor) = &mut self.slots[at].actor {
                let end = actor.process().wait();
                self.bury(at, end);
            }
        }
    }

    /// Whether a producer has something to push, or an operator something to do.
    fn is_busy(&self) -> bool {
        let has_to_push = self.slots.iter().any(Slot::has_to_push);
        has_to_push || !self.waiting.is_empty() || !self.operators.is_empty() || self.has_open_batches()
    }

    /// Who is busy, and with what, for a person.
    fn at_work(&self) -> String {
        let producers = self.slots.iter().filter(|slot| slot.has_to_push()).map(|slot| match &slot.actor {
            Some(Actor::Producer(producer)) => {
                let words = self.arena.last_words(&producer.process.name);
                format!("{}\n{words}", producer.at_work())
            }
            _ => format!("nobody pushes {:?}", slot.unfinished),
        });
        let operators = self.operators.iter().map(Operator::at_work);
        let open =
            self.batches.iter().filter(|batch| batch.is_open()).map(|batch| format!("open: {batch:?}"));
        let waiting = self.waiting.iter().map(|errand| format!("waits: {errand:?}"));
        producers.chain(operators).chain(open).chain(waiting).collect::<Vec<_>>().join("\n")
    }

    /// Sees to what has come due, and to who has died. New ones come as long as it rages; and producers that have to finish.
    fn tick(&mut self, raging: bool) {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if is_due(slot.kill_at) && slot.kill() {
                self.faults.kills += 1;
                self.faults.starts += 1;
            }
            if is_due(slot.continue_at) {
                slot.go_on();
            }
            match &mut slot.actor {
                Some(actor) => {
                    if let Some(end) = actor.process().ended() {
                        self.bury(at, end);
                    }
                }
                None => {
                    let has_errand = slot.unfinished.is_some() || !self.waiting.is_empty();
                    if now >= slot.start_at && (raging || slot.worker.is_none() && has_errand) {
                        self.start(at, raging);
                    }
                }
            }
        }
        self.operate(raging);
        self.commands.retain_mut(|command| command.ended().is_none());
    }

    fn start(&mut self, at: usize, raging: bool) {
        self.started += 1;
        let (number, arena) = (self.started, self.arena);
        let actor = match self.slots[at].worker {
            Some(worker) => Actor::Daemon(arena.daemon(worker, number, false)),
            None => {
                let unfinished = self.slots[at].unfinished.take();
                let errand = unfinished.or_else(|| self.next_waiting());
                if errand.is_none() && !raging {
                    return;
                }
                let errand = errand.unwrap_or_else(|| Errand::draw(&mut self.random, &arena.queues, number));
                Actor::Producer(Box::new(Producer::start(arena, errand)))
            }
        };
        let slot = &mut self.slots[at];
        slot.fill(actor);
        let (chance, within) = KILLED_AT_START;
        if raging && !slot.is_kept() && self.random.chance(chance) {
            slot.kill_at = Some(Instant::now() + self.random.time_below(within));
        }
    }

    /// The first errand that waits, unless it has to wait for another producer.
    fn next_waiting(&mut self) -> Option<Errand> {
        let first = self.waiting.front()?;
        let is_busy = |slot: &Slot| slot.pushes_under(&first.key);
        if first.is_alone() && self.slots.iter().any(is_busy) {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Takes note of a process that has ended, and makes its place free.
    fn bury(&mut self, at: usize, end: End) {
        let slot = &mut self.slots[at];
        let Some(mut actor) = slot.empty(Instant::now() + self.random.time_below(REPLACED_WITHIN)) else {
            return;
        };
        match end {
            End::Killed if !slot.is_killed => self.faults.poisoned += 1,
            // The expected end if a take-over cost it a lease while it drained.
            End::Failed if slot.is_terminated => self.faults.torn += 1,
            // Its batch has called back meanwhile.
            End::Failed if actor.may_be_refused() => {}
            End::Failed => self.failed.push(actor.process().name.clone()),
            End::Done | End::Killed => {}
        }
        match actor {
            Actor::Daemon(_) if slot.worker == Some(Worker::Puller) => {}
            Actor::Daemon(_) => self.killed_daemons += u64::from(end == End::Killed),
            Actor::Producer(producer) => match producer.pushed(end) {
                Ok(pushed) => self.pushed.push(pushed),
                Err(errand) => slot.unfinished = Some(errand),
            },
        }
    }
}
