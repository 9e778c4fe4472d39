//! Threads.

use std::io;
use std::thread::Thread;
use std::time::Duration;

use crate::run::{Place, Wait, place};

/// How a thread is to be.
#[derive(Debug, Default)]
pub struct Builder {
    name: String,
}

/// A thread that can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: std::thread::JoinHandle<std::thread::Result<T>>,
    /// Its number in the run that it belongs to.
    member: Option<usize>,
}

impl Builder {
    /// A thread without a name.
    #[must_use]
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the thread.
    #[must_use]
    pub fn name(self, name: String) -> Builder {
        Builder { name }
    }

    /// Starts the thread. It belongs to the simulation of the thread that starts it, if there is one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let Builder { name } = self;
        let here = place();
        let there = here.as_ref().map(|here| here.add(&name));
        let member = there.as_ref().map(|there| there.me);
        let mut builder = std::thread::Builder::new();
        if !name.is_empty() {
            builder = builder.name(name);
        }
        let inner = builder.spawn(move || match there {
            Some(there) => there.begin(work),
            None => Ok(work()),
        })?;
        if let Some(here) = here {
            here.pass();
        }
        Ok(JoinHandle { inner, member })
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the end of the thread.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        if let (Some(place), Some(member)) = (place(), self.member) {
            await_end(&place, member);
        }
        self.inner.join().and_then(|outcome| outcome)
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match (place(), self.member) {
            (Some(place), Some(member)) => place.has_ended(member),
            _ => self.inner.is_finished(),
        }
    }

    /// The thread itself.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        self.inner.thread()
    }
}

fn await_end(place: &Place, member: usize) {
    place.pass();
    while !place.has_ended(member) {
        place.wait(Wait::End(member), None);
    }
}

/// Starts a thread without a name.
///
/// # Panics
/// If the system refuses.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(work).expect("the system starts a thread")
}

/// Waits.
pub fn sleep(pause: Duration) {
    match place() {
        None => std::thread::sleep(pause),
        Some(place) => {
            place.wait(Wait::Time, Some(place.after(pause)));
        }
    }
}

/// Lets others go on.
pub fn yield_now() {
    match place() {
        None => std::thread::yield_now(),
        Some(place) => place.pass(),
    }
}
