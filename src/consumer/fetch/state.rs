//! The fetcher's state machine. Pure: an event changes the state and names the effects.
//!
//! ```text
//!             a fetch is due
//!   resting ─────────────────▶ gathering ─────▶ fetching ── items, or none ──▶ resting
//!    │   ▲                     ▲   │               └──────── failed ──▶ backing off ──▶ resting
//!    │   └──────── released ───┼── held (the queue is paused, or its handler is unavailable)
//!    └─ the watch fired ─▶ delayed
//! ```
//!
//! An *asker* is a consumer, or a worker that leases over HTTP. It asks once and waits until it gets items, or has waited long enough. While anyone waits, one rule holds after
//! every event: **a watch is armed, or something is under way that ends in a fetch.**
//!
//! A push fires the watches of all processes, and only one of them gets the item. A process that
//! lost such a race delays its next fetch after a watch by a random time, within a span that
//! doubles with each lost race and halves with each won one. A process without rivals never waits.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

/// The first span of the delay after a lost race, and the shortest that is kept.
const LEAST_DELAY: Duration = Duration::from_millis(1);

/// The longest span: the most that the delay adds to the latency of an item.
const MOST_DELAY: Duration = Duration::from_millis(50);

/// The request of an asker. It has one open request at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) asker: u64,
    /// How many items it can use.
    pub(crate) items: usize,
    /// It has items to handle meanwhile: it is answered if there are none, and askers without
    /// items come first.
    pub(crate) prefetch: bool,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An asker asks for items.
    Asked(Request),
    /// An asker wants no items any more: it drains, or is gone.
    Withdrawn(u64),
    /// The watch fired, and is used up.
    WatchFired,
    /// The watch is not relied upon any longer: the poll interval is over, or the watch was lost.
    PollDue,
    /// There may be items for another reason than a push.
    LookAgain,
    /// The delay after a watch is over.
    DelayOver,
    /// Askers that were served together had the time to ask again.
    Gathered,
    /// Nothing may be fetched now.
    Held,
    /// This asker may have one item, to try whether its handler works again.
    Admitted(u64),
    /// Items may be fetched again.
    Released,
    /// This asker, which is [idle](State::idle), has got an item that another asker had fetched.
    Lent(u64),
    /// The fetch got items: enough for this many of [`State::fetching`], in their order.
    Fetched {
        served: usize,
        /// It lost against another process before it got them.
        conflicts: bool,
    },
    /// The fetch got nothing.
    Empty {
        /// Whether it armed a watch.
        watched: bool,
    },
    /// The same, since the queue is full, or its free slots are left to other sessions for now.
    Full {
        /// Whether it armed a watch.
        watched: bool,
    },
    /// The fetch got nothing, and no item is scheduled or running that could become ready.
    Exhausted,
    /// The database refused the fetch.
    Failed,
    /// The fetch cannot be made, or has failed, and the askers that it was for have their answers. The next one need not wait.
    Refused,
    /// The back-off after a failed fetch is over.
    BackoffOver,
}

/// An effect, which the fetcher carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Give askers that were served together time to ask again, unless nothing may be fetched.
    Gather,
    /// Fetch for [`State::fetching`].
    Fetch,
    /// Wait on the watch that the fetch has armed.
    Watch,
    /// Wait this long before the next fetch.
    Delay(Duration),
    /// Wait before the next fetch: this many failed in a row.
    Backoff { failures: u32 },
    /// Answer this asker.
    Reply(u64, NoItems),
}

/// Why a request ends without items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoItems {
    /// There is nothing to prefetch.
    Nothing,
    /// Nothing is ready, scheduled or running, which ends an asker that works until then.
    Exhausted,
    /// The asker withdrew its request.
    Withdrawn,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Resting,
    Delayed,
    Gathering,
    Fetching,
    Held,
    BackingOff,
}

/// Why a fetch is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reason {
    /// The watch fired.
    Push,
    /// Anything else.
    Other,
}

/// The requests of a queue's askers in this process, and what is under way for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// In the order in which they came. None of them is in `fetching`.
    waiting: VecDeque<Request>,
    /// The requests that the fetch under way is for.
    fetching: Vec<Request>,
    /// Askers in `fetching` that have withdrawn.
    withdrawn: BTreeSet<u64>,
    phase: Phase,
    due: Option<Reason>,
    /// Why the fetch under way was due.
    reason: Option<Reason>,
    /// Whether a watch is armed.
    armed: bool,
    /// Whether the last fetch found the queue full. While its watch is armed, an asker that asks makes no fetch due: it would most likely find the same.
    full: bool,
    /// Failed fetches in a row.
    failures: u32,
    /// The span of the delay after a watch.
    delay: Duration,
    /// A fetch that no watch had caused has got items since the watch was armed. If the watch leads
    /// to nothing, then perhaps because of that, and not because another process won.
    got_before_watch: bool,
}

