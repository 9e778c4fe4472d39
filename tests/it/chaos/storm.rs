//! The storm: processes at work, faults drawn from the seed, and new processes for those that have died.

use std::{
    fmt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    arena::Arena,
    plan::Worker,
    process::{End, Process},
    producers::{Errand, Producer, Pushed},
};
use crate::support::{PATIENCE, Random};

/// Who takes part.
const DAEMONS: [Worker; 4] = [Worker::Helper, Worker::Program, Worker::Helper, Worker::Program];
const PRODUCERS: usize = 3;

/// Between two faults.
const GAP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(600));

/// Between two looks at the processes.
const TICK: Duration = Duration::from_millis(10);

/// Between two restarts of the cluster, at least.
const RESTARTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(30));

/// What was done to the processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) kills: u64,
    hosts: u64,
    starts: u64,
    stops: u64,
    terms: u64,
    restarts: u64,
    retries: u64,
    /// Killed themselves, or were killed by what they handled.
    suicides: u64,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, hosts, starts, stops, terms, restarts, retries, suicides } = self;
        write!(
            f,
            "{kills} kills ({hosts} of hosts, {starts} at the start), {suicides} by poison, {stops} stops, {terms} terms, {restarts} cluster restarts, \
             {retries} retries of dead letters"
        )
    }
}

/// Someone at work.
enum Actor {
    Daemon(Process),
    Producer(Box<Producer>),
}

/// A place for somebody at work.
struct Slot {
    /// `None` for producers.
    worker: Option<Worker>,
    actor: Option<Actor>,
    /// If there is nobody: when somebody comes.
    start_at: Instant,
    kill_at: Option<Instant>,
    continue_at: Option<Instant>,
    /// It was killed by us, and not by what it handled.
    is_killed: bool,
    /// What has to be pushed again.
    unfinished: Option<Errand>,
}

/// The processes of a run, and what has become of those before them.
pub(super) struct Storm<'a> {
    arena: &'a Arena,
    random: Random,
    slots: Vec<Slot>,
    /// Commands that nobody waits for.
    commands: Vec<Process>,
    restart_at: Option<Instant>,
    started: u64,
    pub(super) faults: Faults,
    pub(super) pushed: Vec<Pushed>,
    /// Daemons that were killed.
    pub(super) killed_daemons: u64,
    /// Processes that failed though nobody hurt them.
    pub(super) failed: Vec<String>,
}

impl Actor {
    fn process(&mut self) -> &mut Process {
        match self {
            Self::Daemon(process) => process,
            Self::Producer(producer) => &mut producer.process,
        }
    }
}

impl<'a> Storm<'a> {
    pub(super) fn new(arena: &'a Arena, random: Random) -> Self {
        let now = Instant::now();
        let workers = DAEMONS.map(Some).into_iter().chain([None; PRODUCERS]);
        let slots = workers.map(|worker| Slot {
            worker,
            actor: None,
            start_at: now,
            kill_at: None,
            continue_at: None,
            is_killed: false,
            unfinished: None,
        });
        Self {
            arena,
            random,
            slots: slots.collect(),
            commands: Vec::new(),
            restart_at: restart_command().map(|_| now + RESTARTS.0 / 2),
            started: 0,
            faults: Faults::default(),
            pushed: Vec::new(),
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
            std::thread::sleep(TICK);
        }
    }

