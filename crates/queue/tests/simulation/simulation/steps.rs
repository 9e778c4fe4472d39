//! What happens in each step of a run.

use fdb_embedded::{Code, Fault};
use kvqueue_queue::item_batch::Join;

use super::{AGE, Simulation, UnderWay};
use crate::claims::fate_name;
use crate::desk::Stop;
use crate::image::schedules::{Fate, Record};
use crate::intent::Operation;
use crate::model::schedules::Change;
use crate::model::{At, Event};
use crate::schedule::Step;

/// What passes of time: part of a second, or a few; or some [`AGE`]s.
const MOMENT: u64 = 300_000;
const WHILE: u64 = 3_000_000;

/// The errors of commits: unknown outcome, conflict, read version too old.
const UNKNOWN: i32 = 1021;
const CONFLICT: i32 = 1020;
const TOO_OLD: i32 = 1007;

impl Simulation {
    /// Lets something happen.
    pub(super) fn step(&mut self, step: Step) {
        for seat in &mut self.seats {
            seat.suspended = seat.suspended.saturating_sub(1);
        }
        match step {
            Step::Poll(at) => self.go_on(at),
            Step::Commit(at) => self.commit(at),
            Step::Lose(at) => self.lose(at),
            Step::TimeOut(at) => self.time_out(at),
            Step::Crash(at) => self.crash(at),
            Step::Cancel(at) => self.cancel(at),
            Step::Suspend(at) => self.suspend(at),
            Step::Advance => self.advance(),
            Step::Jump => self.jump(),
            Step::Turn => self.turn_clock(),
        }
    }

    fn lose(&mut self, at: usize) {
        let UnderWay { operation, .. } = self.under_way.remove(at);
        operation.unknown.update(|n| n + 1);
        self.world.note(format!("{operation} is lost on its way"));
        self.world.count("a commit is lost on its way");
    }

    fn time_out(&mut self, at: usize) {
        let UnderWay { commit, operation, is_late } = &mut self.under_way[at];
        commit.time_out();
        *is_late = true;
        operation.unknown.update(|n| n + 1);
        self.world.note(format!("{operation} waits no longer for its commit"));
        self.world.count("a commit is not waited for any longer");
    }

    fn cancel(&mut self, at: usize) {
        let desk = &self.seats[at].desk;
        desk.cancel();
        self.world.note(format!("{} gives up what it does", desk.name()));
        self.world.count("an operation is given up");
        self.go_on(at);
    }

    fn suspend(&mut self, at: usize) {
        self.seats[at].suspended = 5 + self.rng.below(40);
        self.world.note(format!("{} is suspended", self.seats[at].desk.name()));
        self.world.count("a worker is suspended");
    }

    /// Time passes. Versions go on with it: as fast, or a little faster; or they stand still for a while, and catch up.
    fn advance(&mut self) {
        let end = self.world.oracle.borrow().next_end(self.world.time());
        let by = match self.rng.below(7) {
            _ if self.world.is_calm.get() => 60 * AGE,
            // To the next times of a schedule, most of which are near.
            _ if self.world.has_schedules && self.rng.below(4) > 0 => {
                [1_000_000, 1_000_000, 3_000_000, 4_000_000, 15_000_000, 100_000_000][self.rng.below(6)]
            }
            0 | 1 => MOMENT,
            2 => WHILE,
            3 | 4 if end.is_some() => {
                // To where a holder's clock says that its lease is over, or nearly.
                let left = end.unwrap_or_default() - self.world.time();
                left.saturating_add_signed([-100_000, -1, 0, 100_000, 600_000][self.rng.below(5)])
            }
            _ => AGE * (1 + self.rng.below(3) as u64),
        };
        self.world.pass(by);
        self.due += by + by / 100 * self.weather.fast;
        let behind = self.rng.below(self.weather.standstill + 1) as u64;
        let to = self.due.saturating_sub(behind).max(self.gone);
        self.gate.advance(to - self.gone);
        self.world.count_if(to == self.gone && by > 0, "versions stand still");
        self.world.count_if(self.weather.fast > 0, "versions run fast");
        self.gone = to;
        self.world.note(format!("{by} microseconds pass, versions are {} behind", self.due - to));
    }

    /// Versions jump ahead, as they do when a cluster recovers.
    fn jump(&mut self) {
        let by = [WHILE, 100_000_000, AGE, 3 * AGE, 10 * AGE][self.rng.below(5)];
        self.gate.advance(by);
        self.world.note(format!("versions jump by {by}"));
        self.world.count("versions jump");
        self.world.count_if(self.is_swept(), "versions jump within a sweep");
    }