impl State {
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The requests that wait for a later fetch.
    pub(crate) fn waiting(&self) -> &VecDeque<Request> {
        &self.waiting
    }

    /// The requests of the fetch under way: those of askers without items come first.
    pub(crate) fn fetching(&self) -> &[Request] {
        &self.fetching
    }

    /// An asker that waits for items while no fetch for it is under way or about to begin.
    pub(crate) fn idle(&self) -> Option<u64> {
        let is_idle = matches!(self.phase, Phase::Resting | Phase::Delayed | Phase::BackingOff);
        let request = self.waiting.iter().find(|request| is_idle && !request.prefetch)?;
        Some(request.asker)
    }

    /// Whether the fetch that begins should arm a watch, in the place of the one that is armed. A queue that was empty may be full now, and then another
    /// row changes.
    pub(crate) fn wants_watch(&self) -> bool {
        self.fetching.iter().chain(&self.waiting).any(|request| !request.prefetch)
    }

    /// Takes an event into account. A fetch asks for up to `most` items together, but always for
    /// one request at least. `random` is any number.
    pub(crate) fn on(&mut self, event: Event, most: usize, random: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        match (self.phase, event) {
            (Phase::Held | Phase::BackingOff, Event::Asked(Request { asker, prefetch: true, .. })) => {
                effects.push(Effect::Reply(asker, NoItems::Nothing));
            }
            (_, Event::Asked(request)) => {
                self.waiting.push_back(request);
                if request.prefetch || !self.full || !self.armed {
                    self.is_due(Reason::Other);
                }
            }
            (_, Event::Withdrawn(asker)) => self.withdraw(asker, &mut effects),
            (_, Event::Lent(asker)) => self.waiting.retain(|request| request.asker != asker),
            (_, Event::WatchFired) => {
                self.armed = false;
                self.is_due(Reason::Push);
            }
            (_, Event::PollDue) => {
                self.armed = false;
                self.is_due(Reason::Other);
            }
            (_, Event::LookAgain) => self.is_due(Reason::Other),
            (Phase::Delayed, Event::DelayOver) => self.gather(Reason::Push, &mut effects),
            (Phase::Gathering, Event::Gathered) => self.fetch(most, &mut effects),
            (Phase::Gathering, Event::Held) => self.hold(&mut effects),
            (Phase::Held, Event::Admitted(asker)) => self.fetch_for(asker, &mut effects),
            (Phase::Held, Event::Released) | (Phase::BackingOff, Event::BackoffOver) => {
                self.phase = Phase::Resting;
                self.is_due(Reason::Other);
            }
            (Phase::Fetching, Event::Fetched { served, conflicts }) => {
                self.fetched(served, conflicts, &mut effects);
            }
            (Phase::Fetching, Event::Empty { watched }) => self.empty(watched, false, &mut effects),
            (Phase::Fetching, Event::Full { watched }) => self.empty(watched, true, &mut effects),
            (Phase::Fetching, Event::Exhausted) => self.exhausted(&mut effects),
            (Phase::Fetching, Event::Failed) => self.failed(&mut effects),
            (Phase::Gathering | Phase::Fetching, Event::Refused) => {
                self.put_back(&mut effects);
                self.is_due(Reason::Other);
            }
            _ => {}
        }
        self.go_on(random, &mut effects);
        effects
    }

    /// A look for another reason than a push waits for no delay.
    fn is_due(&mut self, reason: Reason) {
        if self.due != Some(Reason::Other) {
            self.due = Some(reason);
        }
    }

    fn withdraw(&mut self, asker: u64, effects: &mut Vec<Effect>) {
        if self.fetching.iter().any(|request| request.asker == asker) {
            self.withdrawn.insert(asker);
        } else if let Some(at) = self.waiting.iter().position(|request| request.asker == asker) {
            self.waiting.remove(at);
            effects.push(Effect::Reply(asker, NoItems::Withdrawn));
        }
    }

