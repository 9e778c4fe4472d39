//! Operators: processes that look for items and cancel them, or make and commit batches, and that may be killed.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use kvqueue::config::Delivery;
use rustix::process::Signal;
use serde_json::Value;

use super::Storm;
use crate::chaos::{
    arena::{Arena, now},
    errand::{Errand, Way},
    payload::Name,
    plan::Crew,
    process::{End, Process},
};
use crate::support::Random;

/// How many are at work.
const OPERATORS: usize = 2;

/// Between the end of one and the next.
const PAUSE: Duration = Duration::from_millis(150);

/// How many of a thousand commands are killed within this of their start.
const KILLED: (u64, Duration) = (150, Duration::from_millis(300));

/// How many of a thousand operators make a batch. The others cancel items.
const BATCHES: u64 = 150;

/// How many of a thousand let several producers push under one unique key.
const KEYS: u64 = 300;

/// How many these are.
const PUSHES: usize = 4;

/// How many of a thousand look at the steady daemons' queue.
const STEADY: u64 = 200;

/// How many items an operator looks at, and cancels at most.
const SEEN: &str = "30";
const CANCELLED: u64 = 3;

/// What is known of the cancellation of an item that was in its queue.
#[derive(Clone, Debug)]
pub(in crate::chaos) struct Cancellation {
    pub(in crate::chaos) id: String,
    pub(in crate::chaos) name: Name,
    /// It was acknowledged by then, in ms; without that, nobody knows.
    pub(in crate::chaos) acknowledged: Option<u64>,
}

/// The command of an operator.
#[derive(Debug)]
pub(super) enum Task {
    /// Shows items of a queue.
    Look(usize),
    /// Cancels items of a queue, with these ids.
    Cancel(Vec<(String, Name)>),
    /// Makes a batch, which has this place among all.
    NewBatch(usize),
    /// Commits it.
    Commit(usize),
}

/// An operator at work.
pub(super) struct Operator {
    task: Task,
    process: Process,
    printed: PathBuf,
    kill_at: Option<Instant>,
}

impl Operator {
    fn start(arena: &Arena, number: u64, random: &mut Random, task: Task, args: &[&str]) -> Self {
        let name = format!("operator-{number}");
        let printed = arena.db.file(&name);
        let mut command = arena.command(args);
        Arena::weather(&mut command, number);
        command.stdout(Process::log(&printed));
        let process = Process::start(name, &mut command);
        let (chance, within) = KILLED;
        let kill_at = random.chance(chance).then(|| Instant::now() + random.time_below(within));
        Self { task, process, printed, kill_at }
    }

    /// Who is at work, for a person.
    pub(super) fn at_work(&self) -> String {
        format!("{} {:?}", self.process.at_work(), self.task)
    }

    /// The lines of its output that were not cut off.
    fn lines(&self) -> Vec<Value> {
        let printed = std::fs::read_to_string(&self.printed).unwrap();
        printed.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The items that it has seen.
    fn seen(&self) -> Vec<(String, Name)> {
        let item = |line: Value| {
            let (id, payload) = (line["id"].as_str()?, line["payload"].as_str()?);
            let name = Name::read(payload, line["attributes"]["schedule-time"].as_str()).ok()?;
            Some((id.to_owned(), name))
        };
        self.lines().into_iter().filter_map(item).collect()
    }

    /// What became of the items that it was to cancel. One that was not there any more has ended otherwise.
    fn cancellations(&self, items: &[(String, Name)]) -> Vec<Cancellation> {
        let (lines, now) = (self.lines(), now());
        let of = |(id, name): &(String, Name)| {
            let answer = lines.iter().find(|line| line["id"] == **id).map(|line| line["done"] == "cancelled");
            let acknowledged = match answer {
                Some(false) => return None,
                Some(true) => Some(now),
                None => None,
            };
            Some(Cancellation { id: id.clone(), name: *name, acknowledged })
        };
        items.iter().filter_map(of).collect()
    }
}

impl Storm<'_> {
    /// Sees to operators that have ended; and new ones come as long as it rages.
    pub(super) fn operate(&mut self, raging: bool) {
        let mut busy = Vec::new();
        for mut operator in std::mem::take(&mut self.operators) {
            if operator.kill_at.take_if(|at| Instant::now() >= *at).is_some() {
                operator.process.signal(Signal::KILL);
                self.faults.kills += 1;
            }
            match operator.process.ended() {
                None => busy.push(operator),
                Some(end) => busy.extend(self.after(&operator, end)),
            }
        }
        self.operators = busy;
        if raging && self.operators.len() < OPERATORS && Instant::now() >= self.operate_at {
            if self.random.chance(KEYS) && self.waiting.is_empty() {
                self.push_one_key();
            }
            let operator = if self.random.chance(BATCHES) { self.new_batch() } else { self.look() };
            self.operators.push(operator);
        }
        let commit = self.commit_batch();
        self.operators.extend(commit);
    }

