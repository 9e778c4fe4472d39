//! Makes some reads complete later, on the network thread.
//!
//! A read of an embedded database completes before the call returns. A client with only such reads
//! would never wait, so on an async runtime it would never let other tasks run, and its code for
//! pending futures would never be tested. So one read in [`ONE_IN`] completes on the network
//! thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use foundationdb_sys::FDBFuture;

use super::future;
use crate::engine::faults;
use crate::future::Future;
use crate::network::{self, Tasks};

/// One of this many reads of the process is completed by the network thread. A power of two, so that
/// the counter may overflow.
const ONE_IN: u32 = 128;

static READS: AtomicU32 = AtomicU32::new(0);

/// Returns the future of a read to the caller.
pub(super) fn give(read: Arc<Future>) -> *mut FDBFuture {
    const { assert!(ONE_IN.is_power_of_two()) };
    let is_one = READS.fetch_add(1, Ordering::Relaxed) % ONE_IN == ONE_IN - 1;
    // With a gate, a test wants to repeat a run, but this count depends on earlier reads.
    if is_one && read.is_ready() && !faults::is_any_gate_closed() {
        return future::give(detour(&read));
    }
    future::give(read)
}

/// A future that the network thread completes with the result of `read`, which is ready. The work
/// starts at the first check, so that the caller always finds the future pending.
fn detour(read: &Future) -> Arc<Future> {
    let result = read.result();
    Future::lazy(move |later| {
        network::post(Tasks::from_vec(vec![Box::new(move || {
            later.complete_shared(result);
        })]));
    })
}
