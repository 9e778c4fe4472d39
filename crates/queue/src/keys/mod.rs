//! The keys of a queue: the contract on disk. `docs/KEYSPACE.md` lists all records. One record type per file.
//!
//! `fields` has what records of tagged fields need; `space` puts the records of one queue together.

pub(crate) mod agenda;
pub(crate) mod batches;
pub(crate) mod cancelled;
pub(crate) mod chunks;
pub(crate) mod claims;
pub(crate) mod clocks;
pub(crate) mod counters;
pub(crate) mod duty;
pub(crate) mod ended;
pub(crate) mod ended_by;
pub(crate) mod fields;
pub(crate) mod items;
pub(crate) mod joined;
pub(crate) mod keyed;
pub(crate) mod later;
pub(crate) mod leases;
pub(crate) mod limits;
pub(crate) mod meta;
#[cfg(feature = "migration")]
pub(crate) mod migration;
pub(crate) mod operations;
pub(crate) mod partitions;
pub(crate) mod pause;
pub(crate) mod progress;
pub(crate) mod range;
pub(crate) mod recipes;
pub(crate) mod rules_pending;
pub(crate) mod schedules;
mod space;
pub(crate) mod times;
pub(crate) mod tokens;
pub(crate) mod wants;

pub(crate) use crate::keys::counters::Counter;
pub(crate) use crate::keys::range::{after, range};
pub(crate) use crate::model::element::{append_bytes, split_bytes};
pub(crate) use space::{DEAD, Space};
