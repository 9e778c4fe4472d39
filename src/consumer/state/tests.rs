use super::{Effect::*, Event::*, *};

const fn done(ahead: usize) -> Event {
    Dispatched { prefetch: ahead }
}

/// Feeds the events to a fresh consumer and returns the effects of the last one.
fn last(events: &[Event]) -> Vec<Effect> {
    let mut state = State::new();
    events.iter().map(|event| state.on(*event)).last().unwrap_or_default()
}

#[test]
fn a_consumer_fetches_while_there_are_items() {
    assert_eq!(last(&[Started]), [Fetch]);
    assert_eq!(last(&[Started, Fetched(Found::Batches(3))]), [Dispatch]);
    assert_eq!(last(&[Started, Fetched(Found::Batches(1)), done(0)]), [Fetch]);
}

#[test]
fn an_exhausted_queue_closes_the_consumer() {
    assert_eq!(last(&[Started, Fetched(Found::Exhausted)]), [Close]);
    assert_eq!(last(&[Started, Fetched(Found::Exhausted), Closed(Found::Nothing)]), [Stop]);
}

#[test]
fn a_drain_finishes_the_batch_and_fetches_no_more() {
    assert_eq!(last(&[Started, Fetched(Found::Batches(1)), Drain]), []);
    assert_eq!(last(&[Started, Fetched(Found::Batches(1)), Drain, done(0)]), [Close]);
    assert_eq!(last(&[Started, Fetched(Found::Batches(1)), Drain, done(0), Closed(Found::Nothing)]), [Stop]);
}

#[test]
fn items_left_in_the_session_are_handled_before_the_end() {
    let closed = [Started, Drain, Withdrawn, Closed(Found::Batches(1))];
    assert_eq!(last(&closed), [Dispatch]);
    assert_eq!(last(&[&closed[..], &[done(0)]].concat()), [Stop]);
}

#[test]
fn a_drain_waits_for_the_fetch_under_way() {
    assert_eq!(last(&[Started, Drain]), []);
    assert_eq!(last(&[Started, Drain, Withdrawn]), [Close]);
    assert_eq!(last(&[Started, Drain, Fetched(Found::Nothing)]), [Close]);
    assert_eq!(last(&[Started, Drain, Fetched(Found::Batches(1))]), [Dispatch]);
    assert_eq!(last(&[Started, Drain, Fetched(Found::Batches(1)), done(0)]), [Close]);
}

#[test]
fn a_request_may_be_withdrawn_before_the_drain_arrives() {
    assert_eq!(last(&[Started, Withdrawn]), [Close]);
    assert_eq!(last(&[Started, Withdrawn, Drain]), []);
    assert_eq!(last(&[Started, Withdrawn, Drain, Closed(Found::Nothing)]), [Stop]);
}

#[test]
fn late_events_have_no_effect() {
    assert_eq!(last(&[Started, Slow]), []);
    assert_eq!(last(&[Started, Drain, Drain]), []);
    assert_eq!(last(&[Started, Drain, Withdrawn, Drain]), []);
}

const QUICK: Event = done(usize::MAX);

/// A consumer whose last batch went quickly, and that handles another.
const BUSY: [Event; 4] = [Started, Fetched(Found::Batches(1)), QUICK, Fetched(Found::Batches(1))];

fn busy(events: &[Event]) -> Vec<Effect> {
    last(&[&BUSY[..], events].concat())
}

const fn took(batches: usize) -> Event {
    Fetched(Found::Batches(batches))
}

#[test]
fn the_next_batches_are_prefetched_while_batches_are_quick() {
    assert_eq!(busy(&[]), [Dispatch, Prefetch(3)]);
    assert_eq!(busy(&[took(3)]), []);
    assert_eq!(busy(&[took(1), done(0)]), [Dispatch]);
    assert_eq!(busy(&[took(1), done(0), done(0)]), [Fetch]);
}

#[test]
fn prefetch_is_repeated_when_half_of_it_is_used() {
    assert_eq!(busy(&[took(3), QUICK]), [Dispatch]);
    assert_eq!(busy(&[took(3), QUICK, QUICK]), [Dispatch, Prefetch(2)]);
    assert_eq!(busy(&[took(3), QUICK, done(1)]), [Dispatch]);
    assert_eq!(busy(&[took(3), QUICK, done(1), done(1)]), [Dispatch, Prefetch(1)]);
    assert_eq!(busy(&[took(1), QUICK]), [Dispatch, Prefetch(3)]);
}

#[test]
fn a_late_prefetch_serves_as_the_next_fetch() {
    assert_eq!(busy(&[QUICK]), []);
    assert_eq!(busy(&[QUICK, took(3)]), [Dispatch]);
    assert_eq!(busy(&[QUICK, took(1)]), [Dispatch, Prefetch(3)]);
    assert_eq!(busy(&[QUICK, Fetched(Found::Nothing)]), [Fetch]);
}

