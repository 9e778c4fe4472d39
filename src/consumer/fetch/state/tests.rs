use std::collections::HashSet;

use super::{Effect::*, Event::*, *};

const MOST: usize = 10;

const fn request(asker: u64) -> Request {
    Request { asker, items: 1, prefetch: false }
}

const fn asked(asker: u64) -> Event {
    Asked(request(asker))
}

const fn prefetch(asker: u64) -> Event {
    Asked(Request { prefetch: true, ..request(asker) })
}

const fn got(served: usize) -> Event {
    Fetched { served, conflicts: false }
}

const NONE: Event = Empty { watched: true };

/// Feeds the events to a new fetcher.
fn after(events: &[Event]) -> State {
    let mut state = State::default();
    events.iter().for_each(|event| drop(state.on(*event, MOST, u64::MAX)));
    state
}

/// The effects of the last event.
fn last(events: &[Event]) -> Vec<Effect> {
    let (last, before) = events.split_last().unwrap();
    after(before).on(*last, MOST, u64::MAX)
}

fn askers(state: &State) -> (Vec<u64>, Vec<u64>) {
    let ids = |request: &Request| request.asker;
    (state.fetching.iter().map(ids).collect(), state.waiting.iter().map(ids).collect())
}

#[test]
fn requests_during_a_fetch_gather_for_the_next() {
    assert_eq!(last(&[asked(1)]), [Gather]);
    assert_eq!(last(&[asked(1), Gathered]), [Fetch]);
    assert_eq!(last(&[asked(1), Gathered, asked(2)]), []);
    assert_eq!(last(&[asked(1), Gathered, asked(2), asked(3), got(1)]), [Gather]);
    let state = after(&[asked(1), Gathered, asked(2), asked(3), got(1), Gathered]);
    assert_eq!(askers(&state), (vec![2, 3], vec![]));
}

#[test]
fn a_fetch_serves_as_many_requests_as_fit_and_at_least_one() {
    let large = |asker, items| Asked(Request { items, ..request(asker) });
    let asked = [large(1, 11), large(2, 9), large(3, 1), large(4, 1)];
    let events = [&asked[..], &[Gathered]].concat();
    assert_eq!(askers(&after(&events)), (vec![1], vec![2, 3, 4]));
    let events = [&events[..], &[got(1), Gathered]].concat();
    assert_eq!(askers(&after(&events)), (vec![2, 3], vec![4]));
}

#[test]
fn consumers_without_items_come_before_those_that_prefetch() {
    let mut state = after(&[prefetch(1), asked(2), Gathered]);
    assert_eq!(askers(&state), (vec![2, 1], vec![]));
    assert_eq!(state.on(got(1), MOST, 0), [Reply(1, NoItems::Nothing)]);
}

#[test]
fn unserved_consumers_come_first_in_the_next_fetch_unless_prefetching() {
    let state = after(&[asked(1), asked(2), prefetch(3), Gathered, asked(4)]);
    let mut short = state.clone();
    assert_eq!(short.on(got(1), MOST, 0), [Reply(3, NoItems::Nothing), Gather]);
    assert_eq!(askers(&short).1, [2, 4]);
    let mut none = state;
    // The request that came meanwhile is looked for.
    assert_eq!(none.on(NONE, MOST, 0), [Reply(3, NoItems::Nothing), Watch, Gather]);
    assert_eq!(askers(&none).1, [1, 2, 4]);
}

#[test]
fn an_empty_queue_is_watched_and_looked_at_again_when_the_watch_fires() {
    let idle = [asked(1), Gathered, NONE];
    assert_eq!(last(&idle), [Watch]);
    let more = |event| last(&[&idle[..], &[event]].concat());
    assert_eq!(more(WatchFired), [Gather]);
    assert_eq!(more(PollDue), [Gather]);
    assert_eq!(more(LookAgain), [Gather]);
    assert_eq!(more(asked(2)), [Gather]);
    // The next fetch may find something else to wait for.
    assert!(after(&[&idle[..], &[LookAgain, Gathered]].concat()).wants_watch());
    assert_eq!(more(LookAgain), [Gather]);
    assert_eq!(last(&[&idle[..], &[LookAgain, Gathered, Full { watched: true }]].concat()), [Watch]);
    // Consumers that prefetch wait for nothing.
    assert!(!after(&[prefetch(1), Gathered]).wants_watch());
    assert_eq!(last(&[asked(1), Gathered, Empty { watched: false }]), [Gather]);
}

#[test]
fn a_full_queue_is_looked_at_again_when_an_item_ends_and_not_for_each_request() {
    let full = [asked(1), Gathered, Full { watched: true }];
    assert_eq!(last(&full), [Watch]);
    let more = |events: &[Event]| last(&[&full[..], events].concat());
    assert_eq!(more(&[asked(2)]), []);
    // A consumer that prefetches waits for an answer.
    assert_eq!(more(&[prefetch(2)]), [Gather]);
    assert_eq!(more(&[asked(2), LookAgain]), [Gather]);
    assert_eq!(more(&[asked(2), WatchFired]), [Gather]);
    assert_eq!(more(&[asked(2), LookAgain, Gathered, got(2), asked(3)]), [Gather]);
    // It has been served, or is not full any more.
    assert_eq!(more(&[LookAgain, Gathered, NONE, asked(2)]), [Gather]);
    assert_eq!(more(&[Withdrawn(1), LookAgain, asked(2)]), [Gather]);
}

