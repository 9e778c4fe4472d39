//! The supervisor as the rest of the daemon sees it.

use std::sync::Arc;

use actix::{Actor, Addr};
use tokio::sync::mpsc;

use super::{
    context::ConsumerContext,
    messages::{
        ConsumerRef, ConsumerSpec, DesiredConsumers, Drain, ListConsumers, Reconcile, Start, Stop,
        SupervisorExit,
    },
    supervisor::Supervisor,
};

/// Starts a supervisor, without consumers. Call this on the actors' thread.
pub(crate) fn supervise(context: Arc<ConsumerContext>) -> (SupervisorHandle, SupervisorExits) {
    let (exits, receiver) = mpsc::unbounded_channel();
    (SupervisorHandle(Supervisor::new(context, exits).start()), SupervisorExits(receiver))
}

/// Sends commands to the supervisor. Each fails only if the supervisor is gone.
#[derive(Clone, Debug)]
pub(crate) struct SupervisorHandle(Addr<Supervisor>);

impl SupervisorHandle {
    /// All consumers. Each is asked to note in its status that it reads its mailbox.
    pub(crate) async fn consumers(&self) -> Result<Vec<ConsumerRef>, SupervisorExit> {
        self.0.send(ListConsumers).await.map_err(|_| SupervisorExit::SupervisorDied)
    }

    /// Makes these the consumers of all queues. Consumers that leave finish what they have; a new
    /// one starts when there is room for it. Returns when all have been notified. After a drain it changes
    /// nothing.
    pub(crate) async fn reconcile(&self, desired: DesiredConsumers) -> Result<(), SupervisorExit> {
        self.0.send(Reconcile(desired)).await.map_err(|_| SupervisorExit::SupervisorDied)
    }

    /// Starts consumers and returns their ids. Consumers that work until their queue is empty end the
    /// supervisor when the last of them has ended, so start all of them with one call.
    pub(crate) async fn start(&self, specs: Vec<ConsumerSpec>) -> Result<Vec<u64>, SupervisorExit> {
        self.0.send(Start(specs)).await.map_err(|_| SupervisorExit::SupervisorDied)
    }

    /// Lets one consumer finish what it has, and stops it; false if there is none of that id.
    pub(crate) async fn stop(&self, id: u64) -> Result<bool, SupervisorExit> {
        self.0.send(Stop(id)).await.map_err(|_| SupervisorExit::SupervisorDied)
    }

    /// Lets all consumers finish what they have, and stops them. No consumer fetches any more.
    pub(crate) fn drain(&self) {
        self.0.do_send(Drain);
    }
}

/// How the supervisor ends.
#[derive(Debug)]
pub(crate) struct SupervisorExits(mpsc::UnboundedReceiver<SupervisorExit>);

impl SupervisorExits {
    /// Waits for the end: after a drain, when consumers that work until their queue is empty have all
    /// ended, or after too many failures. After failures the other consumers go on until they are
    /// drained, which is another end.
    pub(crate) async fn next(&mut self) -> SupervisorExit {
        self.0.recv().await.unwrap_or(SupervisorExit::SupervisorDied)
    }
}
