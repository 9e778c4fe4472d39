//! The actors: a supervisor, a fetcher for each queue, and consumers. Only this directory uses actix.
//! `consumer` has the decisions and the work, without actors.
//!
//! # How actix 0.13 treats a panic
//!
//! When a message handler, `started`, or a future spawned on the actor's context panics:
//!
//! * tokio catches the panic at the actor's task; the thread, the system and all other actors go on.
//! * The task is dropped during unwinding: `stopping` and `stopped` run, then the actor's value is dropped, all with
//!   `std::thread::panicking()` true. `stopping` and `stopped` cannot tell a panic from a stop otherwise.
//! * Its mailbox closes. Messages in it are lost, senders that wait get `MailboxError::Closed`, later `do_send`s vanish
//!   without a trace. `Addr::connected` becomes false.
//! * No actor is notified. `actix::Supervisor` restarts an actor that stops, but not one that panics.
//!
//! Therefore each consumer and fetcher has an `ExitGuard`, whose `Drop` reports the end and its reason to
//! the supervisor. The supervisor makes a new actor instead of reviving the broken value. No mailbox
//! holds anything that must not be lost. Claimed items are in tasks that outlive the actor (dispatcher
//! and lease keeper), or in a reply that releases them when it is dropped, or, with at-most-once
//! delivery, in a `Batch` that logs its loss. A drain waits for these tasks.
//!
//! # Threads
//!
//! The actors share one thread and runtime with timers, signals, fetches and lease keepers. Handlers run
//! on a pool of threads, and so do dispatchers, so that calling a handler does not cross threads. A
//! handler that blocks its thread, or all threads of the pool, delays only other handlers and its own
//! time limit. Leases are still extended, outcomes acknowledged, and drains end at the shutdown timeout.
//!
//! # Mailboxes
//!
//! A mailbox holds 16 messages, but `do_send` ignores that bound. No mailbox grows without end: a consumer
//! gets only `Drain`, a fetcher a few messages for the one open request of each consumer, and the
//! supervisor one message per start, stop, exit and change of the configuration. The liveness probe
//! sends one message every few seconds and waits for the reply.

mod consumer;
mod context;
mod fetcher;
mod handle;
mod messages;
#[cfg(test)]
mod panics;
mod reconciler;
mod restart_limiter;
mod supervisor;

use std::io;

use tokio::runtime;

pub(crate) use context::ConsumerContext;
pub(crate) use handle::{SupervisorExits, SupervisorHandle, supervise};
pub(crate) use messages::{ConsumerRef, ConsumerSpec, DesiredConsumers, Observer, SupervisorExit};

/// Runs `main`, and the actors that it starts, on this thread until `main` is done. Actors that are left are dropped. An error if the thread's
/// runtime cannot be made, with which actix by itself would panic.
pub(crate) fn run<T>(main: impl Future<Output = T>) -> io::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(actix::System::with_tokio_rt(|| runtime).block_on(main))
}
