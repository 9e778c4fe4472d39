//! The keys of a queue: the contract on disk, specified in `docs/KEYSPACE.md`. One record type per file.
//!
//! | key (tuple, behind the prefix) | value | file |
//! |---|---|---|
//! | (q, "npush"), (q, "npop"), (q, "ndone"), (q, "nlater"), (q, "ndue"), (q, "nback"), (q, "ndead"), (q, "ncancel") | number, little endian | `counters` |
//! | (q, "val", stamp) | payload of a ready item | `items` |
//! | (q, "part", i, stamp), (q, "partitions") | the same in partition i; how many partitions there are | `partitions` |
//! | text (q), then the recipes' | payload of a ready item | `recipes` |
//! | (q, "kval", key, stamp) and the index of keys | payload of a ready item of a keyed queue | `keyed` |
//! | (q, "rule", pattern) | limits of the scopes that match | `limits` |
//! | (q, "meta", id) | side record of a ready item | `meta` |
//! | (q, "chunk", id, n) | the rest of a long payload | `chunks` |
//! | (q, "lease", session, number), (q, "held", session, number, i) | a batch in hand | `leases` |
//! | (q, "cancelled", session, number) | which items of a lease were cancelled | `cancelled` |
//! | (q, "progress", session, number) | how far the handlers of a lease's items are | `progress` |
//! | (q, "later", due, id) | an item that waits for its time | `agenda` |
//! | (q, "body", id), (q, "due", id) | its value and its time | `later` |
//! | (q, "expiry", time, id) | an item that expires if no attempt has begun by then | `agenda` |
//! | (q, "schedule-due", time, name), (q, "batch-due", time, id) | when a schedule or a batch is looked at | `agenda` |
//! | (q, "dead", id), (q, "body", id) | a dead letter | `space` |
//! | (q, "unique", key) | id of the item of that key | `space` |
//! | (q, "op", id), (q, "oplog", stamp) | a push that is not to be repeated | `operations` |
//! | (q, "sweep") | who sweeps | `claims` |
//! | (q, "duty") | which sweeper looks after the queue | `duty` |
//! | (q, "clocks") | what the clocks of sweepers said | `clocks` |
//! | (q, "times") | versions, and when they were read | `times` |
//! | (q, "pause") | that nothing is to be taken | `pause` |
//! | (q, "migrate") | how far a migration of the queue has come | `migration` |
//! | (q, "schedule", name) and the records of schedules | items that are pushed again and again | `schedules` |
//! | (q, "batch", id) and the records of batches | items that a callback waits for | `batches` |
//! | (q, "want", stamp) | a take that asks to be served | `wants` |
//! | (q, "ended", minute, stamp, id), (q, "ended-id", hour, id, stamp), (q, "result", minute, id), (q, "history") | items that have ended, and their results; how long they are kept | `ended` |
//! | (q, "ended-by", hour, name, value, minute, stamp, id) | groups of ended items, by attributes | `ended_by` |
//! | (q, "token", session) | last attempt and its stamp | `tokens` |
//!
//! `element` holds what the tuple encoding needs, `fields` what records of tagged fields need; `space` puts the records of one queue together.

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
