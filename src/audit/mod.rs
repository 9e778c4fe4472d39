//! The audit trail: who changed a queue or the daemon, what, and when.
//!
//! A record is written in the transaction of its change. A change of several transactions has its record before the first
//! of them. So there is no change without a record. `docs/SECURITY.md` is the page for operators, and `docs/KEYSPACE.md` has
//! the bytes.

mod action;
mod bound;
mod record;
mod store;
mod this_daemon;

pub(crate) use action::Action;
pub(crate) use bound::{Census, Excess};
pub(crate) use record::{Record, Who};
pub(crate) use store::{AuditStore, Cursor, Filter, MAX_RECORDS};
pub(crate) use this_daemon::this_daemon;
