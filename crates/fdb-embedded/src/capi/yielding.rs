//! Reads that are not ready at once, now and then.
//!
//! A read of an embedded database is answered before the call returns. A client that does nothing but such reads would
//! never wait, and on an async runtime never let another task run; and a client's code for futures that are pending
//! would never be run. So one read in [`ONE_IN`] goes by way of the network thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use foundationdb_sys::FDBFuture;

use super::future;
use crate::engine::faults;
use crate::future::Future;
use crate::network::{self, Tasks};

/// Of so many reads of the process one is completed by the network thread. A power of two, so that the counter's
/// overflow changes nothing.
const ONE_IN: u32 = 128;

static READS: AtomicU32 = AtomicU32::new(0);

/// Gives the future of a read to the C side.
pub(super) fn give(read: Arc<Future>) -> *mut FDBFuture {
    const { assert!(ONE_IN.is_power_of_two()) };
    let is_one = READS.fetch_add(1, Ordering::Relaxed) % ONE_IN == ONE_IN - 1;
    // With a gate a test wants the same run again, and this count goes on from whatever was before.
    if is_one && read.is_ready() && !faults::is_any_gate_closed() {
        return future::give(detour(&read));
    }
    future::give(read)
}

/// A future that the network thread completes as `read`, which is ready, has been. It begins when somebody looks, so
/// that who looks first finds it pending however fast the network thread is.
fn detour(read: &Future) -> Arc<Future> {
    let result = read.result();
    Future::lazy(move |later| {
        network::post(Tasks::from_vec(vec![Box::new(move || {
            later.complete_shared(result);
        })]));
    })
}