    /// Takes note of what an operator has done, and gives it the next command, if it needs one.
    fn after(&mut self, operator: &Operator, end: End) -> Option<Operator> {
        self.operate_at = Instant::now() + self.random.time_below(2 * PAUSE);
        match &operator.task {
            Task::Look(queue) => self.cancel(*queue, operator.seen()),
            Task::Cancel(items) => {
                self.cancellations.extend(operator.cancellations(items));
                None
            }
            Task::NewBatch(place) => {
                let id = operator.lines().first().and_then(|line| line["id"].as_str().map(str::to_owned));
                self.made(*place, id);
                None
            }
            Task::Commit(place) => self.committed(*place, end),
        }
    }

    pub(super) fn operator(&mut self, task: Task, args: &[&str]) -> Operator {
        self.started += 1;
        Operator::start(self.arena, self.started, &mut self.random, task, args)
    }

    /// Lets the next producers push items of one unique key, which is taken for a time, or whose item is replaced.
    fn push_one_key(&mut self) {
        let queues = &self.arena.queues;
        let exact = |at: &usize| queues[*at].delivery == Delivery::ExactlyOnce;
        let places: Vec<usize> = (0..queues.len()).filter(exact).collect();
        let (place, key) = (self.random.choose(&places), self.random.below(2));
        let way = self.random.choose(&[Way::UniqueFor, Way::Replace]);
        for _ in 0..PUSHES {
            self.started += 1;
            let errand = Errand::of_key(&mut self.random, (place, &queues[place]), self.started, (way, key));
            if way == Way::Replace {
                self.replacing.insert(self.started);
            }
            self.waiting.push_back(errand);
        }
    }

    fn look(&mut self) -> Operator {
        let arena = self.arena;
        // Handlers of steady daemons take longest.
        let steady = arena.queues.iter().position(|queue| queue.crew == Crew::Steady);
        let any = self.random.below(arena.queues.len() as u64) as usize;
        let queue = steady.filter(|_| self.random.chance(STEADY)).unwrap_or(any);
        let state = self.random.choose(&["ready", "running", "running", "scheduled", "retrying"]);
        let args = ["peek", &arena.queues[queue].name, "--state", state, "-k", SEEN, "--json"];
        self.operator(Task::Look(queue), &args)
    }

    fn cancel(&mut self, queue: usize, mut seen: Vec<(String, Name)>) -> Option<Operator> {
        // Another item may have the id meanwhile.
        seen.retain(|(_, name)| !self.replacing.contains(&name.producer));
        let most = 1 + self.random.below(CANCELLED);
        while seen.len() as u64 > most {
            seen.swap_remove(self.random.below(seen.len() as u64) as usize);
        }
        let arena = self.arena;
        let ids = seen.iter().map(|(id, _)| id.as_str());
        let args: Vec<&str> =
            ["item", "cancel", "--json", &arena.queues[queue].name].into_iter().chain(ids).collect();
        (!seen.is_empty()).then(|| self.operator(Task::Cancel(seen.clone()), &args))
    }
}
