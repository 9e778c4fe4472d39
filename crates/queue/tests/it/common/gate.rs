//! Driving one operation while its commits wait at a gate.

use std::pin::{Pin, pin};
use std::task::Poll;

use fdb_embedded::{Fault, Gate, HeldCommit};
use futures::poll;

/// Goes on until it has sent a commit, which then waits.
pub(crate) async fn until_sent<F: Future>(gate: &Gate, mut doing: Pin<&mut F>) -> HeldCommit {
    loop {
        assert!(poll!(doing.as_mut()).is_pending(), "it was to commit something");
        drop(gate.backoffs());
        if let Some(commit) = gate.arrived().pop() {
            return commit;
        }
        tokio::task::yield_now().await;
    }
}

/// Goes on to the end, and all that it commits arrives.
pub(crate) async fn to_the_end<F: Future>(gate: &Gate, mut doing: Pin<&mut F>) -> F::Output {
    loop {
        if let Poll::Ready(output) = poll!(doing.as_mut()) {
            return output;
        }
        drop(gate.backoffs());
        for commit in gate.arrived() {
            let _told_to_its_client = commit.pass(Fault::None);
        }
        tokio::task::yield_now().await;
    }
}

/// Two transactions overlap: the first commit of `late` arrives after all of `early`. Returns whether it conflicted.
///
/// It opens the gate at the end. At a closed gate everything that the test commits afterwards would wait for ever.
pub(crate) async fn overlaps<A, B>(
    gate: Gate,
    late: impl Future<Output = A>,
    early: impl Future<Output = B>,
) -> (bool, A, B) {
    let mut late = pin!(late);
    let commit = until_sent(&gate, late.as_mut()).await;
    let early = to_the_end(&gate, pin!(early)).await;
    let conflicted = commit.pass(Fault::None).is_err();
    (conflicted, to_the_end(&gate, late).await, early)
}