#[test]
fn a_watch_fired_without_requests_lets_the_next_request_fetch() {
    assert_eq!(last(&[asked(1), Gathered, NONE, Withdrawn(1), WatchFired]), []);
    assert_eq!(last(&[asked(1), Gathered, NONE, Withdrawn(1), WatchFired, asked(2)]), [Gather]);
    // It fires during a fetch that had begun when it was armed.
    assert_eq!(
        last(&[asked(1), Gathered, NONE, asked(2), Gathered, WatchFired, Empty { watched: false }]),
        [Gather]
    );
}

#[test]
fn a_request_can_be_withdrawn_until_a_fetch_gets_items_for_it() {
    let withdrawn = [Reply(1, NoItems::Withdrawn)];
    assert_eq!(last(&[asked(1), Withdrawn(1)]), withdrawn);
    assert_eq!(last(&[asked(1), Gathered, Withdrawn(1)]), []);
    assert_eq!(last(&[asked(1), Gathered, Withdrawn(1), Failed])[0], withdrawn[0]);
    assert_eq!(last(&[asked(1), Gathered, Withdrawn(1), NONE])[0], withdrawn[0]);
    assert_eq!(last(&[asked(1), Gathered, Withdrawn(1), got(1)]), []);
    assert_eq!(last(&[Withdrawn(1)]), []);
}

#[test]
fn failed_fetches_are_counted_until_one_succeeds() {
    let mut state = after(&[asked(1), Gathered]);
    for failures in 1..4 {
        assert_eq!(state.on(Failed, MOST, 0), [Backoff { failures }]);
        assert_eq!(state.on(asked(2), MOST, 0), []);
        assert_eq!(state.on(Withdrawn(2), MOST, 0).len(), 1);
        assert_eq!(state.on(BackoffOver, MOST, 0), [Gather]);
        state.on(Gathered, MOST, 0);
    }
    state.on(NONE, MOST, 0);
    state.on(WatchFired, MOST, 0);
    state.on(DelayOver, MOST, 0);
    state.on(Gathered, MOST, 0);
    assert_eq!(state.on(Failed, MOST, 0), [Backoff { failures: 1 }]);
}

#[test]
fn while_fetching_is_held_only_prefetch_requests_are_answered() {
    let held = [asked(1), prefetch(2), Held];
    let nothing = |asker| [Reply(asker, NoItems::Nothing)];
    assert_eq!(last(&held), nothing(2));
    assert_eq!(last(&[&held[..], &[prefetch(3)]].concat()), nothing(3));
    assert_eq!(last(&[&held[..], &[asked(4), WatchFired, LookAgain]].concat()), []);
    assert_eq!(last(&[&held[..], &[Released]].concat()), [Gather]);
}

#[test]
fn a_breakers_trial_fetches_for_one_consumer() {
    let trial = [asked(1), asked(2), Held, Admitted(1)];
    assert_eq!(last(&trial), [Fetch]);
    assert_eq!(askers(&after(&trial)), (vec![1], vec![2]));
    assert_eq!(last(&[&trial[..], &[got(1)]].concat()), [Gather]);
}

#[test]
fn all_requests_are_answered_when_the_queue_is_exhausted() {
    let exhausted = |asker| Reply(asker, NoItems::Exhausted);
    assert_eq!(last(&[asked(1), Gathered, asked(2), Exhausted]), [exhausted(1), exhausted(2)]);
}

#[test]
fn a_consumer_is_idle_when_its_fetch_has_found_nothing() {
    let idle = |events: &[Event]| after(events).idle();
    assert_eq!(idle(&[asked(1)]), None);
    assert_eq!(idle(&[asked(1), Gathered]), None);
    assert_eq!(idle(&[asked(1), asked(2), Gathered, NONE]), Some(1));
    assert_eq!(idle(&[asked(1), asked(2), Gathered, NONE, Lent(1)]), Some(2));
    assert_eq!(idle(&[asked(1), asked(2), Gathered, NONE, Lent(1), Lent(2)]), None);
    assert_eq!(idle(&[asked(1), Gathered, Failed]), Some(1));
    assert_eq!(idle(&[asked(1), Held]), None);
    // It handles an item.
    assert_eq!(last(&[asked(1), Gathered, NONE, Lent(1), WatchFired]), []);
}

/// The longest that the next push may be waited with.
fn delay(state: &State) -> Duration {
    match state.clone().on(WatchFired, MOST, u64::MAX)[..] {
        [Delay(delay)] => delay,
        [Gather] => Duration::ZERO,
        ref effects => panic!("{effects:?}"),
    }
}

