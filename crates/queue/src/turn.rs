//! Pushes take turns: only so many of them use a database handle at a time.
//!
//! All transactions of a process pass through one thread, the network thread of FoundationDB's client library. Each step of a
//! transaction waits there for steps of all others. A thousand pushes at a time store no more items a second than a hundred do, but
//! each step of a fetch, or of an extension of a lease, would wait for all thousand.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foundationdb::{Database, FdbError};
use futures::future::{Either, select};
use mutant::mutant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most pushes that use a database handle at a time. What other numbers give is in `docs/PERFORMANCE.md`.
const PUSHES_AT_A_TIME: usize = 128;

/// The handles to which pushes are under way: as few as the process has open.
static HANDLES: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

/// A database handle, while pushes use it or wait for it. Each has turns of its own: a database that does not answer stops no pushes to
/// others.
#[derive(Debug)]
struct Handle {
    /// Its address in memory, which is its own for as long as a push borrows it.
    address: usize,
    /// Pushes that use it or wait.
    pushes: usize,
    turns: Arc<Semaphore>,
}

fn handles() -> MutexGuard<'static, Vec<Handle>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A push's turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    /// After the permit: the semaphore stays for those who wait.
    _push: Pushing,
}

/// A push that uses the handle at this address or waits for it.
#[derive(Debug)]
struct Pushing {
    address: usize,
}

impl Pushing {
    fn begin(address: usize) -> (Pushing, Arc<Semaphore>) {
        let mut handles = handles();
        let known = handles.iter_mut().find(|handle| handle.address == address);
        let turns = match known {
            Some(handle) => {
                handle.pushes += 1;
                Arc::clone(&handle.turns)
            }
            None => {
                let turns = Arc::new(Semaphore::new(PUSHES_AT_A_TIME));
                handles.push(Handle { address, pushes: 1, turns: Arc::clone(&turns) });
                turns
            }
        };
        (Pushing { address }, turns)
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        let mut handles = handles();
        if let Some(at) = handles.iter().position(|handle| handle.address == self.address) {
            handles[at].pushes -= 1;
            if handles[at].pushes == 0 {
                handles.swap_remove(at);
            }
        }
    }
}

/// Waits for the turn of a push. Turns begin in the order of the calls.
///
/// # Errors
/// `expired` ended first: the error of the push's time limit.
pub(crate) async fn turn(db: &Database, expired: impl Future<Output = FdbError>) -> Result<Turn, FdbError> {
    turn_at(std::ptr::from_ref(db).addr(), expired).await
}

async fn turn_at(address: usize, expired: impl Future<Output = FdbError>) -> Result<Turn, FdbError> {
    let (push, turns) = Pushing::begin(address);
    if mutant("pushes-take-no-turns") {
        return Ok(Turn { _permit: None, _push: push });
    }
    match select(pin!(turns.acquire_owned()), pin!(expired)).await {
        // Nobody closes the semaphore.
        Either::Left((permit, _)) => Ok(Turn { _permit: permit.ok(), _push: push }),
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
        (0..PUSHES_AT_A_TIME).map(|_| take().expect("there is a turn left").expect("no limit")).collect()
    }

    fn is_known(address: usize) -> bool {
        handles().iter().any(|handle| handle.address == address)
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
    fn each_handle_has_turns_of_its_own_and_is_forgotten_after_its_last_push() {
        let turns = take_all(3);
        assert!(turn_at(4, pending()).now_or_never().is_some());
        assert!(is_known(3) && !is_known(4));
        drop(turns);
        assert!(!is_known(3));
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
