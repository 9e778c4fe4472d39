//! How the death of a consumer becomes known.

use actix::Addr;

use super::{
    messages::{Ended, Ending},
    supervisor::Supervisor,
};

/// Held by a consumer; tells the supervisor when the consumer is dropped, and why.
pub(super) struct Obituary {
    supervisor: Addr<Supervisor>,
    consumer: u64,
    ending: Ending,
}

impl Obituary {
    pub(super) fn new(supervisor: Addr<Supervisor>, consumer: u64) -> Self {
        Self { supervisor, consumer, ending: Ending::Vanished }
    }

    /// The consumer is about to stop as it should.
    pub(super) fn stopped(&mut self) {
        self.ending = Ending::Stopped;
    }
}

impl Drop for Obituary {
    fn drop(&mut self) {
        let ending = if std::thread::panicking() { Ending::Panicked } else { self.ending };
        // Not `try_send`: a full mailbox must not swallow it. Bounded by the number of consumers.
        self.supervisor.do_send(Ended { consumer: self.consumer, ending });
    }
}
