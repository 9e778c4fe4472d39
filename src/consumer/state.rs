//! The consumer's state machine. Pure: an event changes the state and names the effects.
//!
//! ```text
//!                took items
//!   ┌────────┐ ─────────────▶ ┌─────────────┐ ──┐ dispatched,
//!   │ taking │ ◀───────────── │ dispatching │   │ more items were
//!   └────────┘   dispatched   └─────────────┘ ◀─┘ taken ahead
//!     │ ▲ │ ▲
//!     │ │ │ └── pause over ── pausing
//!     │ │ └──── failed ─────▶ pausing
//!     │ └────── woken ─────── idle
//!     ├──────── took none ──▶ idle
//!     └─ at rest, given up ─▶ closing
//!
//!   drain:  idle, pausing ─▶ closing
//!           taking, dispatching ─▶ draining ─ neither is under way ─▶ closing ─▶ (stopped)
//!           closing ─ items were left in the session ─▶ finishing ─ dispatched ─▶ (stopped)
//! ```
//!
//! *Dispatched* means that the handler is done with the batch, or that what it had not begun was given back, as after a drain. What the
//! handler has said of the batch may still be on its way to the database while the next one is handled, but no two batches are.
//!
//! Where the handler was done with the last batch quickly, the next one is taken while this one is handled: *ahead*. Then at most two batches
//! are in a consumer's hands. Should the handler turn out to take long after all, what was taken ahead goes back, for others to take.

/// What happened to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The actor runs.
    Started,
    /// A take came back.
    Took(Found),
    /// A take was given up before it began, because of a drain.
    NotTaken,
    /// A take failed at the database.
    TakeFailed,
    /// The pause after a failed take is over.
    PauseOver,
    /// The batch in hand is handled, and the one before it settled.
    Dispatched {
        /// Whether that went fast enough to take the next one ahead.
        quickly: bool,
    },
    /// The batch in hand takes long.
    Slow,
    /// There may be items again.
    Woken,
    /// Finish what is in hand and stop.
    Drain,
    /// The session is closed and all is settled. It may give items that a take without an answer had removed.
    Closed(Found),
}

/// What a take found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing; a push after this wakes the consumer.
    Nothing,
    /// Nothing to take ahead; nothing wakes the consumer.
    NothingAhead,
    /// Nothing, and nothing will come of itself: the end, for a consumer that is to work until then.
    Rest,
    /// So many items, up to K. There may be more.
    Items(usize),
}

/// What the actor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Take up to K items.
    Take,
    /// The same, while a batch is handled; and say so, should that take long.
    TakeAhead,
    /// Hand the items just taken to the handler, or those taken ahead.
    Dispatch,
    /// Give back the items taken ahead.
    GiveBack,
    /// Wait to be woken.
    Wait,
    /// Stop waiting, to be woken or for a pause to end.
    StopWaiting,
    /// Wait before the next take; this many failed in a row.
    Pause {
        /// Failed takes in a row, from 1.
        failures: u32,
    },
    /// Close the session, once all is settled.
    Close,
    /// End the actor.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Taking, dispatching, or both.
    Working,
    Idle,
    Pausing,
    Draining,
    Closing,
    Finishing,
}

/// Where a consumer is.
#[derive(Clone, Debug)]
pub(crate) struct State {
    phase: Phase,
    /// A take is under way.
    taking: bool,
    /// A batch is handled.
    dispatching: bool,
    /// Items that were taken ahead are in hand.
    ahead: bool,
    /// How the last batch went.
    quick: bool,
    /// The batch that is handled takes long.
    slow: bool,
    failures: u32,
}

