use super::{Effect::*, Event::*, *};

const fn done(ahead: usize) -> Event {
    Dispatched { ahead }
}

/// Feeds the events to a fresh consumer and returns the effects of the last one.
fn last(events: &[Event]) -> Vec<Effect> {
    let mut state = State::new();
    events.iter().map(|event| state.on(*event)).last().unwrap_or_default()
}

#[test]
fn it_takes_as_long_as_it_finds_items() {
    assert_eq!(last(&[Started]), [Take]);
    assert_eq!(last(&[Started, Took(Found::Batches(3))]), [Dispatch]);
    assert_eq!(last(&[Started, Took(Found::Batches(1)), done(0)]), [Take]);
}

#[test]
fn a_queue_at_rest_is_the_end() {
    assert_eq!(last(&[Started, Took(Found::Rest)]), [Close]);
    assert_eq!(last(&[Started, Took(Found::Rest), Closed(Found::Nothing)]), [Stop]);
}

#[test]
fn a_drain_finishes_what_is_in_hand_and_takes_no_more() {
    assert_eq!(last(&[Started, Took(Found::Batches(1)), Drain]), []);
    assert_eq!(last(&[Started, Took(Found::Batches(1)), Drain, done(0)]), [Close]);
    assert_eq!(last(&[Started, Took(Found::Batches(1)), Drain, done(0), Closed(Found::Nothing)]), [Stop]);
}

#[test]
fn items_left_in_the_session_are_handled_before_the_end() {
    let closed = [Started, Drain, NotTaken, Closed(Found::Batches(1))];
    assert_eq!(last(&closed), [Dispatch]);
    assert_eq!(last(&[&closed[..], &[done(0)]].concat()), [Stop]);
}

#[test]
fn a_take_under_way_when_a_drain_comes_is_waited_for() {
    assert_eq!(last(&[Started, Drain]), []);
    assert_eq!(last(&[Started, Drain, NotTaken]), [Close]);
    assert_eq!(last(&[Started, Drain, Took(Found::Nothing)]), [Close]);
    assert_eq!(last(&[Started, Drain, Took(Found::Batches(1))]), [Dispatch]);
    assert_eq!(last(&[Started, Drain, Took(Found::Batches(1)), done(0)]), [Close]);
}

#[test]
fn a_take_may_hear_of_a_drain_before_the_consumer_does() {
    assert_eq!(last(&[Started, NotTaken]), [Close]);
    assert_eq!(last(&[Started, NotTaken, Drain]), []);
    assert_eq!(last(&[Started, NotTaken, Drain, Closed(Found::Nothing)]), [Stop]);
}

#[test]
fn events_that_come_too_late_change_nothing() {
    assert_eq!(last(&[Started, Slow]), []);
    assert_eq!(last(&[Started, Drain, Drain]), []);
    assert_eq!(last(&[Started, Drain, NotTaken, Drain]), []);
}

const QUICK: Event = done(usize::MAX);

/// A consumer whose last batch went quickly, and that handles another.
const BUSY: [Event; 4] = [Started, Took(Found::Batches(1)), QUICK, Took(Found::Batches(1))];

fn busy(events: &[Event]) -> Vec<Effect> {
    last(&[&BUSY[..], events].concat())
}

const fn took(batches: usize) -> Event {
    Took(Found::Batches(batches))
}

#[test]
fn where_batches_go_quickly_the_next_ones_are_taken_ahead() {
    assert_eq!(busy(&[]), [Dispatch, TakeAhead(3)]);
    assert_eq!(busy(&[took(3)]), []);
    assert_eq!(busy(&[took(1), done(0)]), [Dispatch]);
    assert_eq!(busy(&[took(1), done(0), done(0)]), [Take]);
}

#[test]
fn more_are_taken_when_half_of_them_are_gone() {
    assert_eq!(busy(&[took(3), QUICK]), [Dispatch]);
    assert_eq!(busy(&[took(3), QUICK, QUICK]), [Dispatch, TakeAhead(2)]);
    assert_eq!(busy(&[took(3), QUICK, done(1)]), [Dispatch]);
    assert_eq!(busy(&[took(3), QUICK, done(1), done(1)]), [Dispatch, TakeAhead(1)]);
    assert_eq!(busy(&[took(1), QUICK]), [Dispatch, TakeAhead(3)]);
}

#[test]
fn a_take_ahead_that_is_late_is_the_next_take() {
    assert_eq!(busy(&[QUICK]), []);
    assert_eq!(busy(&[QUICK, took(3)]), [Dispatch]);
    assert_eq!(busy(&[QUICK, took(1)]), [Dispatch, TakeAhead(3)]);
    assert_eq!(busy(&[QUICK, Took(Found::Nothing)]), [Take]);
}

#[test]
fn a_take_ahead_that_brings_nothing_is_made_again_when_the_batch_is_handled() {
    assert_eq!(busy(&[Took(Found::Nothing)]), []);
    assert_eq!(busy(&[Took(Found::Nothing), QUICK]), [Take]);
}

#[test]
fn what_was_taken_ahead_does_not_wait_for_a_slow_handler() {
    assert_eq!(busy(&[took(2), Slow]), [GiveBack]);
    assert_eq!(busy(&[Slow, took(2)]), [GiveBack]);
    assert_eq!(busy(&[Slow]), []);
    assert_eq!(busy(&[took(2), Slow, done(0)]), [Take]);
}

