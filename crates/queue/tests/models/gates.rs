//! A model of the gates of a limited scope (`src/ops/keyed/gates.rs`), checked in every order of transactions.
//!
//! Fetches read how many items run, and commit later, unless another one has committed meanwhile that took a gate of theirs. The checker goes through
//! all states that three overlapping fetches can lead to.
//!
//! Each broken twin leaves out a part of the rule. A model that finds nothing in them would prove nothing.

use stateright::{Checker, Model, Property};

use crate::breaks;

/// The limit. It is enough for two gates: both are open to a fetch of one item, the first one also to a fetch of two.
const MOST: u8 = 20;
const GATES: [u8; 2] = [0, 1];
/// How many items fetches ask for.
const ITEMS: [u8; 3] = [1, 2, 6];
const MAX_OPEN: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Takes {
    One(u8),
    All,
}

impl Takes {
    fn meets(self, other: Takes) -> bool {
        self == Takes::All || other == Takes::All || self == other
    }
}

/// A fetch that has read and not yet committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Open {
    starts: u8,
    takes: Takes,
    conflicted: bool,
    /// A fetch of another gate has committed meanwhile.
    overlapped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    running: u8,
    open: Vec<Open>,
    /// Two fetches that overlapped have committed.
    both_committed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    /// A fetch of so many items, which would choose this gate.
    Fetch(u8, u8),
    Commit(usize),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Fetches do not exclude each other.
    NoGates,
    /// A fetch takes one gate although more than half of the slots are taken.
    OneGateNearTheLimit,
    /// Each gate is open to a fetch of any number of items.
    AnyNumber,
    /// A fetch near the limit takes a gate of its own, and not all.
    NotAll,
}

struct Gates {
    fault: Option<Fault>,
}

impl Gates {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn takes(&self, running: u8, starts: u8, gate: u8) -> Takes {
        let is_open = self.is(Fault::AnyNumber) || starts <= MOST / (10 * (gate + 1));
        let is_far = self.is(Fault::OneGateNearTheLimit) || running <= MOST / 2;
        match is_open && is_far {
            true => Takes::One(gate),
            false if self.is(Fault::NotAll) => Takes::One(u8::MAX),
            false => Takes::All,
        }
    }
}

impl Model for Gates {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { running: 0, open: Vec::new(), both_committed: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..state.open.len()).map(Action::Commit));
        if state.open.len() < MAX_OPEN && state.running < MOST {
            actions.extend(ITEMS.iter().flat_map(|n| GATES.map(|gate| Action::Fetch(*n, gate))));
        }
        if state.running > 0 {
            actions.push(Action::End);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Fetch(items, gate) => {
                let starts = items.min(MOST - state.running);
                let takes = self.takes(state.running, starts, gate);
                state.open.push(Open { starts, takes, conflicted: false, overlapped: false });
                state.open.sort_unstable();
            }
            Action::Commit(at) => {
                let fetch = state.open.remove(at);
                if !fetch.conflicted {
                    state.running += fetch.starts;
                    state.both_committed |= fetch.overlapped;
                    for other in &mut state.open {
                        other.overlapped = true;
                        other.conflicted |= !self.is(Fault::NoGates) && other.takes.meets(fetch.takes);
                    }
                }
            }
            Action::End => state.running -= 1,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no more items run than the limit", |_, state: &State| state.running <= MOST),
            Property::sometimes("all slots are taken", |_, state: &State| state.running == MOST),
            Property::sometimes("fetches that overlap commit", |_, state: &State| state.both_committed),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.running <= MOST + 1
    }
}

#[test]
fn no_order_of_fetches_exceeds_the_limit() {
    let checker = Gates { fault: None }.checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000, "{} states", checker.unique_state_count());
}

#[test]
fn a_model_that_leaves_out_a_part_of_the_rule_fails() {
    for fault in [Fault::NoGates, Fault::OneGateNearTheLimit, Fault::AnyNumber, Fault::NotAll] {
        assert!(breaks(Gates { fault: Some(fault) }), "the model finds nothing wrong with {fault:?}");
    }
}
