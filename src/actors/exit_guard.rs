//! How the death of an actor becomes known.

use actix::Addr;

use super::{
    messages::{ActorExited, ExitReason, Who},
    supervisor::Supervisor,
};

/// Held by an actor; tells the supervisor when the actor is dropped, and why.
pub(super) struct ExitGuard {
    supervisor: Addr<Supervisor>,
    who: Who,
    reason: ExitReason,
}

impl ExitGuard {
    pub(super) fn new(supervisor: Addr<Supervisor>, who: Who) -> Self {
        Self { supervisor, who, reason: ExitReason::Vanished }
    }

    /// The actor is about to stop as it should.
    pub(super) fn stopped(&mut self) {
        self.reason = ExitReason::Stopped;
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { ExitReason::Panicked } else { self.reason };
        // Not `try_send`: a full mailbox must not swallow it. Bounded by the number of actors.
        self.supervisor.do_send(ActorExited { who: self.who.clone(), reason });
    }
}
