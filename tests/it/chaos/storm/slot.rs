//! A place for somebody at work: who is there, and what is to happen to it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::chaos::{errand::Errand, plan::Worker, process::Process, producers::Producer};
use crate::support::hears_hup;

/// So much later than others, keepers begin.
const LATER: Duration = Duration::from_secs(1);

/// Someone at work.
pub(super) enum Actor {
    Daemon(Process),
    Producer(Box<Producer>),
}

impl Actor {
    /// Whether what it pushes may be refused.
    pub(super) fn may_be_refused(&self) -> bool {
        matches!(self, Self::Producer(producer) if producer.may_be_refused())
    }

    pub(super) fn process(&mut self) -> &mut Process {
        match self {
            Self::Daemon(process) => process,
            Self::Producer(producer) => &mut producer.process,
        }
    }
}

/// A place for somebody at work.
pub(super) struct Slot {
    /// `None` for producers.
    pub(super) worker: Option<Worker>,
    pub(super) actor: Option<Actor>,
    /// If there is nobody: when somebody comes.
    pub(super) start_at: Instant,
    pub(super) kill_at: Option<Instant>,
    pub(super) continue_at: Option<Instant>,
    /// It was killed by us, and not by what it handled.
    pub(super) is_killed: bool,
    pub(super) is_terminated: bool,
    /// The items that must be pushed again.
    pub(super) unfinished: Option<Errand>,
}

impl Slot {
    pub(super) fn new(worker: Option<Worker>) -> Self {
        Self {
            worker,
            actor: None,
            // The first process hosts an embedded database, so it should be one that can be killed.
            start_at: Instant::now()
                + if matches!(worker, Some(Worker::Keeper | Worker::Steady | Worker::Puller)) {
                    LATER
                } else {
                    Duration::ZERO
                },
            kill_at: None,
            continue_at: None,
            is_killed: false,
            is_terminated: false,
            unfinished: None,
        }
    }

    pub(super) fn fill(&mut self, actor: Actor) {
        self.actor = Some(actor);
        (self.is_killed, self.is_terminated) = (false, false);
    }

    /// Who was there is gone; the next comes at this time.
    pub(super) fn empty(&mut self, start_at: Instant) -> Option<Actor> {
        (self.kill_at, self.continue_at) = (None, None);
        self.start_at = start_at;
        self.actor.take()
    }

    /// Whether nobody there is killed.
    pub(super) fn is_kept(&self) -> bool {
        self.worker == Some(Worker::Keeper) || self.is_steady()
    }

    /// Whether nobody there is stopped.
    pub(super) fn is_steady(&self) -> bool {
        self.worker == Some(Worker::Steady)
    }

    /// Kills the process of this slot.
    pub(super) fn kill(&mut self) -> bool {
        self.kill_at = None;
        let is_kept = self.is_kept();
        let Some(actor) = self.actor.as_mut().filter(|_| !is_kept) else { return false };
        self.is_killed = true;
        actor.process().signal(Signal::KILL);
        true
    }

    /// Stops the process of this slot until some time.
    pub(super) fn stop(&mut self, until: Instant) -> bool {
        let is_steady = self.is_steady();
        let Some(actor) = self.actor.as_mut().filter(|_| !is_steady) else { return false };
        actor.process().signal(Signal::STOP);
        self.continue_at = Some(until);
        true
    }

    /// Continues a stopped process.
    pub(super) fn go_on(&mut self) {
        if let (Some(_), Some(actor)) = (self.continue_at.take(), &mut self.actor) {
            actor.process().signal(Signal::CONT);
        }
    }

    /// Lets a daemon drain.
    pub(super) fn terminate(&mut self) -> bool {
        if self.worker == Some(Worker::Puller) {
            return self.kill();
        }
        // A second signal would end it at once.
        let Some(Actor::Daemon(process)) = self.actor.as_ref().filter(|_| !self.is_terminated) else {
            return false;
        };
        self.is_terminated = true;
        process.signal(Signal::TERM);
        true
    }

    /// Makes a daemon reload its configuration. One that has only just begun would be killed by that.
    pub(super) fn reload(&self) -> bool {
        let Some(Actor::Daemon(process)) = self.actor.as_ref().filter(|_| !self.is_terminated) else {
            return false;
        };
        let hears = hears_hup(process.pid());
        if hears {
            process.signal(Signal::HUP);
        }
        hears
    }

    /// Whether a producer pushes an item of this unique key.
    pub(super) fn pushes_under(&self, key: &str) -> bool {
        matches!(&self.actor, Some(Actor::Producer(producer)) if producer.pushes_under(key))
    }

    /// Whether a producer runs, or must be started again.
    pub(super) fn has_to_push(&self) -> bool {
        self.worker.is_none() && (self.actor.is_some() || self.unfinished.is_some())
    }
}
