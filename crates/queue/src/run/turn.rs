//! Pushes take turns: a limited number of them use a database handle at a time.
//!
//! All transactions of a process pass through one thread, the network thread of FoundationDB's client library. Each step of a
//! transaction waits there for steps of all others. A thousand pushes at a time store no more items a second than 256 do, but
//! each step of a fetch, or of an extension of a lease, would wait for all thousand.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use foundationdb::{Database, FdbError};
use futures::future::{Either, select};
use mutant::{bound, mutant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most pushes that use a database handle at a time. What other numbers give is in `docs/performance/processes.md`.
fn pushes_at_a_time() -> usize {
    bound("pushes-at-a-time", 256)
}

/// The turns of each database handle, by its address in memory. A database that does not answer stops no pushes to others.
static HANDLES: Mutex<Vec<(usize, Arc<Semaphore>)>> = Mutex::new(Vec::new());

/// A push's turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The turns of the handle at this address, which is its own for as long as a push borrows it.
fn turns(address: usize) -> Arc<Semaphore> {
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, turns)) = handles.iter().find(|(known, _)| *known == address) {
        return Arc::clone(turns);
    }
    // Handles without pushes may be closed.
    handles.retain(|(_, turns)| Arc::strong_count(turns) > 1);
    let turns = Arc::new(Semaphore::new(pushes_at_a_time()));
    handles.push((address, Arc::clone(&turns)));
    turns
}

/// Waits for the turn of a push. Turns begin in the order of the calls.
///
/// # Errors
/// `expired` ended first: the error of the push's time limit.
pub(crate) async fn turn(db: &Database, expired: impl Future<Output = FdbError>) -> Result<Turn, FdbError> {
    turn_at(std::ptr::from_ref(db).addr(), expired).await
}

async fn turn_at(address: usize, expired: impl Future<Output = FdbError>) -> Result<Turn, FdbError> {
    if mutant("pushes-take-no-turns") {
        return Ok(Turn { _permit: None });
    }
    let turns = turns(address);
    // It overtakes nobody: a turn that ends goes to a push that waits.
    if let Ok(permit) = Arc::clone(&turns).try_acquire_owned() {
        return Ok(Turn { _permit: Some(permit) });
    }
    match select(pin!(turns.acquire_owned()), pin!(expired)).await {
        // Nobody closes the semaphore.
        Either::Left((permit, _)) => Ok(Turn { _permit: permit.ok() }),
        Either::Right((error, _)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt;

    use super::*;

    /// Takes all turns of a handle.
    fn take_all(address: usize) -> Vec<Turn> {
        let take = || turn_at(address, pending()).now_or_never();
        (0..pushes_at_a_time()).map(|_| take().expect("there is a turn left").expect("no limit")).collect()
    }

    #[test]
    fn pushes_beyond_the_limit_begin_in_order_when_others_end() {
        let mut turns = take_all(1);
        let mut first = Box::pin(turn_at(1, pending()));
        let mut second = Box::pin(turn_at(1, pending()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(turns.pop());
        assert!(second.as_mut().now_or_never().is_none(), "the first one asked before");
        let turn = first.as_mut().now_or_never().expect("a turn is free");
        drop(turn);
        assert!(second.as_mut().now_or_never().is_some());
    }

    #[test]
    fn a_push_that_is_given_up_while_it_waits_takes_no_turn() {
        let mut turns = take_all(2);
        let mut given_up = Box::pin(turn_at(2, pending()));
        assert!(given_up.as_mut().now_or_never().is_none());
        let mut waiting = Box::pin(turn_at(2, pending()));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(turns.pop());
        // It was its turn, and nobody polls it any more.
        drop(given_up);
        assert!(waiting.as_mut().now_or_never().is_some());
    }

    #[test]
    fn each_handle_has_turns_of_its_own() {
        let _turns = take_all(3);
        assert!(turn_at(3, pending()).now_or_never().is_none());
        assert!(turn_at(4, pending()).now_or_never().is_some());
    }

    #[test]
    fn handles_without_pushes_are_forgotten() {
        let _turn = turn_at(1_000, pending()).now_or_never();
        for address in 1_001..2_000 {
            drop(turn_at(address, pending()).now_or_never());
        }
        let known = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(known.iter().any(|(address, _)| *address == 1_000));
        assert!(known.len() < 100, "{}", known.len());
    }

    #[test]
    fn the_wait_for_a_turn_ends_with_the_time_limit() {
        let limit = || ready(FdbError::from_code(1031));
        assert!(turn_at(5, limit()).now_or_never().expect("a turn is free").is_ok());
        let _turns = take_all(5);
        let ended = turn_at(5, limit()).now_or_never().expect("its limit has passed");
        assert_eq!(ended.err().map(FdbError::code), Some(1031));
    }
}
