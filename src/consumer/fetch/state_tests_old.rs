use std::collections::HashSet;

use super::{Effect::*, Event::*, *};

/// Feeds the events to a queue without members and returns the effects of the last one.
fn last(events: &[Event]) -> Vec<Effect> {
    let mut state = State::default();
    events.iter().map(|event| state.on(*event, 0)).last().unwrap_or_default()
}

fn now(member: Member) -> Effect {
    Wake { member, after: Duration::ZERO }
}

const fn empty(member: Member) -> Event {
    Empty { member, watched: false }
}

const fn watched(member: Member) -> Event {
    Empty { member, watched: true }
}

const fn found(member: Member) -> Event {
    Found { member, conflicts: false }
}

#[test]
fn the_first_that_is_idle_brings_the_watch_and_the_others_share_it() {
    let mut state = State::default();
    assert!(state.wants_watch());
    assert_eq!(state.on(watched(1), 0), [Watch]);
    assert!(!state.wants_watch());
    assert_eq!(state.on(empty(2), 0), []);
    assert_eq!(state.on(empty(3), 0), []);
}

#[test]
fn a_push_wakes_one_and_found_items_the_next() {
    let idle = [watched(1), empty(2), empty(3)];
    assert_eq!(last(&[&idle[..], &[Fired]].concat()), [now(1)]);
    assert_eq!(last(&[&idle[..], &[Fired, found(1)]].concat()), [now(2)]);
    assert_eq!(last(&[&idle[..], &[Fired, found(1), found(2)]].concat()), [now(3)]);
    assert_eq!(last(&[&idle[..], &[Fired, found(1), watched(2)]].concat()), [Watch]);
}

#[test]
fn one_looks_at_a_time() {
    let idle = [watched(1), empty(2), empty(3)];
    assert_eq!(last(&[&idle[..], &[Fired, Nudged]].concat()), []);
    // A busy one that comes back for more finds some: the one that looks will wake the next.
    assert_eq!(last(&[&idle[..], &[Fired, found(4)]].concat()), []);
}

#[test]
fn a_watch_that_fires_while_nobody_is_idle_is_made_up_for() {
    // Its take had begun when the watch was still armed, so it brings none.
    assert_eq!(last(&[watched(1), Fired, found(1), empty(1)]), [now(1)]);
}

#[test]
fn who_goes_while_it_looks_passes_it_on() {
    assert_eq!(last(&[watched(1), empty(2), Fired, Gone(1)]), [now(2)]);
    assert_eq!(last(&[watched(1), empty(2), Gone(1)]), []);
    assert_eq!(last(&[watched(1), Fired, Gone(1)]), []);
}

#[test]
fn a_watch_that_expires_has_one_look_again() {
    let mut state = State::default();
    state.on(watched(1), 0);
    state.on(empty(2), 0);
    assert_eq!(state.on(Expired, 0), [now(1)]);
    assert!(state.wants_watch());
}

#[test]
fn a_queue_at_rest_wakes_everyone() {
    assert_eq!(last(&[watched(1), empty(2), Rested]), [now(1), now(2)]);
}

/// The longest that the next push may be waited with.
fn distance(state: &State) -> Duration {
    match state.clone().on(Fired, u64::MAX)[..] {
        [Wake { after, .. }] => after,
        ref effects => panic!("{effects:?}"),
    }
}

#[test]
fn who_loses_races_keeps_away_and_who_wins_comes_back() {
    let mut state = State::default();
    state.on(watched(1), 0);
    let mut seen = vec![distance(&state).as_millis()];
    for _ in 0..6 {
        state.on(Fired, 0);
        state.on(watched(1), 0);
        seen.push(distance(&state).as_millis());
    }
    assert_eq!(seen, [0, 1, 2, 4, 8, 16, 20]);
    seen.clear();
    for _ in 0..5 {
        state.on(Fired, 0);
        state.on(found(1), 0);
        state.on(watched(1), 0);
        seen.push(distance(&state).as_millis());
    }
    assert_eq!(seen, [10, 5, 2, 1, 0]);
}

#[test]
fn a_conflict_is_a_lost_race_and_an_item_that_a_neighbour_got_is_none() {
    let mut state = State::default();
    state.on(watched(1), 0);
    state.on(Fired, 0);
    state.on(found(2), 0);
    state.on(watched(1), 0);
    assert_eq!(distance(&state), Duration::ZERO);
    // The neighbour, and a look for more, may be faster than the watch.
    state.on(found(2), 0);
    state.on(empty(1), 0);
    state.on(Fired, 0);
    state.on(watched(1), 0);
    assert_eq!(distance(&state), Duration::ZERO);
    state.on(Fired, 0);
    state.on(Found { member: 1, conflicts: true }, 0);
    state.on(watched(1), 0);
    assert_eq!(distance(&state), LEAST_DISTANCE);
}

/// Members that take, handle and come back in any order, a watch that fires and expires at any moment: everything that can happen
/// to three of them.
#[test]
fn where_anyone_is_idle_a_watch_is_armed_or_somebody_looks() {
    let start = (State::default(), BTreeMap::from([(1, false), (2, false), (3, false)]));
    let mut seen = HashSet::from([start.clone()]);
    let mut to_explore = vec![start];
    while let Some((state, awake)) = to_explore.pop() {
        let rule = state.idle.is_empty() || state.armed || !state.looking.is_empty();
        assert!(rule, "{state:?}");
        assert!(state.looking.keys().all(|member| awake.contains_key(member)), "{state:?}");
        for event in possible(&state, &awake) {
            let next = after(event, state.clone(), awake.clone());
            if seen.insert(next.clone()) {
                to_explore.push(next);
            }
        }
    }
    assert!(seen.len() > 1_000, "{} states", seen.len());
}

/// The members that are awake, and whether a watch that was armed when they began to take is no longer.
type Awake = BTreeMap<Member, bool>;

fn possible(state: &State, awake: &Awake) -> Vec<Event> {
    let mut events = vec![Nudged, Expired];
    if state.armed {
        events.push(Fired);
    }
    for (member, overtaken) in awake {
        events.extend([
            found(*member),
            Gone(*member),
            Empty { member: *member, watched: state.wants_watch() },
        ]);
        if *overtaken {
            events.push(empty(*member));
        }
    }
    events
}

fn after(event: Event, mut state: State, mut awake: Awake) -> (State, Awake) {
    let effects = state.on(event, 0);
    match event {
        Empty { member, .. } | Gone(member) => drop(awake.remove(&member)),
        Fired | Expired => awake.values_mut().for_each(|overtaken| *overtaken = true),
        _ => {}
    }
    for effect in effects {
        if let Wake { member, .. } = effect {
            assert_eq!(awake.insert(member, false), None, "{member} is awake already");
        }
    }
    (state, awake)
}
