//! Locks, threads and time, which a simulation can take over.
//!
//! Without the feature `simulation` these are `parking_lot`'s locks, and the threads, channels and clocks of the standard library. With it they are the same for a
//! thread that belongs to no simulation. In a simulation exactly one thread runs, the one that has the *baton*. Wherever a thread may wait or wake another
//! one, a seed decides who has the baton next; and when all wait, the time jumps to the first moment that one waits for. So a seed is the same run each time.
//!
//! The code under test is written with threads and blocking calls as usual. It must use this crate for all that makes it wait, and must not let the order of a
//! `HashMap`, an address or the real time decide anything.

#[cfg(feature = "simulation")]
mod channel;
#[cfg(feature = "simulation")]
mod locks;
#[cfg(feature = "simulation")]
mod run;
#[cfg(all(test, feature = "simulation"))]
mod tests;
#[cfg(feature = "simulation")]
mod threads;

#[cfg(feature = "simulation")]
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
#[cfg(feature = "simulation")]
pub use run::{Run, Simulation, draw, is_simulated, note, now, pass, random, simulate, system_now};

/// Threads.
#[cfg(feature = "simulation")]
pub mod thread {
    pub use crate::threads::{Builder, JoinHandle, sleep, spawn, yield_now};
    pub use std::thread::{Thread, ThreadId, current};
}

/// Channels with room for a number of messages.
#[cfg(feature = "simulation")]
pub mod mpsc {
    pub use crate::channel::{Receiver, SyncSender, sync_channel};
    pub use std::sync::mpsc::{RecvError, SendError, TryRecvError};
}

#[cfg(not(feature = "simulation"))]
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};

/// Threads.
#[cfg(not(feature = "simulation"))]
pub mod thread {
    pub use std::thread::{Builder, JoinHandle, Thread, ThreadId, current, sleep, spawn, yield_now};
}

/// Channels with room for a number of messages.
#[cfg(not(feature = "simulation"))]
pub mod mpsc {
    pub use std::sync::mpsc::{Receiver, RecvError, SendError, SyncSender, TryRecvError, sync_channel};
}

/// The monotonic clock.
#[cfg(not(feature = "simulation"))]
#[inline]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The clock on the wall.
#[cfg(not(feature = "simulation"))]
#[inline]
pub fn system_now() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// A random number that no other process draws.
#[cfg(not(feature = "simulation"))]
#[must_use]
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// Adds a line to the history of a simulation: here there is none.
#[cfg(not(feature = "simulation"))]
#[inline]
pub fn note(_line: impl FnOnce() -> String) {}