    fn turn_clock(&mut self) {
        let by = match self.rng.below(4) {
            _ if self.world.is_calm.get() => 600_000,
            // So far that an operator has to take a schedule back.
            _ if self.world.has_schedules && self.rng.below(4) == 0 => {
                [7_200_000, -7_200_000][self.rng.below(2)]
            }
            turn => [1_000, 60_000, 600_000, -60_000][turn],
        };
        self.world.turn(by);
        self.world.note(format!("clocks are set ahead by {by}"));
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
                let operation = seat.desk.current().expect("a worker commits within an operation");
                self.under_way.push(UnderWay { commit, operation, is_late: false });
            }
            if has_ended {
                self.seats[at] = self.hire(self.seats[at].role, self.seats[at].desk.at);
                return;
            }
            match seat.desk.stopped() {
                _ if is_sent || seat.backoff.is_some() => return,
                Stop::Pausing => return,
                Stop::Dying => return self.crash(at),
                stopped @ Stop::Watching(counter, _) if stopped != before => {
                    seat.seen = self.world.oracle.borrow().counted(seat.desk.at, counter);
                    return;
                }
                Stop::Working | Stop::Watching(..) => seat.worker.wait(&seat.desk),
            }
        }
    }

    fn crash(&mut self, at: usize) {
        self.world.note(format!("{} dies", self.seats[at].desk.name()));
        self.world.count(if self.is_committing(&self.seats[at]) {
            "a crash within a commit"
        } else {
            "a crash"
        });
        self.seats[at] = self.hire(self.seats[at].role, self.seats[at].desk.at);
    }

    /// A commit arrives, and meets what it has to meet.
    fn commit(&mut self, at: usize) {
        let UnderWay { mut commit, operation, is_late } = self.under_way.remove(at);
        let fault = self.fault();
        self.commits += 1;
        let entry = format!("{}: {operation}", self.commits);
        let (key, offset) = self.world.place.log_record();
        commit.add_stamped_key(key, offset, entry.clone().into_bytes());
        let read = u64::try_from(commit.read_version()).unwrap();
        let told = commit.pass(fault).map_err(Code::raw);
        let logged = self.world.place.last_logged(&self.world.db).filter(|(_, last)| *last == entry);
        self.count_outcome(&operation, told, fault);
        let version = told.ok().map(|version| u64::try_from(version).unwrap());
        assert!(version.is_none() || version == logged.as_ref().map(|(version, _)| *version));
        if let Some((version, _)) = logged {
            let rows = self.world.place.rows(&self.world.db, self.world.queues.len());
            let (time, clock, turns) = (self.world.time(), self.world.clock(), self.world.turns());
            let at = At { read, commit: version, time, clock, turns };
            let judged = self.world.oracle.borrow_mut().committed(&operation, at, &rows);
            self.world
                .oracle
                .borrow()
                .index(0)
                .states()
                .into_iter()
                .for_each(|state| self.world.count(state));
            let events = judged.unwrap_or_else(|how| panic!("{operation}: {how}"));
            events.iter().for_each(|event| self.world.count(event.name()));
            self.count_joins();
            self.count_schedules(&operation, &events, is_late || told == Err(UNKNOWN));
        }
    }

    /// Counts what the last commit made of items that were to join a batch.
    fn count_joins(&self) {
        for join in self.world.oracle.borrow().joins.values() {
            match join {
                Join::Joined(state) => self.world.count(format!("an item joins a batch: {state:?}")),
                Join::Ended(ending) => {
                    self.world.count(format!("an item that has ended joins a batch: {ending:?}"));
                }
                Join::WasMember | Join::Gone => {}
            }
        }
    }

    /// Counts what became of occurrences, and of what was waited for or in the way.
    fn count_schedules(&self, operation: &Operation, events: &[Event], is_unknown: bool) {
        for event in events {
            match event {
                Event::Fired(sweep) => {
                    operation.unknown_fires.update(|n| n + u32::from(is_unknown));
                    self.world.count_if(is_unknown, "outcome unknown, and it happened: schedules fire");
                    sweep.records().for_each(|(_, record)| self.world.count(fate_name(record.fate)));
                    for firing in &sweep.firings {
                        let waits = firing.waits.map(|(nominal, _)| nominal);
                        let waited = firing.waited.map(|(nominal, _)| nominal);
                        self.world.count_if(waits.is_some() && waits != waited, "an occurrence waits");
                        let has_fired =
                            |record: &&Record| record.fate == Fate::Fired && Some(record.from) == waited;
                        let fires = firing.records.iter().any(|record| has_fired(&record));
                        self.world.count_if(fires, "an occurrence that waited fires");
                    }
                }
                Event::Schedule { name, change, records, .. } => {
                    records.iter().for_each(|record| self.world.count(fate_name(record.fate)));
                    let is_away =
                        *change == Change::Removed && self.world.oracle.borrow().model(0).has_leased(name);
                    self.world.count_if(is_away, "a schedule is removed while its item is on a lease");
                }
                _ => {}
            }
        }
    }

    /// Notes the result of a client's commit.
    fn count_outcome(&self, operation: &Operation, told: Result<i64, i32>, fault: Fault) {
        let Err(code) = told else { return };
        operation.unknown.update(|n| n + u32::from(code == UNKNOWN));
        let what = operation.intent.name();
        match (code, fault) {
            (UNKNOWN, Fault::UnknownCommitted) => {
                self.world.count(format!("outcome unknown, and it happened: {what}"));
            }
            (UNKNOWN, _) => self.world.count(format!("outcome unknown, and it did not: {what}")),
            (CONFLICT, Fault::None) => self.world.count(format!("conflict: {what}")),
            (TOO_OLD, Fault::None) => self.world.count("a commit is too old"),
            _ => {}
        }
        self.world.note(format!("{operation}: told {code}"));
    }

    fn fault(&mut self) -> Fault {
        if self.rng.below(100) >= self.weather.faults {
            return Fault::None;
        }
        [Fault::UnknownCommitted, Fault::UnknownNotCommitted, Fault::Conflict, Fault::TooOld]
            [self.rng.below(4)]
    }
}
