//! Reporting the end of an actor.

use actix::Addr;

use super::{
    messages::{ActorExited, ExitReason, Who},
    supervisor::Supervisor,
};

/// Held by an actor. When the actor is dropped, it reports the end and its reason to the supervisor.
pub(super) struct ExitGuard {
    supervisor: Addr<Supervisor>,
    who: Who,
    reason: ExitReason,
}

impl ExitGuard {
    pub(super) fn new(supervisor: Addr<Supervisor>, who: Who) -> Self {
        Self { supervisor, who, reason: ExitReason::Vanished }
    }

    /// The actor is about to stop normally.
    pub(super) fn stopped(&mut self) {
        self.reason = ExitReason::Stopped;
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { ExitReason::Panicked } else { self.reason };
        // Not `try_send`, which a full mailbox would refuse. The number of actors bounds these messages.
        self.supervisor.do_send(ActorExited { who: self.who.clone(), reason });
    }
}
