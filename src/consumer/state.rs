//! The consumer's state machine. Pure: an event changes the state and names the effects.
//!
//! ```text
//!                took items
//!   ┌────────┐ ─────────────▶ ┌─────────────┐ ──┐ dispatched,
//!   │ taking │ ◀───────────── │ dispatching │   │ more items were
//!   └────────┘   dispatched   └─────────────┘ ◀─┘ taken ahead
//!     └─ queue exhausted, request withdrawn ─▶ closing
//!
//!   drain:  taking, dispatching ─▶ draining ─ neither is under way ─▶ closing ─▶ (stopped)
//!           closing ─ items were left in the session ─▶ finishing ─ dispatched ─▶ (stopped)
//! ```
//!
//! *Dispatched* means that the handler is done with the batch, or that what it had not begun was given back, as after a drain. What the
//! handler has said of the batch may still be on its way to the database while the next one is handled, but no two batches are.
//!
//! Where the handler was done with the last batch quickly, the next ones are taken while this one is handled: *ahead*, up to [`MOST_AHEAD`].
//! Should the handler turn out to take long after all, what was taken ahead goes back, for others to take; and so does what a take brings
//! that was under way then, for its items lie behind those.

/// The most batches that a consumer holds beside the one that is handled.
pub(crate) const MOST_AHEAD: usize = 3;

/// What happened to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The actor runs.
    Started,
    /// A take came back.
    Took(Found),
    /// The request was withdrawn before a fetch began for it, because of a drain.
    NotTaken,
    /// The batch in hand is handled, and the one before it settled.
    Dispatched {
        /// It went fast enough to take so many batches ahead.
        ahead: usize,
    },
    /// The batch in hand takes long.
    Slow,
    /// The queue's fetcher, which observers see as consumer 0, waits on a watch.
    Idle,
    /// The queue's fetcher looks for items after it was idle.
    Woken,
    /// Finish what is in hand and stop.
    Drain,
    /// The session is closed and all is settled. It may give items that a take without an answer had removed.
    Closed(Found),
}

/// What a take found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: to take ahead, or left in the session at its end.
    Nothing,
    /// Nothing, and nothing will come of itself: the end, for a consumer that is to work until then.
    Rest,
    /// So many batches of up to K items. There may be more.
    Batches(usize),
}

/// What the actor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Take up to K items.
    Take,
    /// Take up to so many batches of K items while one is handled.
    TakeAhead(usize),
    /// Hand the batch that was taken first to the handler; and say so, should that take long.
    Dispatch,
    /// Give back all batches that wait for the handler.
    GiveBack,
    /// Close the session, once all is settled.
    Close,
    /// End the actor.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Taking, dispatching, or both.
    Working,
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
    /// Batches in hand that wait for the handler.
    ahead: usize,
    /// How many may, as the last one went.
    most_ahead: usize,
    /// The batch that is handled takes long.
    slow: bool,
    /// What the take under way brings lies behind items that were given back meanwhile: they have to be taken before it.
    overtakes: bool,
}

impl State {
    /// A consumer about to start.
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Working,
            taking: false,
            dispatching: false,
            ahead: 0,
            most_ahead: 0,
            slow: false,
            overtakes: false,
        }
    }

    /// Takes an event into account. Events that come too late for the phase change nothing.
    pub(crate) fn on(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Took(_) | Event::NotTaken => self.taking = false,
            Event::Dispatched { ahead } => {
                (self.dispatching, self.most_ahead) = (false, ahead.min(MOST_AHEAD));
            }
            _ => {}
        }
        match (self.phase, event) {
            (Phase::Working, Event::Started) => self.take(),
            (Phase::Working, Event::Took(found)) => self.took(found),
            // The drain that made it give up is still on its way.
            (Phase::Working, Event::NotTaken) if !self.dispatching => self.close(),
            (Phase::Working, Event::Dispatched { .. }) => self.go_on(),
            (Phase::Working, Event::Slow) => {
                self.slow = true;
                self.give_back()
            }
            (_, Event::Drain) => self.drain(),
            (Phase::Draining, Event::Took(Found::Batches(_))) if self.dispatching => vec![Effect::GiveBack],
            (Phase::Draining, Event::Took(Found::Batches(batches))) => self.dispatch(batches),
            (Phase::Draining, Event::Took(_) | Event::NotTaken | Event::Dispatched { .. })
                if !self.taking && !self.dispatching =>
            {
                self.close()
            }
            (Phase::Closing, Event::Closed(Found::Batches(batches))) => {
                self.phase = Phase::Finishing;
                self.dispatch(batches)
            }
            (Phase::Closing, Event::Closed(_)) | (Phase::Finishing, Event::Dispatched { .. }) => {
                vec![Effect::Stop]
            }
            _ => Vec::new(),
        }
    }

    fn take(&mut self) -> Vec<Effect> {
        (self.taking, self.overtakes) = (true, false);
        self.go(Phase::Working, Effect::Take)
    }

    fn took(&mut self, found: Found) -> Vec<Effect> {
        let overtakes = std::mem::take(&mut self.overtakes);
        match found {
            Found::Batches(_) if overtakes && !self.dispatching => {
                [vec![Effect::GiveBack], self.take()].concat()
            }
            Found::Rest => self.close(),
            Found::Nothing if self.dispatching => Vec::new(),
            Found::Nothing => self.take(),
            Found::Batches(batches) if !self.dispatching => self.dispatch(batches),
            Found::Batches(batches) => {
                self.ahead += batches;
                if self.slow { self.give_back() } else { Vec::new() }
            }
        }
    }

    /// The batch in hand is handled: on with the next.
    fn go_on(&mut self) -> Vec<Effect> {
        match (self.ahead, self.taking) {
            (0, true) => Vec::new(),
            (0, false) => self.take(),
            (batches, _) => self.dispatch(batches),
        }
    }

    /// Begins with the first of so many batches in hand. The others wait, and more are taken when half of those that may wait are gone.
    fn dispatch(&mut self, batches: usize) -> Vec<Effect> {
        (self.dispatching, self.slow, self.ahead) = (true, false, batches - 1);
        if self.phase != Phase::Working {
            let rest = self.give_back();
            return [&[Effect::Dispatch], &rest[..]].concat();
        }
        let mut effects = vec![Effect::Dispatch];
        if !self.taking && self.ahead < self.most_ahead.div_ceil(2) {
            (self.taking, self.overtakes) = (true, false);
            effects.push(Effect::TakeAhead(self.most_ahead - self.ahead));
        }
        effects
    }

    fn give_back(&mut self) -> Vec<Effect> {
        let ahead = std::mem::take(&mut self.ahead);
        self.overtakes |= ahead > 0 && self.taking;
        (ahead > 0).then_some(Effect::GiveBack).into_iter().collect()
    }

    fn drain(&mut self) -> Vec<Effect> {
        if self.phase != Phase::Working {
            return Vec::new();
        }
        self.phase = Phase::Draining;
        self.give_back()
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
