//! Models of the rules of keyed queues, checked in every order of transactions that overlap. Each finds the faults of broken twins.

// The client library's symbols, for the linker.
use fdb_embedded as _;

mod gates;
mod holds;
mod keyed;
mod lanes;

use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// Whether some order of transactions breaks a property that always has to hold.
fn breaks<M>(model: M) -> bool
where
    M: Model<State: Clone + Hash + PartialEq + Send + Sync + 'static, Action: Clone + PartialEq>
        + Send
        + Sync
        + 'static,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let properties = checker.model().properties();
    let mut always = properties.iter().filter(|it| matches!(it.expectation, Expectation::Always));
    always.any(|it| checker.discovery(it.name).is_some())
}
