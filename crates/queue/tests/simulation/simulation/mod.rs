//! One run: a seed, and what comes of it.

mod steps;

use std::rc::Rc;

use fdb_embedded::{Faults, Gate, HeldBackoff, HeldCommit};

use crate::desk::{Desk, Stop};
use crate::intent::{Intent, Operation};
use crate::model::Model;
use crate::rng::Rng;
use crate::schedule::{Choices, Step, Weather};
use crate::worker::Worker;
use crate::workers::{self, Role};
use crate::world::World;

/// How much happens in a run before it becomes calm.
const STEPS: usize = 200;
/// How many steps of a calm run may pass until less is left than ever before. There is no limit for all of them: if the
/// operator lets one item run at a time, 60 items take more than 2,000 steps. An item that kills its workers has three attempts, which take more
/// than 1,000 steps where the time passes fast.
const CALM_STEPS: usize = 3_000;
/// What leases and jumps of versions are measured in, and the times that pass: more than a transaction lasts.
pub(crate) const AGE: u64 = 1_000_000_000;

/// A run under way.
pub(crate) struct Simulation {
    world: Rc<World>,
    gate: Gate,
    url: String,
    rng: Rng,
    weather: Weather,
    seats: Vec<Seat>,
    under_way: Vec<UnderWay>,
    commits: u64,
    workers: u64,
    /// How far versions should have gone on by themselves, and how far they have.
    due: u64,
    gone: u64,
}

/// A place that always has a worker.
struct Seat {
    role: Role,
    desk: Rc<Desk>,
    worker: Worker,
    /// How many steps long it is suspended.
    suspended: usize,
    /// It waits before it tries again.
    backoff: Option<HeldBackoff>,
    /// What it saw of the queue when it began to watch.
    seen: u64,
}

/// A commit that has been sent and has not arrived.
struct UnderWay {
    commit: HeldCommit,
    operation: Rc<Operation>,
    /// Nobody waits for it any more.
    is_late: bool,
}

impl Simulation {
    pub(crate) fn new(world: Rc<World>, url: &str, mut rng: Rng) -> Simulation {
        let weather = Weather::of(&mut rng);
        // Operations on schedules read little.
        let times = if world.has_schedules { 5.0 } else { 1.0 };
        let p = weather.read_faults as f64 / 1_000.0 * times;
        Faults::seeded(rng.next()).read_too_old(p).install(url).unwrap();
        let mut simulation = Simulation {
            gate: Gate::close(url).unwrap(),
            url: url.to_owned(),
            world,
            weather,
            seats: Vec::new(),
            under_way: Vec::new(),
            commits: 0,
            workers: 0,
            due: 0,
            gone: 0,
            rng,
        };
        let world = Rc::clone(&simulation.world);
        for role in workers::staff(&mut simulation.rng, world.has_schedules, world.has_changes) {
            let seat = simulation.hire(role, 0);
            simulation.seats.push(seat);
        }
        if world.queues.len() > 1 {
            for role in workers::second_staff(&mut simulation.rng) {
                let seat = simulation.hire(role, 1);
                simulation.seats.push(seat);
            }
        }
        simulation
    }

    /// Runs to the end; panics if a promise is broken.
    pub(crate) fn run(mut self) {
        for _ in 0..STEPS {
            let step = self.choices().choose(&mut self.rng);
            self.step(step.unwrap_or(Step::Advance));
        }
        self.calm_down();
        let (mut least, mut in_vain) = (self.left(), 0);
        while least > 0 {
            if in_vain == CALM_STEPS {
                let oracle = self.world.oracle.borrow();
                let open = oracle.models().flat_map(|model| model.open()).collect::<Vec<_>>();
                let left = oracle.models().map(|model| model.ended_items().len()).collect::<Vec<_>>();
                panic!("nothing goes on with {open:?}, {:?} and {left:?}", oracle.model(0).schedules());
            }
            let next = self.choices().choose(&mut self.rng);
            self.step(next.unwrap_or(Step::Advance));
            let left = self.left();
            in_vain = if left < least { 0 } else { in_vain + 1 };
            least = least.min(left);
        }
        self.seats.clear();
        self.check_log();
    }