    /// Ends it: everybody goes on, pushes what there is to push, and stops.
    pub(super) fn calm(&mut self) {
        for slot in &mut self.slots {
            slot.kill_at = None;
            if slot.continue_at.is_some() {
                slot.continue_at = Some(Instant::now());
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while self.slots.iter().any(|slot| slot.worker.is_none() && !slot.is_at_rest()) {
            assert!(Instant::now() < deadline, "producers do not end");
            for slot in &self.slots {
                if let Some(Actor::Producer(producer)) = &slot.actor {
                    producer.enough();
                }
            }
            self.tick(false);
            std::thread::sleep(TICK);
        }
        for mut command in std::mem::take(&mut self.commands) {
            command.wait();
        }
        for at in 0..self.slots.len() {
            if let Some(actor) = &mut self.slots[at].actor {
                actor.process().signal(Signal::TERM);
            }
        }
        for at in 0..self.slots.len() {
            if let Some(actor) = &mut self.slots[at].actor {
                let end = actor.process().wait();
                self.bury(at, end);
            }
        }
    }

    /// Sees to what has come due, and to who has died. New ones come as long as it rages; and producers that have to finish.
    fn tick(&mut self, raging: bool) {
        let now = Instant::now();
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let Some(actor) = &mut slot.actor else {
                if now >= slot.start_at && (raging || slot.unfinished.is_some()) {
                    self.start(at, raging);
                }
                continue;
            };
            if slot.kill_at.is_some_and(|kill_at| now >= kill_at) {
                slot.kill();
                self.faults.kills += 1;
                self.faults.starts += 1;
                continue;
            }
            if slot.continue_at.is_some_and(|continue_at| now >= continue_at) {
                slot.continue_at = None;
                actor.process().signal(Signal::CONT);
            }
            if let Some(end) = actor.process().ended() {
                self.bury(at, end);
            }
        }
        self.commands.retain_mut(|command| command.ended().is_none());
    }

    fn start(&mut self, at: usize, raging: bool) {
        self.started += 1;
        let (number, arena) = (self.started, self.arena);
        let slot = &mut self.slots[at];
        let actor = match slot.worker {
            Some(worker) => Actor::Daemon(arena.daemon(worker, number, false)),
            None => {
                let drawn = || Errand::draw(&mut self.random, &arena.queues, number);
                let errand = slot.unfinished.take().unwrap_or_else(drawn);
                let config = arena.config(Worker::Helper);
                Actor::Producer(Box::new(Producer::start(&arena.db, &config, &arena.queues, errand)))
            }
        };
        slot.actor = Some(actor);
        slot.is_killed = false;
        if raging && self.random.chance(80) {
            slot.kill_at = Some(Instant::now() + self.random.time_below(Duration::from_millis(200)));
        }
    }

    /// Takes note of a process that has ended, and makes its place free.
    fn bury(&mut self, at: usize, end: End) {
        let slot = &mut self.slots[at];
        slot.kill_at = None;
        slot.continue_at = None;
        slot.start_at = Instant::now() + self.random.time_below(Duration::from_millis(500));
        let Some(mut actor) = slot.actor.take() else { return };
        self.faults.suicides += u64::from(end == End::Killed && !slot.is_killed);
        if end == End::Failed {
            self.failed.push(actor.process().name.clone());
        }
        match actor {
            Actor::Daemon(_) => self.killed_daemons += u64::from(end == End::Killed),
            Actor::Producer(producer) => match producer.pushed(end) {
                Ok(pushed) => self.pushed.push(pushed),
                Err(errand) => slot.unfinished = Some(errand),
            },
        }
    }

    /// One fault, for any of those at work.
    fn strike(&mut self) {
        if self.restart_at.is_some_and(|restart_at| Instant::now() >= restart_at) && self.commands.is_empty()
        {
            return self.restart_cluster();
        }
        let at = self.random.below(self.slots.len() as u64) as usize;
        let lease = Duration::from_secs(2);
        match self.random.below(100) {
            0..=29 => self.kill(at),
            30..=44 => self.kill_host(at),
            45..=69 => self.stop(at, Duration::from_millis(10), lease / 2),
            70..=79 => self.stop(at, lease / 2, lease * 2),
            80..=93 => self.terminate(at),
            _ => self.retry_dead(),
        }
    }

    fn kill(&mut self, at: usize) {
        self.faults.kills += u64::from(self.slots[at].kill());
    }

    /// Kills the host of an embedded database; on a cluster, or where no host is found, somebody else.
    fn kill_host(&mut self, otherwise: usize) {
        let host = self.arena.host();
        let is_host = |slot: &mut Slot| slot.actor.as_mut().map(|actor| actor.process().pid()) == host;
        let found = host.and_then(|_| self.slots.iter_mut().position(is_host));
        self.faults.hosts += u64::from(found.is_some());
        self.kill(found.unwrap_or(otherwise));
    }

    fn stop(&mut self, at: usize, low: Duration, high: Duration) {
        let time = self.random.time_between(low, high);
        let slot = &mut self.slots[at];
        if let Some(actor) = &mut slot.actor {
            actor.process().signal(Signal::STOP);
            slot.continue_at = Some(Instant::now() + time);
            self.faults.stops += 1;
        }
    }

    fn terminate(&mut self, at: usize) {
        if let Some(Actor::Daemon(process)) = &mut self.slots[at].actor {
            process.signal(Signal::TERM);
            self.faults.terms += 1;
        }
    }

    fn retry_dead(&mut self) {
        let queues: Vec<&str> = self.arena.queues.iter().map(|queue| queue.name.as_str()).collect();
        let queue = self.random.choose(&queues);
        let mut command = self.arena.command(&["dead", "retry", queue, "--all"]);
        self.commands.push(Process::start("retry".to_owned(), &mut command));
        self.faults.retries += 1;
    }

    fn restart_cluster(&mut self) {
        let Some(mut command) = restart_command() else { return };
        self.commands.push(Process::start("restart of the cluster".to_owned(), &mut command));
        self.restart_at = Some(Instant::now() + self.random.time_between(RESTARTS.0, RESTARTS.1));
        self.faults.restarts += 1;
    }
}

impl Slot {
    /// Kills whoever is there.
    fn kill(&mut self) -> bool {
        self.kill_at = None;
        let Some(actor) = &mut self.actor else { return false };
        self.is_killed = true;
        actor.process().signal(Signal::KILL);
        true
    }

    fn is_at_rest(&self) -> bool {
        self.actor.is_none() && self.unfinished.is_none()
    }
}

/// The command that kills the cluster's servers and starts them again, if there is one.
fn restart_command() -> Option<Command> {
    let text = std::env::var_os("KVQUEUE_TEST_CLUSTER_RESTART")?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(text).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command)
}