#[test]
fn what_was_given_back_is_not_overtaken_by_a_take_that_was_under_way() {
    let slow = [took(3), QUICK, QUICK, Slow];
    assert_eq!(busy(&slow), [GiveBack]);
    let after = |events: &[Event]| busy(&[&slow[..], events].concat());
    assert_eq!(after(&[done(0)]), []);
    assert_eq!(after(&[done(0), took(2)]), [GiveBack, Take]);
    assert_eq!(after(&[done(0), took(2), took(1)]), [Dispatch]);
    assert_eq!(after(&[took(2), done(0)]), [Take]);
    assert_eq!(after(&[done(0), Took(Found::Nothing), took(1)]), [Dispatch]);
}

#[test]
fn a_drain_gives_back_what_was_taken_ahead() {
    assert_eq!(busy(&[took(2), Drain]), [GiveBack]);
    assert_eq!(busy(&[Drain, took(2)]), [GiveBack]);
    for end in [[NotTaken, QUICK], [QUICK, NotTaken]] {
        assert_eq!(busy(&[&[Drain], &end[..]].concat()), [Close]);
    }
    // It is the one in hand if the one before is handled.
    assert_eq!(busy(&[Drain, QUICK, took(1)]), [Dispatch]);
    assert_eq!(busy(&[Drain, QUICK, took(2)]), [Dispatch, GiveBack]);
}

/// What an actor has under way and in hand.
#[derive(Clone, Debug, Default)]
struct Actor {
    taking: bool,
    /// How many batches the take under way may bring, if it was begun ahead.
    ahead: Option<usize>,
    dispatching: bool,
    closing: bool,
    stopped: bool,
    in_hand: usize,
    drained: bool,
}

impl Actor {
    /// What can happen to it next.
    fn possible(&self) -> Vec<Event> {
        let mut events = vec![Drain];
        if self.taking {
            events.push(took(1));
            events.extend(match self.ahead {
                None => vec![Took(Found::Rest)],
                Some(1) => vec![Took(Found::Nothing)],
                Some(batches) => vec![Took(Found::Nothing), took(batches)],
            });
            // The fetcher hears of a drain before the actor does.
            events.push(NotTaken);
        }
        if self.dispatching {
            events.extend([done(0), done(2), Slow]);
        }
        if self.closing {
            events.extend([Closed(Found::Nothing), Closed(Found::Batches(1))]);
        }
        events
    }

    fn hear(&mut self, event: Event) {
        match event {
            Took(found) => {
                self.taking = false;
                self.take_in_hand(found);
            }
            NotTaken => self.taking = false,
            Dispatched { .. } => self.dispatching = false,
            Closed(found) => {
                self.closing = false;
                self.take_in_hand(found);
            }
            Drain => self.drained = true,
            Started | Slow | Idle | Woken => {}
        }
    }

    fn take_in_hand(&mut self, found: Found) {
        if let Found::Batches(batches) = found {
            self.in_hand += batches;
        }
        assert!(self.in_hand <= MOST_AHEAD, "too many in hand");
    }

    fn begin_take(&mut self, ahead: Option<usize>) {
        assert!(!self.taking, "two takes");
        (self.taking, self.ahead) = (true, ahead);
    }

    fn carry_out(&mut self, effect: Effect) {
        let begins = matches!(effect, Take | TakeAhead(_));
        assert!(!(self.drained && begins), "{effect:?} after a drain");
        match effect {
            Take => self.begin_take(None),
            TakeAhead(batches) => self.begin_take(Some(batches)),
            Dispatch => {
                assert!(self.in_hand > 0 && !self.dispatching, "a dispatch of nothing, or beside another");
                self.in_hand -= 1;
                self.dispatching = true;
            }
            GiveBack => assert!(std::mem::take(&mut self.in_hand) > 0, "nothing to give back"),
            Close => {
                assert!(
                    !self.taking && !self.dispatching && self.in_hand == 0,
                    "closed with something in hand"
                );
                self.closing = true;
            }
            Stop => self.stopped = true,
        }
    }
}

/// Follows every course of events for so many steps.
fn explore(state: &State, actor: &Actor, steps: u32) {
    for event in actor.possible() {
        let (mut state, mut actor) = (state.clone(), actor.clone());
        actor.hear(event);
        let effects = state.on(event);
        effects.iter().for_each(|effect| actor.carry_out(*effect));
        if actor.stopped {
            assert!(actor.in_hand == 0 && !actor.taking && !actor.dispatching);
            continue;
        }
        let under_way = actor.taking || actor.dispatching || actor.closing;
        assert!(under_way, "{event:?} leaves nothing under way: {state:?}");
        assert!(actor.in_hand == 0 || actor.dispatching, "{event:?} leaves items lying about: {state:?}");
        if steps > 0 {
            explore(&state, &actor, steps - 1);
        }
    }
}

#[test]
fn whatever_happens_something_is_under_way_and_no_items_are_forgotten() {
    let (mut state, mut actor) = (State::new(), Actor::default());
    state.on(Started).into_iter().for_each(|effect| actor.carry_out(effect));
    explore(&state, &actor, 7);
}
