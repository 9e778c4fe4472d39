//! The faults of the processes: drawn from the seed, and counted.

use std::{
    fmt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::Storm;
use crate::chaos::{
    plan::{Crew, Mood, Worker, rule},
    process::Process,
};

/// Between two restarts of the cluster, at least.
pub(super) const RESTARTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(30));

/// Between two recoveries of the cluster, at least.
pub(super) const RECOVERIES: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(8));

/// The environment variable with the command that kills the cluster's servers and starts them again.
pub(super) const RESTART: &str = "KVQUEUE_TEST_CLUSTER_RESTART";

/// The environment variable with the command that makes the cluster recover.
pub(super) const RECOVER: &str = "KVQUEUE_TEST_CLUSTER_RECOVER";

/// The longest leases but those of steady daemons; stops take up to two of them.
const LEASE: Duration = Duration::from_secs(2);

/// How many of a thousand faults give the daemons of a kind another configuration.
const RELOADED: u64 = 400;

/// The counts of faults.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::chaos) struct Faults {
    pub(super) kills: u64,
    /// Of those.
    hosts: u64,
    /// Of those, just after the start.
    pub(super) starts: u64,
    /// Killed by what they handled.
    pub(super) poisoned: u64,
    stops: u64,
    reloads: u64,
    terms: u64,
    /// Terminated, and lost a lease before they were done.
    pub(super) torn: u64,
    restarts: u64,
    recoveries: u64,
    retries: u64,
    rules: u64,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kills,
            hosts,
            starts,
            poisoned,
            stops,
            reloads,
            terms,
            torn,
            restarts,
            recoveries,
            retries,
            rules,
        } = self;
        write!(
            f,
            "{kills} kills ({hosts} of hosts, {starts} at the start), {poisoned} by poison, {stops} stops, {reloads} reloads, {terms} terms ({torn} lost a \
             lease meanwhile), {restarts} cluster restarts, {recoveries} recoveries, {retries} retries of dead letters, {rules} changes of rules"
        )
    }
}

impl Storm<'_> {
    /// One fault, for any of those at work.
    pub(super) fn strike(&mut self) {
        if self.restart_at.is_some_and(|restart_at| Instant::now() >= restart_at) && self.commands.is_empty()
        {
            return self.restart_cluster();
        }
        if self.recover_at.is_some_and(|at| Instant::now() >= at) && self.commands.is_empty() {
            return self.recover_cluster();
        }
        if self.random.chance(RELOADED) {
            self.reload();
        }
        let at = self.random.below(self.slots.len() as u64) as usize;
        match self.random.below(100) {
            0..=29 => self.kill(at),
            30..=44 => self.kill_host(at),
            45..=69 => self.stop(at, Duration::from_millis(10), LEASE / 2),
            70..=79 => self.stop(at, LEASE / 2, 2 * LEASE),
            80..=89 => self.terminate(at),
            90..=95 => self.change_rule(),
            _ => self.retry_dead(),
        }
    }

    fn kill(&mut self, at: usize) {
        self.faults.kills += u64::from(self.slots[at].kill());
    }

    /// Kills the host of an embedded database, or terminates it if it is one that is not killed; on a cluster, or where no host is found,
    /// somebody else has to die.
    fn kill_host(&mut self, otherwise: usize) {
        let host = self.arena.host();
        let pids = self.slots.iter_mut().map(|slot| slot.actor.as_mut().map(|actor| actor.process().pid()));
        let found = host.and_then(|host| pids.into_iter().position(|pid| pid == Some(host)));
        match found {
            Some(at) if self.slots[at].is_kept() => self.terminate(at),
            found => {
                self.faults.hosts += u64::from(found.is_some());
                self.kill(found.unwrap_or(otherwise));
            }
        }
    }

    fn terminate(&mut self, at: usize) {
        self.faults.terms += u64::from(self.slots[at].terminate());
    }

    /// Gives daemons of a kind another configuration. A daemon that has just started may read either.
    fn reload(&mut self) {
        let (worker, mood) = (self.random.choose(&Worker::ALL), Mood::draw(&mut self.random));
        self.arena.configure(worker, mood);
        let slots = self.slots.iter().filter(|slot| slot.worker == Some(worker));
        self.faults.reloads += slots.filter(|slot| slot.reload()).count() as u64;
    }

    fn stop(&mut self, at: usize, low: Duration, high: Duration) {
        let until = Instant::now() + self.random.time_between(low, high);
        self.faults.stops += u64::from(self.slots[at].stop(until));
    }

    fn retry_dead(&mut self) {
        // Attempts of a retried item begin again, and a worker over HTTP is not told of the failures before.
        let queues = self.arena.queues.iter().filter(|queue| queue.crew != Crew::Pullers);
        let queues: Vec<&str> = queues.map(|queue| queue.name.as_str()).collect();
        let queue = self.random.choose(&queues);
        let mut command = self.arena.command(&["requeue", queue, "--dead"]);
        self.commands.push(Process::start("retry of dead letters".to_owned(), &mut command));
        self.retried.insert(queue.to_owned());
        self.faults.retries += 1;
    }

    fn change_rule(&mut self) {
        let args = rule(&mut self.random);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = self.arena.command(&args);
        self.commands.push(Process::start("change of a rule".to_owned(), &mut command));
        self.faults.rules += 1;
    }

    fn restart_cluster(&mut self) {
        let Some(mut command) = command_of(RESTART) else { return };
        self.commands.push(Process::start("restart of the cluster".to_owned(), &mut command));
        self.restart_at = Some(Instant::now() + self.random.time_between(RESTARTS.0, RESTARTS.1));
        self.faults.restarts += 1;
    }

    fn recover_cluster(&mut self) {
        let Some(mut command) = command_of(RECOVER) else { return };
        self.commands.push(Process::start("recovery of the cluster".to_owned(), &mut command));
        self.recover_at = Some(Instant::now() + self.random.time_between(RECOVERIES.0, RECOVERIES.1));
        self.faults.recoveries += 1;
    }
}

/// The shell command in an environment variable, if it is set.
pub(super) fn command_of(variable: &str) -> Option<Command> {
    let text = std::env::var_os(variable)?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(text).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command)
}
