//! The actors: a supervisor, a fetcher for each queue, and consumers. Actix stays in this directory; what a consumer decides and does is in
//! `consumer`, free of it.
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
//! * Nobody is told. `actix::Supervisor` would not help: it restarts an actor that stops, not one that panics.
//!
//! Hence: a consumer, and a fetcher, holds an `ExitGuard`, whose `Drop` reports the end to the supervisor and says whether it was a
//! panic; the supervisor makes a new consumer, with a new session, rather than reviving the value that broke. Nothing
//! that must not be lost waits in a mailbox: items in hand are in tasks that outlive the actor, one that hands them to the
//! handler and one that holds their lease; or on a lease that runs out; or, with at-most-once delivery, in a `Batch`, which logs
//! its loss. A drain waits for these tasks too.
//!
//! # Threads
//!
//! The actors share one thread with a runtime of its own, timers and signals included; takes, and the holders of leases, run there as
//! well. Handlers run on a multi-threaded pool beside it, and so do the dispatchers, so that handing over an item does not
//! cross threads. A handler that blocks its thread, or all of the pool's, delays other handlers and nothing else: leases are still
//! extended, what is done is settled, and drains end when the shutdown timeout does. What it delays is also its own time limit: nobody can
//! stop a thread.
//!
//! # Mailboxes
//!
//! A mailbox holds 16 messages; `do_send` ignores that bound. A consumer is sent only `Drain`, a fetcher a few messages for
//! each open request of a consumer, of which there is one, the supervisor one
//! message per start, stop, death and change of what is wanted, so none can grow without end. Beside these there is the roll call, every few seconds, which waits
//! for its answer and does not get past the bound.

mod consumer;
mod context;
mod exit_guard;
mod fetcher;
mod handle;
mod messages;
#[cfg(test)]
mod panics;
mod reconciler;
mod restart_limiter;
mod supervisor;
mod system;

pub(crate) use context::ConsumerContext;
pub(crate) use handle::{SupervisorExits, SupervisorHandle, supervise};
pub(crate) use messages::{ConsumerRef, ConsumerSpec, DesiredConsumers, Observer, SupervisorExit};
pub(crate) use system::run;