    /// How many open items, schedules, batches and recorded ends there are, and queues whose items may expire. At 0 all is
    /// done.
    fn left(&self) -> usize {
        let left = |model: &Model| {
            model.open().count()
                + model.schedules().len()
                + usize::from(model.has_expiries())
                + model.batches().len()
                + model.ended_items().len()
        };
        self.world.oracle.borrow().models().map(left).sum()
    }

    /// The end of all trouble: what is under way arrives or is lost, every worker ends, and new ones finish what
    /// there is.
    fn calm_down(&mut self) {
        self.world.note("calm");
        self.seats.clear();
        while !self.under_way.is_empty() {
            let step = if self.rng.below(2) == 0 { Step::Commit(0) } else { Step::Lose(0) };
            self.step(step);
        }
        Faults::remove(&self.url).unwrap();
        self.weather = Weather::calm();
        self.world.is_calm.set(true);
        self.world.oracle.borrow_mut().model_mut(0).forget_sweeps();
        let world = Rc::clone(&self.world);
        for (at, queue) in world.queues.iter().enumerate() {
            for role in workers::finishers(queue.kind(), world.has_schedules, world.has_changes) {
                let seat = self.hire(role, at);
                self.seats.push(seat);
            }
        }
    }

    /// A new worker at a queue, with sessions of its own.
    fn hire(&mut self, role: Role, at: usize) -> Seat {
        self.workers += 1;
        let name = format!("{}{}", role.name(), self.workers);
        let desk = Rc::new(Desk::new(Rc::clone(&self.world), at, name, Rng::new(self.rng.next())));
        let worker = Worker::new(role.work(Rc::clone(&desk)));
        Seat { role, desk, worker, suspended: 0, backoff: None, seen: 0 }
    }

    /// What can happen next.
    fn choices(&self) -> Choices {
        let mut choices = Choices::default();
        for (at, seat) in self.seats.iter().enumerate() {
            if self.weather.crash > 0 {
                choices.add(self.weather.crash, Step::Crash(at));
            }
            if seat.suspended > 0 {
                continue;
            }
            choices.add(self.weather.suspend, Step::Suspend(at));
            let is_committing = self.is_committing(seat);
            if is_committing || seat.backoff.is_some() {
                choices.add(self.weather.cancel, Step::Cancel(at));
            }
            if !is_committing && self.has_news(seat) {
                choices.add(seat.role.haste(), Step::Poll(at));
            }
        }
        for at in 0..self.under_way.len() {
            choices.add(200, Step::Commit(at));
            choices.add(self.weather.faults, Step::Lose(at));
            choices.add(self.weather.faults, Step::TimeOut(at));
        }
        // What schedules do depends on time more than on anything else.
        let times = if self.world.has_schedules { 3 } else { 1 };
        choices.add(self.weather.advance * times, Step::Advance);
        choices.add(self.weather.jump, Step::Jump);
        choices.add(self.weather.turn, Step::Turn);
        choices
    }

    /// Whether a sweeper has begun and not ended.
    fn is_swept(&self) -> bool {
        let sweeps = |seat: &Seat| {
            seat.desk.current().is_some_and(|current| matches!(current.intent, Intent::Sweep(_)))
        };
        self.seats.iter().any(sweeps)
    }

    fn is_committing(&self, seat: &Seat) -> bool {
        let current = seat.desk.current();
        current.is_some_and(|current| {
            self.under_way.iter().any(|sent| !sent.is_late && Rc::ptr_eq(&sent.operation, &current))
        })
    }

    /// Whether there is something new for a worker, if it waits for that.
    fn has_news(&self, seat: &Seat) -> bool {
        match seat.desk.stopped() {
            Stop::Watching(counter, _) => {
                seat.desk.is_over() || seat.seen != self.world.oracle.borrow().counted(seat.desk.at, counter)
            }
            _ => true,
        }
    }

    /// The log that each transaction wrote of itself says what was seen, in the same order.
    fn check_log(&self) {
        let log = self.world.place.log(&self.world.db);
        assert!(log.is_sorted_by_key(|(version, _)| *version));
        let logged = log.iter().map(|(_, entry)| entry.split_once(": ").unwrap().1);
        let oracle = self.world.oracle.borrow();
        assert!(logged.eq(oracle.history.commits.iter().map(String::as_str)), "the log is not what was seen");
    }
}
