//! The consumer's state machine. Pure: an event changes the state and names the effects.
//!
//! ```text
//!                took items
//!   ┌────────┐ ─────────────▶ ┌─────────────┐
//!   │ taking │ ◀───────────── │ dispatching │
//!   └────────┘   dispatched   └─────────────┘
//!     │ ▲ │ ▲
//!     │ │ │ └── pause over ── pausing
//!     │ │ └──── failed ─────▶ pausing
//!     │ └────── woken ─────── idle
//!     ├──────── took none ──▶ idle
//!     └─ at rest, given up ─▶ closing
//!
//!   drain:  idle, pausing ─▶ closing
//!           taking, dispatching ─▶ draining ─ dispatched, not taken ─▶ closing ─▶ (stopped)
//!           closing ─ items were left in the session ─▶ finishing ─ dispatched ─▶ (stopped)
//! ```
//!
//! *Dispatched* means that the handler is done with the batch, or that what it had not begun was given back, as after a drain. What the
//! handler has said of the batch may still be on its way to the database while the next one is taken, but no two batches are.

/// What happened to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The actor runs.
    Started,
    /// A take came back.
    Took(Found),
    /// A take was given up before it began, because of a drain; which may be heard of only later.
    NotTaken,
    /// A take failed at the database.
    TakeFailed,
    /// The pause after a failed take is over.
    PauseOver,
    /// The batch in hand is handled, and the one before it settled.
    Dispatched,
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
    /// Hand the items just taken to the handler.
    Dispatch,
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
    Taking,
    Dispatching,
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
    failures: u32,
}

