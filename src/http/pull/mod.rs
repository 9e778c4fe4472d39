//! Leases over HTTP, for workers that are programs of their own.
//!
//! A lease belongs to every program that has its signed id, and the database has everything else about it. So every daemon of
//! the database can extend and acknowledge it, and a worker goes on when its daemon dies.

mod acknowledge;
mod acknowledging;
mod expired;
mod extend;
mod fetching;
mod find;
mod kept;
mod lease;
mod lease_id;
mod pullers;
mod unanswered;

pub(super) use acknowledge::acknowledge;
pub(super) use extend::extend;
pub(super) use lease::{LEASE_ITEMS, lease};
pub(super) use pullers::Pullers;