#[test]
fn an_empty_prefetch_is_repeated_after_the_batch() {
    assert_eq!(busy(&[Fetched(Found::Nothing)]), []);
    assert_eq!(busy(&[Fetched(Found::Nothing), QUICK]), [Fetch]);
}

#[test]
fn prefetched_items_are_released_if_the_handler_is_slow() {
    assert_eq!(busy(&[took(2), Slow]), [Release]);
    assert_eq!(busy(&[Slow, took(2)]), [Release]);
    assert_eq!(busy(&[Slow]), []);
    assert_eq!(busy(&[took(2), Slow, done(0)]), [Fetch]);
}

#[test]
fn a_prefetch_in_flight_does_not_overtake_released_items() {
    let slow = [took(3), QUICK, QUICK, Slow];
    assert_eq!(busy(&slow), [Release]);
    let after = |events: &[Event]| busy(&[&slow[..], events].concat());
    assert_eq!(after(&[done(0)]), []);
    assert_eq!(after(&[done(0), took(2)]), [Release, Fetch]);
    assert_eq!(after(&[done(0), took(2), took(1)]), [Dispatch]);
    assert_eq!(after(&[took(2), done(0)]), [Fetch]);
    assert_eq!(after(&[done(0), Fetched(Found::Nothing), took(1)]), [Dispatch]);
}

#[test]
fn a_drain_releases_prefetched_items() {
    assert_eq!(busy(&[took(2), Drain]), [Release]);
    assert_eq!(busy(&[Drain, took(2)]), [Release]);
    for end in [[Withdrawn, QUICK], [QUICK, Withdrawn]] {
        assert_eq!(busy(&[&[Drain], &end[..]].concat()), [Close]);
    }
    // It is the one in hand if the one before is handled.
    assert_eq!(busy(&[Drain, QUICK, took(1)]), [Dispatch]);
    assert_eq!(busy(&[Drain, QUICK, took(2)]), [Dispatch, Release]);
}

/// An actor's operations under way, and its items.
#[derive(Clone, Debug, Default)]
struct Actor {
    taking: bool,
    /// How many batches the take under way may bring, if it was begun ahead.
    ahead: Option<usize>,
    dispatching: bool,
    closing: bool,
    stopped: bool,
    claimed: usize,
    drained: bool,
}

impl Actor {
    /// The events that can happen next.
    fn possible(&self) -> Vec<Event> {
        let mut events = vec![Drain];
        if self.taking {
            events.push(took(1));
            events.extend(match self.ahead {
                None => vec![Fetched(Found::Exhausted)],
                Some(1) => vec![Fetched(Found::Nothing)],
                Some(batches) => vec![Fetched(Found::Nothing), took(batches)],
            });
            // The fetcher hears of a drain before the actor does.
            events.push(Withdrawn);
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
            Fetched(found) => {
                self.taking = false;
                self.take_in_hand(found);
            }
            Withdrawn => self.taking = false,
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
            self.claimed += batches;
        }
        assert!(self.claimed <= MOST_PREFETCHED, "too many in hand");
    }

    fn begin_take(&mut self, ahead: Option<usize>) {
        assert!(!self.taking, "two takes");
        (self.taking, self.ahead) = (true, ahead);
    }

    fn carry_out(&mut self, effect: Effect) {
        let begins = matches!(effect, Fetch | Prefetch(_));
        assert!(!(self.drained && begins), "{effect:?} after a drain");
        match effect {
            Fetch => self.begin_take(None),
            Prefetch(batches) => self.begin_take(Some(batches)),
            Dispatch => {
                assert!(self.claimed > 0 && !self.dispatching, "a dispatch of nothing, or during another");
                self.claimed -= 1;
                self.dispatching = true;
            }
            Release => assert!(std::mem::take(&mut self.claimed) > 0, "nothing to give back"),
            Close => {
                assert!(
                    !self.taking && !self.dispatching && self.claimed == 0,
                    "closed with something in hand"
                );
                self.closing = true;
            }
            Stop => self.stopped = true,
        }
    }
}

/// Follows every course of events for a number of steps.
fn explore(state: &State, actor: &Actor, steps: u32) {
    for event in actor.possible() {
        let (mut state, mut actor) = (state.clone(), actor.clone());
        actor.hear(event);
        let effects = state.on(event);
        effects.iter().for_each(|effect| actor.carry_out(*effect));
        if actor.stopped {
            assert!(actor.claimed == 0 && !actor.taking && !actor.dispatching);
            continue;
        }
        let under_way = actor.taking || actor.dispatching || actor.closing;
        assert!(under_way, "{event:?} leaves nothing under way: {state:?}");
        assert!(actor.claimed == 0 || actor.dispatching, "{event:?} leaves items lying about: {state:?}");
        if steps > 0 {
            explore(&state, &actor, steps - 1);
        }
    }
}

#[test]
fn every_event_leaves_work_in_progress_and_all_items_accounted_for() {
    let (mut state, mut actor) = (State::new(), Actor::default());
    state.on(Started).into_iter().for_each(|effect| actor.carry_out(effect));
    explore(&state, &actor, 7);
}