fn go(state: &mut State, events: &[Event]) {
    events.iter().for_each(|event| drop(state.on(*event, MOST, 0)));
}

#[test]
fn fetch_delay_grows_with_empty_fetches_and_shrinks_with_successful_ones() {
    let mut state = after(&[asked(1), Gathered, NONE]);
    let mut seen = vec![delay(&state).as_millis()];
    for _ in 0..7 {
        go(&mut state, &[WatchFired, DelayOver, Gathered, NONE]);
        seen.push(delay(&state).as_millis());
    }
    assert_eq!(seen, [0, 1, 2, 4, 8, 16, 32, 50]);
    seen.clear();
    for _ in 0..6 {
        go(&mut state, &[WatchFired, DelayOver, Gathered, got(1), asked(1), Gathered, NONE]);
        seen.push(delay(&state).as_millis());
    }
    assert_eq!(seen, [25, 12, 6, 3, 1, 0]);
}

#[test]
fn conflicts_lengthen_the_fetch_delay_and_own_fetches_do_not() {
    let mut state = after(&[asked(1), Gathered, NONE]);
    // Another asker's request is faster than the watch.
    go(&mut state, &[asked(2), Gathered, got(1), Gathered, Empty { watched: false }]);
    go(&mut state, &[WatchFired, Gathered, NONE]);
    assert_eq!(delay(&state), Duration::ZERO);
    let conflict = Fetched { served: 1, conflicts: true };
    go(&mut state, &[asked(3), Withdrawn(3), Gathered, NONE]);
    go(&mut state, &[WatchFired, Gathered, conflict, asked(4), Gathered, NONE]);
    assert_eq!(delay(&state), LEAST_DELAY);
}

#[test]
fn a_request_does_not_wait_for_the_delay_after_a_watch() {
    let mut state = after(&[asked(1), Gathered, NONE, WatchFired, Gathered, NONE]);
    assert!(matches!(state.on(WatchFired, MOST, u64::MAX)[..], [Delay(_)]));
    assert_eq!(state.on(asked(2), MOST, 0), [Gather]);
    assert_eq!(state.on(DelayOver, MOST, 0), []);
}

/// The actor's operations under way, apart from a watch.
fn possible(state: &State, asking: &BTreeSet<u64>) -> Vec<Event> {
    let mut events = vec![LookAgain];
    for asker in 1..=3 {
        if asking.contains(&asker) {
            events.push(Withdrawn(asker));
        } else {
            events.extend([asked(asker), prefetch(asker)]);
        }
    }
    if state.armed {
        events.extend([WatchFired, PollDue]);
    }
    events.extend(state.idle().map(Lent));
    events.extend(match state.phase {
        Phase::Resting => vec![],
        Phase::Delayed => vec![DelayOver],
        Phase::Gathering => vec![Gathered, Held, Refused],
        Phase::Held => {
            let trial = state.waiting.front().map(|request| Admitted(request.asker));
            [Released].into_iter().chain(trial).collect()
        }
        Phase::BackingOff => vec![BackoffOver],
        Phase::Fetching => {
            let most = state.fetching.len();
            let fetched =
                (1..=most).flat_map(|served| [false, true].map(|conflicts| Fetched { served, conflicts }));
            let watched = state.wants_watch();
            fetched.chain([Empty { watched }, Full { watched }, Exhausted, Failed, Refused]).collect()
        }
    });
    events
}

/// Everything that can happen to three askers: each request is answered once, and none is
/// forgotten.
#[test]
fn waiting_requests_always_have_a_watch_or_a_fetch_in_progress() {
    let start = (State::default(), BTreeSet::new());
    let mut seen = HashSet::from([start.clone()]);
    let mut to_explore = vec![start];
    while let Some((state, asking)) = to_explore.pop() {
        let under_way = state.phase != Phase::Resting || state.armed || state.waiting.is_empty();
        assert!(under_way, "{state:?}");
        let mut requests: Vec<_> = state.waiting.iter().chain(&state.fetching).map(|it| it.asker).collect();
        requests.sort_unstable();
        assert!(requests.iter().eq(asking.iter()), "{asking:?} {state:?}");
        for event in possible(&state, &asking) {
            let (mut next, mut asking) = (state.clone(), asking.clone());
            next.failures = 0;
            match event {
                Asked(request) => drop(asking.insert(request.asker)),
                Lent(asker) => assert!(asking.remove(&asker)),
                Fetched { served, .. } => {
                    state.fetching[..served].iter().for_each(|it| assert!(asking.remove(&it.asker)));
                }
                _ => {}
            }
            for effect in next.on(event, 2, u64::MAX) {
                if let Reply(asker, _) = effect {
                    assert!(asking.remove(&asker), "{asker} is answered twice: {event:?} {state:?}");
                }
            }
            if seen.insert((next.clone(), asking.clone())) {
                to_explore.push((next, asking));
            }
        }
    }
    assert!(seen.len() > 1_000, "{} states", seen.len());
}