impl State {
    /// A consumer about to start.
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Working,
            taking: false,
            dispatching: false,
            ahead: false,
            quick: false,
            slow: false,
            failures: 0,
        }
    }

    /// Takes an event into account. Events that come too late for the phase change nothing.
    pub(crate) fn on(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Took(_) | Event::NotTaken | Event::TakeFailed => self.taking = false,
            Event::Dispatched { quickly } => (self.dispatching, self.quick) = (false, quickly),
            _ => {}
        }
        match (self.phase, event) {
            (Phase::Working, Event::Started) => self.take(),
            (Phase::Working, Event::Took(found)) => self.took(found),
            (Phase::Working, Event::TakeFailed) => self.take_failed(),
            // The drain that made it give up is still on its way.
            (Phase::Working, Event::NotTaken) if !self.dispatching => self.close(),
            (Phase::Working, Event::Dispatched { .. }) => self.go_on(),
            (Phase::Working, Event::Slow) => {
                self.slow = true;
                self.give_back()
            }
            (Phase::Idle, Event::Woken) | (Phase::Pausing, Event::PauseOver) => self.take(),
            (_, Event::Drain) => self.drain(),
            (Phase::Draining, Event::Took(Found::Items(_))) if self.dispatching => vec![Effect::GiveBack],
            (Phase::Draining, Event::Took(Found::Items(_))) => self.dispatch(),
            (
                Phase::Draining,
                Event::Took(_) | Event::NotTaken | Event::TakeFailed | Event::Dispatched { .. },
            ) if !self.taking && !self.dispatching => self.close(),
            (Phase::Closing, Event::Closed(Found::Items(_))) => {
                self.phase = Phase::Finishing;
                self.dispatch()
            }
            (Phase::Closing, Event::Closed(_)) | (Phase::Finishing, Event::Dispatched { .. }) => {
                vec![Effect::Stop]
            }
            _ => Vec::new(),
        }
    }

    fn take(&mut self) -> Vec<Effect> {
        self.taking = true;
        self.go(Phase::Working, Effect::Take)
    }

    fn took(&mut self, found: Found) -> Vec<Effect> {
        self.failures = 0;
        match found {
            Found::Rest => self.close(),
            Found::Nothing => self.go(Phase::Idle, Effect::Wait),
            Found::NothingAhead if self.dispatching => Vec::new(),
            Found::NothingAhead => self.take(),
            Found::Items(_) if !self.dispatching => self.dispatch(),
            Found::Items(_) => {
                self.ahead = true;
                if self.slow { self.give_back() } else { Vec::new() }
            }
        }
    }

    fn take_failed(&mut self) -> Vec<Effect> {
        self.failures = self.failures.saturating_add(1);
        if self.dispatching {
            // The next take waits until the batch is handled.
            return Vec::new();
        }
        self.go(Phase::Pausing, Effect::Pause { failures: self.failures })
    }

    /// The batch in hand is handled: on with the next.
    fn go_on(&mut self) -> Vec<Effect> {
        match (std::mem::take(&mut self.ahead), self.taking) {
            (true, _) => self.dispatch(),
            (false, true) => Vec::new(),
            (false, false) => self.take(),
        }
    }

    fn dispatch(&mut self) -> Vec<Effect> {
        (self.dispatching, self.slow) = (true, false);
        let mut effects = vec![Effect::Dispatch];
        if self.quick && self.phase == Phase::Working {
            self.taking = true;
            effects.push(Effect::TakeAhead);
        }
        effects
    }

    fn give_back(&mut self) -> Vec<Effect> {
        let ahead = std::mem::take(&mut self.ahead);
        ahead.then_some(Effect::GiveBack).into_iter().collect()
    }

    fn drain(&mut self) -> Vec<Effect> {
        match self.phase {
            Phase::Idle | Phase::Pausing => {
                self.phase = Phase::Closing;
                vec![Effect::StopWaiting, Effect::Close]
            }
            Phase::Working => {
                self.phase = Phase::Draining;
                self.give_back()
            }
            Phase::Draining | Phase::Closing | Phase::Finishing => Vec::new(),
        }
    }

    fn close(&mut self) -> Vec<Effect> {
        self.go(Phase::Closing, Effect::Close)
    }

    fn go(&mut self, phase: Phase, effect: Effect) -> Vec<Effect> {
        self.phase = phase;
        vec![effect]
    }
}

#[cfg(test)]
mod tests;
