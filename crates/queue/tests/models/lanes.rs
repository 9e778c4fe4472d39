//! A model of the lanes of a queue with a limit (`src/ops/keyed/lanes.rs`), checked in every order of transactions.
//!
//! Fetches read how many items each lane counts, and commit later, unless another one has committed meanwhile that took a gate of theirs, or the limit has changed. Ends of
//! items subtract from any lane. The checker goes through all states that two overlapping fetches can lead to.
//!
//! Each broken twin leaves out a part of the rule. A model that finds nothing in them would prove nothing.

use stateright::{Checker, Model, Property};

use crate::breaks;

/// The most lanes.
const LANES: usize = 3;
/// The limits: one is a lane less, and less for each lane.
const LIMITS: [i8; 2] = [4, 2];
/// How many items fetches ask for.
const ITEMS: [i8; 2] = [1, 3];
const MAX_OPEN: usize = 2;

type Lanes = [i8; LANES];

/// What each lane gets of `n`.
fn shares(n: i8, limit: i8) -> Lanes {
    let lanes = (limit as usize).min(LANES) as i8;
    std::array::from_fn(|lane| match lane as i8 {
        lane if lane < lanes => n / lanes + i8::from(lane < n % lanes),
        _ => 0,
    })
}

/// A fetch that has read and not yet committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Open {
    adds: Lanes,
    /// The gates that it takes.
    gates: [bool; LANES],
    conflicted: bool,
    /// Another fetch has committed meanwhile.
    overlapped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    limit: i8,
    lanes: Lanes,
    open: Vec<Open>,
    /// A fetch has committed and more items ran than may.
    exceeded: bool,
    /// Two fetches that overlapped have committed.
    both_committed: bool,
}

impl State {
    fn running(&self) -> i8 {
        self.lanes.iter().sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    /// A fetch of so many items, which begins with this lane.
    Fetch(i8, usize),
    Commit(usize),
    /// The end of an item of a session with this lane.
    End(usize),
    Limit(i8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Fetches do not exclude each other.
    NoGates,
    /// A fetch takes as many slots of its lane as are free in all.
    BeyondCapacity,
    /// A fetch takes free slots of lanes although others are beyond their capacity.
    IgnoresLanesThatAreOver,
    /// A fetch that divides all running items among the lanes takes one gate.
    DividesWithOneGate,
    /// A change of the limit does not conflict with fetches.
    LimitWithoutConflict,
}

struct QueueLanes {
    fault: Option<Fault>,
}

impl QueueLanes {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn fetch(&self, state: &State, items: i8, first: usize) -> Option<Open> {
        let capacities = shares(state.limit, state.limit);
        let free_of_all = state.limit - state.running();
        let is_over = (0..LANES).any(|lane| state.lanes[lane] > capacities[lane]);
        let (mut adds, mut gates) = ([0; LANES], [false; LANES]);
        if is_over && !self.is(Fault::IgnoresLanesThatAreOver) {
            let n = items.min(free_of_all);
            if n <= 0 {
                return None;
            }
            let target = shares(state.running() + n, state.limit);
            adds = std::array::from_fn(|lane| target[lane] - state.lanes[lane]);
            gates = if self.is(Fault::DividesWithOneGate) { [true, false, false] } else { [true; LANES] };
        } else {
            let mut left = items;
            for lane in (first..LANES).chain(0..first) {
                let free = match self.is(Fault::BeyondCapacity) && lane == first {
                    true => free_of_all,
                    false => capacities[lane] - state.lanes[lane],
                };
                let taken = left.min(free).max(0);
                adds[lane] = taken;
                gates[lane] = taken > 0;
                left -= taken;
            }
            if left == items {
                return None;
            }
        }
        Some(Open { adds, gates, conflicted: false, overlapped: false })
    }
}

impl Model for QueueLanes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let lanes = [0; LANES];
        vec![State { limit: LIMITS[0], lanes, open: Vec::new(), exceeded: false, both_committed: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..state.open.len()).map(Action::Commit));
        if state.open.len() < MAX_OPEN {
            actions.extend(ITEMS.iter().flat_map(|n| (0..LANES).map(|lane| Action::Fetch(*n, lane))));
        }
        if state.running() > 0 {
            actions.extend((0..LANES).map(Action::End));
        }
        actions
            .extend(LIMITS.iter().filter(|limit| **limit != state.limit).map(|limit| Action::Limit(*limit)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Fetch(items, first) => {
                state.open.push(self.fetch(last, items, first)?);
                state.open.sort_unstable();
            }
            Action::Commit(at) => {
                let fetch = state.open.remove(at);
                if !fetch.conflicted {
                    (0..LANES).for_each(|lane| state.lanes[lane] += fetch.adds[lane]);
                    state.exceeded |= state.running() > state.limit;
                    state.both_committed |= fetch.overlapped;
                    for other in &mut state.open {
                        let meets = (0..LANES).any(|lane| other.gates[lane] && fetch.gates[lane]);
                        other.overlapped = true;
                        other.conflicted |= meets && !self.is(Fault::NoGates);
                    }
                }
            }
            Action::End(lane) => state.lanes[lane] -= 1,
            Action::Limit(limit) => {
                state.limit = limit;
                if !self.is(Fault::LimitWithoutConflict) {
                    state.open.iter_mut().for_each(|fetch| fetch.conflicted = true);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no fetch exceeds the limit", |_, state: &State| !state.exceeded),
            Property::sometimes("all slots are taken", |_, state: &State| state.running() == state.limit),
            Property::sometimes("fetches that overlap commit", |_, state: &State| state.both_committed),
            Property::sometimes("a lane is below zero", |_, state: &State| {
                state.lanes.iter().any(|n| *n < 0)
            }),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.running() <= LIMITS[0] + 1
    }
}

#[test]
fn no_order_of_fetches_ends_and_changes_exceeds_the_limit() {
    let checker = QueueLanes { fault: None }.checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000, "{} states", checker.unique_state_count());
}

#[test]
fn a_model_that_leaves_out_a_part_of_the_rule_fails() {
    for fault in [
        Fault::NoGates,
        Fault::BeyondCapacity,
        Fault::IgnoresLanesThatAreOver,
        Fault::DividesWithOneGate,
        Fault::LimitWithoutConflict,
    ] {
        assert!(breaks(QueueLanes { fault: Some(fault) }), "the model finds nothing wrong with {fault:?}");
    }
}
