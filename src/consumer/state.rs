//! The consumer's state machine. Pure: an event changes the state and names the effects.
//!
//! ```text
//!                fetched items
//!   ┌──────────┐ ─────────────▶ ┌─────────────┐ ──┐ dispatched, and
//!   │ fetching │ ◀───────────── │ dispatching │   │ batches were
//!   └──────────┘   dispatched   └─────────────┘ ◀─┘ prefetched
//!     └─ queue exhausted, request withdrawn ─▶ closing
//!
//!   drain:  fetching, dispatching ─▶ draining ─ neither is under way ─▶ closing ─▶ (stopped)
//!           closing ─ items were left in the session ─▶ finishing ─ dispatched ─▶ (stopped)
//! ```
//!
//! *Dispatched* means that the handler is done with the batch, or that a drain released the items that
//! it had not begun. The batch's outcomes may still be on their way to the database while the next
//! batch is handled, but only one batch is handled at a time.
//!
//! If the handler was quick with the last batch, the next ones are *prefetched* while this one is
//! handled, up to [`MOST_PREFETCHED`]. If the current batch turns slow, prefetched batches are
//! released. A fetch in flight at that moment is released too, because its items come after those.

/// The most batches that wait for the handler.
pub(crate) const MOST_PREFETCHED: usize = 3;

/// An event of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The actor runs.
    Started,
    /// The fetcher has replied.
    Fetched(Found),
    /// The request was withdrawn before a fetch began for it, because of a drain.
    Withdrawn,
    /// The batch is handled, and the one before it acknowledged.
    Dispatched {
        /// How many batches to prefetch, since this one was handled so quickly.
        prefetch: usize,
    },
    /// The current batch takes long.
    Slow,
    /// The queue's fetcher, which observers see as consumer 0, waits on a watch.
    Idle,
    /// The queue's fetcher looks for items after it was idle.
    Woken,
    /// Finish the current batch and stop.
    Drain,
    /// The session is closed, and all items are acknowledged. There may be items that an at-most-once
    /// fetch of unknown outcome had removed.
    Closed(Found),
}

/// The result of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No items: none to prefetch, or none left in the session at its end.
    Nothing,
    /// With `--until-empty`: the queue has no items left.
    Exhausted,
    /// Batches of up to K items. The queue may have more.
    Batches(usize),
}

/// An effect, which the actor carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Fetch up to K items.
    Fetch,
    /// Fetch up to this number of batches while one is handled.
    Prefetch(usize),
    /// Hand the oldest batch to the handler, and report [`Event::Slow`] if that takes long.
    Dispatch,
    /// Release all batches that wait for the handler.
    Release,
    /// Close the session when all items are acknowledged.
    Close,
    /// End the actor.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Fetching, dispatching, or both.
    Working,
    Draining,
    Closing,
    Finishing,
}

/// The state of a consumer.
#[derive(Clone, Debug)]
pub(crate) struct State {
    phase: Phase,
    /// A request for items is open.
    fetching: bool,
    /// A batch is handled.
    dispatching: bool,
    /// Batches that wait for the handler.
    prefetched: usize,
    /// How many may wait, by the speed of the last one.
    most_prefetched: usize,
    /// The current batch takes long.
    slow: bool,
    /// The open fetch brings items that come after released ones, which have to be handled first.
    overtakes: bool,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Working,
            fetching: false,
            dispatching: false,
            prefetched: 0,
            most_prefetched: 0,
            slow: false,
            overtakes: false,
        }
    }

    /// Takes an event into account. Events that come too late for the phase change nothing.
    pub(crate) fn on(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Fetched(_) | Event::Withdrawn => self.fetching = false,
            Event::Dispatched { prefetch } => {
                (self.dispatching, self.most_prefetched) = (false, prefetch.min(MOST_PREFETCHED));
            }
            _ => {}
        }
        match (self.phase, event) {
            (Phase::Working, Event::Started) => self.fetch(),
            (Phase::Working, Event::Fetched(found)) => self.fetched(found),
            // The drain that caused it has not arrived yet.
            (Phase::Working, Event::Withdrawn) if !self.dispatching => self.close(),
            (Phase::Working, Event::Dispatched { .. }) => self.go_on(),
            (Phase::Working, Event::Slow) => {
                self.slow = true;
                self.release()
            }
            (_, Event::Drain) => self.drain(),
            (Phase::Draining, Event::Fetched(Found::Batches(_))) if self.dispatching => vec![Effect::Release],
            (Phase::Draining, Event::Fetched(Found::Batches(batches))) => self.dispatch(batches),
            (Phase::Draining, Event::Fetched(_) | Event::Withdrawn | Event::Dispatched { .. })
                if !self.fetching && !self.dispatching =>
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

    fn fetch(&mut self) -> Vec<Effect> {
        (self.fetching, self.overtakes) = (true, false);
        self.go(Phase::Working, Effect::Fetch)
    }

    fn fetched(&mut self, found: Found) -> Vec<Effect> {
        let overtakes = std::mem::take(&mut self.overtakes);
        match found {
            Found::Batches(_) if overtakes && !self.dispatching => {
                [vec![Effect::Release], self.fetch()].concat()
            }
            Found::Exhausted => self.close(),
            Found::Nothing if self.dispatching => Vec::new(),
            Found::Nothing => self.fetch(),
            Found::Batches(batches) if !self.dispatching => self.dispatch(batches),
            Found::Batches(batches) => {
                self.prefetched += batches;
                if self.slow { self.release() } else { Vec::new() }
            }
        }
    }

    /// The current batch is handled.
    fn go_on(&mut self) -> Vec<Effect> {
        match (self.prefetched, self.fetching) {
            (0, true) => Vec::new(),
            (0, false) => self.fetch(),
            (batches, _) => self.dispatch(batches),
        }
    }

    /// Dispatches the first of these batches. The others wait. More are prefetched when half of the
    /// batches that may wait are gone.
    fn dispatch(&mut self, batches: usize) -> Vec<Effect> {
        (self.dispatching, self.slow, self.prefetched) = (true, false, batches - 1);
        if self.phase != Phase::Working {
            let rest = self.release();
            return [&[Effect::Dispatch], &rest[..]].concat();
        }
        let mut effects = vec![Effect::Dispatch];
        if !self.fetching && self.prefetched < self.most_prefetched.div_ceil(2) {
            (self.fetching, self.overtakes) = (true, false);
            effects.push(Effect::Prefetch(self.most_prefetched - self.prefetched));
        }
        effects
    }

    fn release(&mut self) -> Vec<Effect> {
        let prefetched = std::mem::take(&mut self.prefetched);
        self.overtakes |= prefetched > 0 && self.fetching;
        (prefetched > 0).then_some(Effect::Release).into_iter().collect()
    }

    fn drain(&mut self) -> Vec<Effect> {
        if self.phase != Phase::Working {
            return Vec::new();
        }
        self.phase = Phase::Draining;
        self.release()
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
