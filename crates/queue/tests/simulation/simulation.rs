//! One run: a seed, and what comes of it.

use std::rc::Rc;

use fdb_embedded::{Fault, Faults, Gate, HeldBackoff, HeldCommit};

use crate::intent::Operation;
use crate::model::At;
use crate::rng::Rng;
use crate::schedule::{Choices, Step, Weather};
use crate::worker::Worker;
use crate::workers::{self, Role};
use crate::world::{Desk, Stop, World};

/// How much happens in a run before it becomes calm.
const STEPS: usize = 200;
/// How much may have to happen until all is done.
const CALM_STEPS: usize = 2_000;
/// What versions go on by: a part of a second, a few seconds, and more than transactions and short leases last.
const MOMENT: u64 = 300_000;
const WHILE: u64 = 3_000_000;
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
        let p = weather.read_faults as f64 / 1_000.0;
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
            rng,
        };
        for role in workers::staff(&mut simulation.rng) {
            let seat = simulation.hire(role);
            simulation.seats.push(seat);
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
        for step in 0.. {
            if self.world.oracle.borrow().model.open().next().is_none() {
                break;
            }
            if step == CALM_STEPS {
                let oracle = self.world.oracle.borrow();
                panic!("nothing goes on with {:?}", oracle.model.open().collect::<Vec<_>>());
            }
            let next = self.choices().choose(&mut self.rng);
            self.step(next.unwrap_or(Step::Advance));
        }
        self.seats.clear();
        self.check_log();
    }

    /// The end of all trouble: what is under way arrives or is lost, everybody goes home, and those who come finish what
    /// there is.
    fn calm_down(&mut self) {
        self.note("calm");
        self.seats.clear();
        while !self.under_way.is_empty() {
            let step = if self.rng.below(2) == 0 { Step::Commit(0) } else { Step::Lose(0) };
            self.step(step);
        }
        Faults::remove(&self.url).unwrap();
        self.weather = Weather::calm();
        self.world.is_calm.set(true);
        for role in workers::finishers() {
            let seat = self.hire(role);
            self.seats.push(seat);
        }
    }

    /// A new worker, with sessions of its own.
    fn hire(&mut self, role: Role) -> Seat {
        self.workers += 1;
        let name = format!("{}{}", role.name(), self.workers);
        let desk = Rc::new(Desk::new(Rc::clone(&self.world), name, Rng::new(self.rng.next())));
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
        choices.add(self.weather.advance, Step::Advance);
        choices.add(self.weather.turn, Step::Turn);
        choices
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
            Stop::Watching(counter, _) => seat.seen != self.world.oracle.borrow().counted(counter),
            _ => true,
        }
    }

    fn step(&mut self, step: Step) {
        for seat in &mut self.seats {
            seat.suspended = seat.suspended.saturating_sub(1);
        }
        match step {
            Step::Poll(at) => self.go_on(at),
            Step::Commit(at) => self.commit(at),
            Step::Lose(at) => {
                let lost = self.under_way.remove(at);
                lost.operation.unknown.update(|n| n + 1);
                self.note(format!("{} is lost on its way", lost.operation));
                self.count("a commit is lost on its way");
            }
            Step::TimeOut(at) => {
                let late = &mut self.under_way[at];
                late.commit.time_out();
                late.is_late = true;
                late.operation.unknown.update(|n| n + 1);
                self.note(format!("{} waits no longer for its commit", self.under_way[at].operation));
                self.count("a commit is not waited for any longer");
            }
            Step::Crash(at) => self.crash(at),
            Step::Cancel(at) => {
                let desk = Rc::clone(&self.seats[at].desk);
                self.note(format!("{} gives up what it does", desk.name()));
                self.count("an operation is given up");
                desk.cancel();
                self.go_on(at);
            }
            Step::Suspend(at) => {
                self.seats[at].suspended = 5 + self.rng.below(40);
                self.note(format!("{} is suspended", self.seats[at].desk.name()));
                self.count("a worker is suspended");
            }
            Step::Advance => {
                let by = match self.rng.below(5) {
                    _ if self.world.is_calm.get() => 60 * AGE,
                    0 | 1 => MOMENT,
                    2 => WHILE,
                    _ => AGE * (1 + self.rng.below(3) as u64),
                };
                self.gate.advance(by);
                self.note(format!("versions go on by {by}"));
            }
            Step::Turn => self.turn_clock(),
        }
    }

    fn turn_clock(&mut self) {
        let by = if self.world.is_calm.get() {
            600_000
        } else {
            [1_000, 60_000, 600_000, -60_000][self.rng.below(4)]
        };
        let clock = &self.world.clock;
        clock.set(clock.get().saturating_add_signed(by));
        self.note(format!("the clock goes on by {by}"));
    }

    /// A worker goes on until it waits for something that is to be decided here.
    fn go_on(&mut self, at: usize) {
        loop {
            let seat = &mut self.seats[at];
            let before = seat.desk.stopped();
            seat.backoff = None;
            let has_ended = seat.worker.poll();
            seat.backoff = self.gate.backoffs().pop();
            let arrived = self.gate.arrived();
            let is_sent = !arrived.is_empty();
            for commit in arrived {
                let operation = seat.desk.current().expect("a worker commits what it says it does");
                self.under_way.push(UnderWay { commit, operation, is_late: false });
            }
            if has_ended {
                self.seats[at] = self.hire(self.seats[at].role);
                return;
            }
            match seat.desk.stopped() {
                _ if is_sent || seat.backoff.is_some() => return,
                Stop::Pausing => return,
                Stop::Dying => return self.crash(at),
                stopped @ Stop::Watching(counter, _) if stopped != before => {
                    seat.seen = self.world.oracle.borrow().counted(counter);
                    return;
                }
                Stop::Working | Stop::Watching(..) => seat.worker.wait(&seat.desk),
            }
        }
    }

    fn crash(&mut self, at: usize) {
        self.note(format!("{} dies", self.seats[at].desk.name()));
        self.count(if self.is_committing(&self.seats[at]) { "a crash within a commit" } else { "a crash" });
        self.seats[at] = self.hire(self.seats[at].role);
    }

    /// A commit arrives, and meets what it has to meet.
    fn commit(&mut self, at: usize) {
        let UnderWay { mut commit, operation, .. } = self.under_way.remove(at);
        let fault = self.fault();
        self.commits += 1;
        let entry = format!("{}: {operation}", self.commits);
        let (key, offset) = self.world.place.log_record();
        commit.add_stamped_key(key, offset, entry.clone().into_bytes());
        let read = u64::try_from(commit.read_version()).unwrap();
        let told = commit.pass(fault).map_err(fdb_embedded::Code::raw);
        let logged = self.world.place.last_logged(&self.world.db).filter(|(_, last)| *last == entry);
        match (told, fault) {
            (Err(1021), Fault::UnknownCommitted) => {
                self.count(format!("outcome unknown, and it happened: {}", operation.intent.name()));
            }
            (Err(1021), _) => {
                self.count(format!("outcome unknown, and it did not: {}", operation.intent.name()));
            }
            (Err(1020), Fault::None) => self.count(format!("conflict: {}", operation.intent.name())),
            (Err(1007), Fault::None) => self.count("a commit is too old"),
            _ => {}
        }
        if told == Err(1021) {
            operation.unknown.update(|n| n + 1);
        }
        if let Err(error) = told {
            self.note(format!("{operation}: told {error}"));
        }
        let version = told.ok().map(|version| u64::try_from(version).unwrap());
        assert!(version.is_none() || version == logged.as_ref().map(|(version, _)| *version));
        if let Some((version, _)) = logged {
            let rows = self.world.place.rows(&self.world.db);
            let judged =
                self.world.oracle.borrow_mut().committed(&operation, At { read, commit: version }, &rows);
            let events = judged.unwrap_or_else(|how| panic!("{operation}: {how}"));
            events.iter().for_each(|event| self.count(event.name()));
        }
    }

    fn fault(&mut self) -> Fault {
        if self.rng.below(100) >= self.weather.faults {
            return Fault::None;
        }
        [Fault::UnknownCommitted, Fault::UnknownNotCommitted, Fault::Conflict, Fault::TooOld]
            [self.rng.below(4)]
    }

    /// The log that each transaction wrote of itself says what was seen, in the same order.
    fn check_log(&self) {
        let log = self.world.place.log(&self.world.db);
        assert!(log.is_sorted_by_key(|(version, _)| *version));
        let logged = log.iter().map(|(_, entry)| entry.split_once(": ").unwrap().1);
        let oracle = self.world.oracle.borrow();
        assert!(logged.eq(oracle.history.commits.iter().map(String::as_str)), "the log is not what was seen");
    }

    fn note(&self, line: impl Into<String>) {
        self.world.oracle.borrow_mut().history.note(line);
    }
    fn count(&self, what: impl Into<String>) {
        self.world.coverage.borrow_mut().count(what);
    }
}
