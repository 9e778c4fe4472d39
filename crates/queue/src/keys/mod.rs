//! The keys of a queue: the contract on disk, specified in `docs/KEYSPACE.md`. One record type per file.
//!
//! | key (tuple, behind the prefix) | value | file |
//! |---|---|---|
//! | (q, "npush"), (q, "npop") | number, little endian | `counters` |
//! | (q, "val", stamp) | payload | `items` |
//! | (q, "token", session) | last attempt and its stamp | `tokens` |
//!
//! `element` holds what the tuple encoding needs; `space` puts the records of one queue together.

pub(crate) mod counters;
mod element;
pub(crate) mod items;
mod space;
pub(crate) mod tokens;

pub(crate) use element::{append_bytes, split_bytes};
pub(crate) use space::Space;
