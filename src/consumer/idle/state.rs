//! Who of a queue's consumers in this process is idle, and who is to look for items. Pure: an event changes the state and names
//! the effects.
//!
//! One watch serves all. When it fires one consumer is woken; a consumer that finds items wakes the next, so as many wake as there
//! is work; the one that finds nothing brings the next watch. In between nothing can be missed, for one rule holds after every event:
//!
//! **where anyone is idle, a watch is armed, or somebody is looking.**
//!
//! The same push fires the watches of all processes, and one of them gets the item. Those that come too late keep a distance from then on, at
//! random within a span that grows, so that most find out without a conflict; who finds what it was woken for comes closer again. A process that is
//! alone never waits.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// A consumer among those of its queue and process. No two ever have the same number.
pub(crate) type Member = u64;

/// The first distance of a process that lost a race, and the smallest that is kept.
const LEAST_DISTANCE: Duration = Duration::from_millis(1);

/// The largest distance: what an idle consumer may add to an item's way.
const MOST_DISTANCE: Duration = Duration::from_millis(20);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A take found nothing; the member is idle from here on.
    Empty {
        /// Who took.
        member: Member,
        /// Whether a watch came with it.
        watched: bool,
    },
    /// A take found items.
    Found {
        /// Who took.
        member: Member,
        /// Whether it lost against other takes before it did.
        conflicts: bool,
    },
    /// The watch fired, and is used up.
    Fired,
    /// The watch is to be relied upon no longer.
    Expired,
    /// Something other than a push gives reason to look.
    Nudged,
    /// The queue has come to rest, which is for everyone to see.
    Rested,
    /// A member is gone, whatever it was doing.
    Gone(Member),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Wait on the watch that has just come.
    Watch,
    /// Let an idle member look.
    Wake {
        /// Whom.
        member: Member,
        /// How long from now.
        after: Duration,
    },
}

/// Why a member looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reason {
    /// The watch fired.
    Push,
    /// Anything else.
    Other,
}

/// Who is idle, who looks, and whether a watch is armed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// In the order in which they became idle.
    idle: VecDeque<Member>,
    /// Woken, and not back from a take.
    looking: BTreeMap<Member, Reason>,
    armed: bool,
    /// How far this process keeps away from the others.
    distance: Duration,
    /// Whether a member that was not woken has found items since the watch was armed. Then it was no other process that won.
    served: bool,
}

impl State {
    /// Whether the next take should bring a watch.
    pub(crate) fn wants_watch(&self) -> bool {
        !self.armed
    }

    /// Takes an event into account. `random` is any number.
    pub(crate) fn on(&mut self, event: Event, random: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Empty { member, watched } => {
                if self.looking.remove(&member) == Some(Reason::Push) && !self.served {
                    self.keep_away();
                }
                self.idle.push_back(member);
                if watched {
                    self.armed = true;
                    self.served = false;
                    effects.push(Effect::Watch);
                }
            }
            Event::Found { member, conflicts } => {
                match self.looking.remove(&member) {
                    Some(Reason::Push) if conflicts => self.keep_away(),
                    Some(Reason::Push) => self.come_closer(),
                    _ => self.served = true,
                }
                self.look(Reason::Other, Duration::ZERO, &mut effects);
            }
            Event::Fired => {
                self.armed = false;
                let after = self.distance.mul_f64(random as f64 / u64::MAX as f64);
                self.look(Reason::Push, after, &mut effects);
            }
            Event::Expired => self.armed = false,
            Event::Nudged => self.look(Reason::Other, Duration::ZERO, &mut effects),
            Event::Rested => {
                while let Some(member) = self.idle.pop_front() {
                    self.wake(member, Reason::Other, Duration::ZERO, &mut effects);
                }
            }
            Event::Gone(member) => {
                self.looking.remove(&member);
                self.idle.retain(|idle| *idle != member);
            }
        }
        if !self.armed {
            self.look(Reason::Other, Duration::ZERO, &mut effects);
        }
        effects
    }

    /// Lets the member that has been idle longest look, unless somebody is looking already.
    fn look(&mut self, reason: Reason, after: Duration, effects: &mut Vec<Effect>) {
        if self.looking.is_empty()
            && let Some(member) = self.idle.pop_front()
        {
            self.wake(member, reason, after, effects);
        }
    }

    fn wake(&mut self, member: Member, reason: Reason, after: Duration, effects: &mut Vec<Effect>) {
        self.looking.insert(member, reason);
        effects.push(Effect::Wake { member, after });
    }

    fn keep_away(&mut self) {
        self.distance = (self.distance * 2).clamp(LEAST_DISTANCE, MOST_DISTANCE);
    }

    fn come_closer(&mut self) {
        self.distance /= 2;
        if self.distance < LEAST_DISTANCE {
            self.distance = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests;
