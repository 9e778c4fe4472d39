//! How the death of an actor becomes known.

use actix::Addr;

use super::{
    messages::{Ended, Ending, Who},
    supervisor::Supervisor,
};

/// Held by an actor; tells the supervisor when the actor is dropped, and why.
pub(super) struct Obituary {
    supervisor: Addr<Supervisor>,
    who: Who,
    ending: Ending,
}

impl Obituary {
    pub(super) fn new(supervisor: Addr<Supervisor>, who: Who) -> Self {
        Self { supervisor, who, ending: Ending::Vanished }
    }

    /// The actor is about to stop as it should.
    pub(super) fn stopped(&mut self) {
        self.ending = Ending::Stopped;
    }
}

impl Drop for Obituary {
    fn drop(&mut self) {
        let ending = if std::thread::panicking() { Ending::Panicked } else { self.ending };
        // Not `try_send`: a full mailbox must not swallow it. Bounded by the number of actors.
        self.supervisor.do_send(Ended { who: self.who.clone(), ending });
    }
}