impl State {
    /// A consumer about to start.
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Taking, failures: 0 }
    }

    /// Takes an event into account. Events that come too late for the phase change nothing.
    pub(crate) fn on(&mut self, event: Event) -> Vec<Effect> {
        match (self.phase, event) {
            (Phase::Taking, Event::Started) => vec![Effect::Take],
            (Phase::Taking, Event::Took(found)) => self.took(found),
            (Phase::Taking, Event::TakeFailed) => self.take_failed(),
            // The drain that made it give up is still on its way.
            (Phase::Taking, Event::NotTaken) => self.close(),
            (Phase::Dispatching, Event::Dispatched)
            | (Phase::Idle, Event::Woken)
            | (Phase::Pausing, Event::PauseOver) => self.go(Phase::Taking, Effect::Take),
            (_, Event::Drain) => self.drain(),
            (Phase::Draining, Event::Took(Found::Items(_))) => vec![Effect::Dispatch],
            (Phase::Draining, Event::Took(_) | Event::TakeFailed | Event::Dispatched)
            | (Phase::Draining, Event::NotTaken) => self.close(),
            (Phase::Closing, Event::Closed(Found::Items(_))) => self.go(Phase::Finishing, Effect::Dispatch),
            (Phase::Closing, Event::Closed(_)) | (Phase::Finishing, Event::Dispatched) => vec![Effect::Stop],
            _ => Vec::new(),
        }
    }

    fn took(&mut self, found: Found) -> Vec<Effect> {
        self.failures = 0;
        match found {
            Found::Rest => self.close(),
            Found::Nothing => self.go(Phase::Idle, Effect::Wait),
            Found::Items(_) => self.go(Phase::Dispatching, Effect::Dispatch),
        }
    }

    fn take_failed(&mut self) -> Vec<Effect> {
        self.failures = self.failures.saturating_add(1);
        self.go(Phase::Pausing, Effect::Pause { failures: self.failures })
    }

    fn drain(&mut self) -> Vec<Effect> {
        match self.phase {
            Phase::Idle | Phase::Pausing => {
                self.phase = Phase::Closing;
                vec![Effect::StopWaiting, Effect::Close]
            }
            Phase::Taking | Phase::Dispatching => {
                self.phase = Phase::Draining;
                Vec::new()
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
mod tests {
    use super::{Effect::*, Event::*, *};

    /// Feeds the events to a fresh consumer and returns the effects of the last one.
    fn last(events: &[Event]) -> Vec<Effect> {
        let mut state = State::new();
        events.iter().map(|event| state.on(*event)).last().unwrap_or_default()
    }

    #[test]
    fn it_takes_as_long_as_it_finds_items() {
        assert_eq!(last(&[Started]), [Take]);
        assert_eq!(last(&[Started, Took(Found::Items(3))]), [Dispatch]);
        assert_eq!(last(&[Started, Took(Found::Items(3)), Dispatched]), [Take]);
    }

    #[test]
    fn with_nothing_to_take_it_waits_until_woken() {
        assert_eq!(last(&[Started, Took(Found::Nothing)]), [Wait]);
        assert_eq!(last(&[Started, Took(Found::Nothing), Woken]), [Take]);
    }

    #[test]
    fn failed_takes_are_counted_until_one_succeeds() {
        let mut state = State::new();
        state.on(Started);
        for failures in 1..4 {
            assert_eq!(state.on(TakeFailed), [Pause { failures }]);
            assert_eq!(state.on(PauseOver), [Take]);
        }
        state.on(Took(Found::Nothing));
        state.on(Woken);
        assert_eq!(state.on(TakeFailed), [Pause { failures: 1 }]);
    }

    #[test]
    fn a_queue_at_rest_is_the_end() {
        assert_eq!(last(&[Started, Took(Found::Rest)]), [Close]);
        assert_eq!(last(&[Started, Took(Found::Rest), Closed(Found::Nothing)]), [Stop]);
    }

    #[test]
    fn a_drain_finishes_what_is_in_hand_and_takes_no_more() {
        assert_eq!(last(&[Started, Took(Found::Items(1)), Drain]), []);
        assert_eq!(last(&[Started, Took(Found::Items(1)), Drain, Dispatched]), [Close]);
        assert_eq!(
            last(&[Started, Took(Found::Items(1)), Drain, Dispatched, Closed(Found::Nothing)]),
            [Stop]
        );
    }

    #[test]
    fn items_left_in_the_session_are_handled_before_the_end() {
        let closed = [Started, TakeFailed, Drain, Closed(Found::Items(2))];
        assert_eq!(last(&closed), [Dispatch]);
        assert_eq!(last(&[&closed[..], &[Dispatched]].concat()), [Stop]);
    }

    #[test]
    fn a_take_under_way_when_a_drain_comes_is_waited_for() {
        assert_eq!(last(&[Started, Drain]), []);
        assert_eq!(last(&[Started, Drain, NotTaken]), [Close]);
        assert_eq!(last(&[Started, Drain, TakeFailed]), [Close]);
        assert_eq!(last(&[Started, Drain, Took(Found::Nothing)]), [Close]);
        assert_eq!(last(&[Started, Drain, Took(Found::Items(1))]), [Dispatch]);
        assert_eq!(last(&[Started, Drain, Took(Found::Items(1)), Dispatched]), [Close]);
    }

    #[test]
    fn a_take_may_hear_of_a_drain_before_the_consumer_does() {
        assert_eq!(last(&[Started, NotTaken]), [Close]);
        assert_eq!(last(&[Started, NotTaken, Drain]), []);
        assert_eq!(last(&[Started, NotTaken, Drain, Closed(Found::Nothing)]), [Stop]);
    }

    #[test]
    fn a_drain_ends_waiting_and_pausing() {
        assert_eq!(last(&[Started, Took(Found::Nothing), Drain]), [StopWaiting, Close]);
        assert_eq!(last(&[Started, TakeFailed, Drain]), [StopWaiting, Close]);
    }

    #[test]
    fn events_that_come_too_late_change_nothing() {
        assert_eq!(last(&[Started, Woken]), []);
        assert_eq!(last(&[Started, Took(Found::Items(1)), Woken]), []);
        assert_eq!(last(&[Started, Took(Found::Nothing), Drain, Woken]), []);
        assert_eq!(last(&[Started, Took(Found::Nothing), Drain, Drain]), []);
    }

    /// What can happen next to an actor that has `under_way` to finish.
    fn possible(under_way: Effect) -> Vec<Event> {
        let mut events = match under_way {
            Take => {
                vec![Took(Found::Nothing), Took(Found::Rest), Took(Found::Items(1)), TakeFailed, NotTaken]
            }
            Dispatch => vec![Dispatched],
            Wait => vec![Woken],
            Pause { .. } => vec![PauseOver],
            Close => vec![Closed(Found::Nothing), Closed(Found::Items(1))],
            StopWaiting | Stop => unreachable!("these are done at once"),
        };
        events.push(Drain);
        events
    }

    /// Follows every course of events for so many steps.
    fn explore(state: &State, under_way: Effect, drained: bool, steps: u32) {
        for event in possible(under_way) {
            let mut next = state.clone();
            let mut effects = next.on(event);
            let drained = drained || matches!(event, Drain | NotTaken);
            if effects.first() == Some(&StopWaiting) {
                assert!(matches!(under_way, Wait | Pause { .. }), "{state:?} on {event:?}");
                effects.remove(0);
            } else if event == Drain {
                assert_eq!(effects, [], "{under_way:?} goes on after a drain");
                effects.push(under_way);
            }
            let [effect] = effects[..] else { panic!("{state:?} on {event:?} has {effects:?} under way") };
            let goes_on = !matches!(effect, Take | Wait | Pause { .. }) || effect == under_way;
            assert!(!drained || goes_on, "{state:?} on {event:?} after a drain: {effect:?}");
            if effect != Stop && steps > 0 {
                explore(&next, effect, drained, steps - 1);
            }
        }
    }

    #[test]
    fn one_thing_is_always_under_way_and_nothing_new_after_a_drain() {
        let mut state = State::new();
        assert_eq!(state.on(Started), [Take]);
        explore(&state, Take, false, 10);
    }
}
