//! Locks and condition variables.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use crate::run::{Place, Wait, place};

/// The name of a lock or a condition variable in a run.
fn address<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

/// Takes what `attempt` takes, as soon as it is there. If a thread outside of the run has it, `block` waits for that thread: it needs no baton, so
/// the seed decides nothing meanwhile.
fn until_taken<T>(
    place: &Place,
    lock: usize,
    attempt: impl Fn() -> Option<T>,
    block: impl FnOnce() -> T,
) -> T {
    place.pass();
    loop {
        let taken = attempt();
        if taken.is_none() && place.is_held(lock) {
            place.wait(Wait::Lock(lock), None);
            continue;
        }
        let taken = taken.unwrap_or_else(block);
        place.hold(lock);
        return taken;
    }
}

/// Takes what `attempt` takes, if it is there.
fn if_free<T>(lock: usize, attempt: impl FnOnce() -> Option<T>) -> Option<T> {
    let place = place();
    if let Some(place) = &place {
        place.pass();
    }
    let taken = attempt()?;
    if let Some(place) = &place {
        place.hold(lock);
    }
    Some(taken)
}

fn released(lock: usize) {
    if let Some(place) = place() {
        place.release(lock);
    }
}

/// `parking_lot`'s mutex.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: parking_lot::Mutex<T>,
}

/// The value of a locked mutex.
pub struct MutexGuard<'m, T: ?Sized> {
    mutex: &'m Mutex<T>,
    /// `None` only while the guard's owner waits.
    inner: Option<parking_lot::MutexGuard<'m, T>>,
}

const HELD: &str = "only a wait takes it out";

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { inner: parking_lot::Mutex::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = match place() {
            None => self.inner.lock(),
            Some(place) => until_taken(&place, address(self), || self.inner.try_lock(), || self.inner.lock()),
        };
        MutexGuard { mutex: self, inner: Some(inner) }
    }

    /// Takes the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = Some(if_free(address(self), || self.inner.try_lock())?);
        Some(MutexGuard { mutex: self, inner })
    }

    /// The value, which nobody else can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'m, T: ?Sized> MutexGuard<'m, T> {
    /// Runs `work` while the mutex is free.
    pub fn unlocked<U>(guard: &mut MutexGuard<'m, T>, work: impl FnOnce() -> U) -> U {
        guard.release();
        let value = work();
        guard.inner = guard.mutex.lock().inner.take();
        value
    }

    fn release(&mut self) {
        if self.inner.take().is_some() {
            released(address(self.mutex));
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// How a wait with a limit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time ended it.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// `parking_lot`'s condition variable.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// Nobody waits for it.
    pub const fn new() -> Condvar {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    /// Ends one wait.
    pub fn notify_one(&self) {
        match place() {
            None => drop(self.inner.notify_one()),
            Some(place) => {
                place.wake_one(Wait::Signal(address(self)));
                place.pass();
            }
        }
    }

    /// Ends all waits.
    pub fn notify_all(&self) {
        match place() {
            None => drop(self.inner.notify_all()),
            Some(place) => {
                place.wake_all(Wait::Signal(address(self)));
                place.pass();
            }
        }
    }

    /// Waits while the mutex is free.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match place() {
            None => self.inner.wait(guard.inner.as_mut().expect(HELD)),
            Some(place) => drop(self.wait_in(&place, guard, None)),
        }
    }

    /// Waits until a moment at the latest.
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, moment: Instant) -> WaitTimeoutResult {
        match place() {
            None => {
                let guard = guard.inner.as_mut().expect(HELD);
                WaitTimeoutResult(self.inner.wait_until(guard, moment).timed_out())
            }
            Some(place) => self.wait_in(&place, guard, Some(place.at(moment))),
        }
    }

    /// Waits, at most for this time.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        match place() {
            None => {
                let guard = guard.inner.as_mut().expect(HELD);
                WaitTimeoutResult(self.inner.wait_for(guard, limit).timed_out())
            }
            Some(place) => self.wait_in(&place, guard, Some(place.after(limit))),
        }
    }

    fn wait_in<T: ?Sized>(
        &self,
        place: &Place,
        guard: &mut MutexGuard<'_, T>,
        until: Option<Duration>,
    ) -> WaitTimeoutResult {
        // Nobody else runs between the release and the wait, so no signal is missed.
        guard.release();
        let timed_out = place.wait(Wait::Signal(address(self)), until);
        guard.inner = guard.mutex.lock().inner.take();
        WaitTimeoutResult(timed_out)
    }
}

/// `parking_lot`'s lock for readers and writers.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    inner: parking_lot::RwLock<T>,
}

/// The value of a lock, for reading.
pub struct RwLockReadGuard<'l, T: ?Sized> {
    address: usize,
    inner: Option<parking_lot::RwLockReadGuard<'l, T>>,
}

/// The value of a lock, for writing.
pub struct RwLockWriteGuard<'l, T: ?Sized> {
    address: usize,
    inner: Option<parking_lot::RwLockWriteGuard<'l, T>>,
}

impl<T> RwLock<T> {
    /// A lock that nobody has.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { inner: parking_lot::RwLock::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until it can read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let address = address(self);
        let inner = match place() {
            None => self.inner.read(),
            Some(place) => until_taken(&place, address, || self.inner.try_read(), || self.inner.read()),
        };
        RwLockReadGuard { address, inner: Some(inner) }
    }

    /// Waits until it can write.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let address = address(self);
        let inner = match place() {
            None => self.inner.write(),
            Some(place) => until_taken(&place, address, || self.inner.try_write(), || self.inner.write()),
        };
        RwLockWriteGuard { address, inner: Some(inner) }
    }

    /// Reads if it can at once.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = Some(if_free(address(self), || self.inner.try_read())?);
        Some(RwLockReadGuard { address: address(self), inner })
    }

    /// The value, which nobody else can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.inner.take());
        released(self.address);
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.inner.take());
        released(self.address);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