    /// Starts what is due, if anyone waits.
    fn go_on(&mut self, random: u64, effects: &mut Vec<Effect>) {
        if self.waiting.is_empty() {
            return;
        }
        match (self.phase, self.due) {
            (Phase::Resting, Some(Reason::Push)) if !self.delay.is_zero() => {
                self.due = None;
                self.phase = Phase::Delayed;
                effects.push(Effect::Delay(self.delay.mul_f64(random as f64 / u64::MAX as f64)));
            }
            (Phase::Resting, Some(reason)) => self.gather(reason, effects),
            (Phase::Delayed, Some(Reason::Other)) => self.gather(Reason::Other, effects),
            (Phase::Resting, None) if !self.armed => self.gather(Reason::Other, effects),
            _ => {}
        }
    }

    fn gather(&mut self, reason: Reason, effects: &mut Vec<Effect>) {
        self.due = None;
        self.reason = Some(reason);
        self.phase = Phase::Gathering;
        effects.push(Effect::Gather);
    }

    /// Begins a fetch for the first requests.
    fn fetch(&mut self, most: usize, effects: &mut Vec<Effect>) {
        // All requests so far are in this fetch or in the one after it.
        self.due = None;
        let mut items = 0_usize;
        let count = self.waiting.iter().take_while(|request| {
            let is_first = items == 0;
            items = items.saturating_add(request.items);
            is_first || items <= most
        });
        let count = count.count();
        self.begin(self.waiting.iter().take(count).copied().collect(), effects);
    }

    fn fetch_for(&mut self, asker: u64, effects: &mut Vec<Effect>) {
        let request = self.waiting.iter().find(|request| request.asker == asker).copied();
        self.begin(request.into_iter().collect(), effects);
    }

    fn begin(&mut self, mut requests: Vec<Request>, effects: &mut Vec<Effect>) {
        if requests.is_empty() {
            self.phase = Phase::Resting;
            return;
        }
        self.waiting.retain(|waiting| !requests.contains(waiting));
        requests.sort_by_key(|request| request.prefetch);
        self.fetching = requests;
        self.phase = Phase::Fetching;
        effects.push(Effect::Fetch);
    }

    fn hold(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Held;
        self.waiting.retain(|request| {
            if request.prefetch {
                effects.push(Effect::Reply(request.asker, NoItems::Nothing));
            }
            !request.prefetch
        });
    }

    fn fetched(&mut self, served: usize, conflicts: bool, effects: &mut Vec<Effect>) {
        match self.reason {
            Some(Reason::Push) if conflicts => self.lost_race(),
            Some(Reason::Push) => self.won_race(),
            _ => self.got_before_watch = true,
        }
        self.failures = 0;
        self.full = false;
        let served = served.min(self.fetching.len());
        for request in self.fetching.drain(..served) {
            self.withdrawn.remove(&request.asker);
        }
        self.put_back(effects);
        // There was not enough for all. The next fetch looks again, and arms a watch if there is nothing.
        self.is_due(Reason::Other);
    }

    fn empty(&mut self, watched: bool, full: bool, effects: &mut Vec<Effect>) {
        if self.reason == Some(Reason::Push) && !self.got_before_watch {
            self.lost_race();
        }
        self.failures = 0;
        self.full = full;
        self.put_back(effects);
        // A watch of an earlier fetch may be for something else.
        self.armed = watched;
        if watched {
            self.got_before_watch = false;
            effects.push(Effect::Watch);
        }
    }

    fn exhausted(&mut self, effects: &mut Vec<Effect>) {
        self.failures = 0;
        self.put_back(effects);
        let waiting = self.waiting.drain(..);
        effects.extend(waiting.map(|request| Effect::Reply(request.asker, NoItems::Exhausted)));
    }

    fn failed(&mut self, effects: &mut Vec<Effect>) {
        self.failures = self.failures.saturating_add(1);
        self.put_back(effects);
        self.phase = Phase::BackingOff;
        effects.push(Effect::Backoff { failures: self.failures });
    }

    /// The fetch under way has ended, and had no items for the requests that are left in `fetching`.
    fn put_back(&mut self, effects: &mut Vec<Effect>) {
        for request in std::mem::take(&mut self.fetching).into_iter().rev() {
            let Request { asker, prefetch, .. } = request;
            match self.withdrawn.remove(&asker) {
                true => effects.push(Effect::Reply(asker, NoItems::Withdrawn)),
                false if prefetch => effects.push(Effect::Reply(asker, NoItems::Nothing)),
                false => self.waiting.push_front(request),
            }
        }
        self.phase = Phase::Resting;
    }

    fn lost_race(&mut self) {
        self.delay = (self.delay * 2).clamp(LEAST_DELAY, MOST_DELAY);
    }

    fn won_race(&mut self) {
        self.delay /= 2;
        if self.delay < LEAST_DELAY {
            self.delay = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests;
