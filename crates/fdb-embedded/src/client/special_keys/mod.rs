//! Special keys: keys that start with 0xFF 0xFF, which the client itself answers.
//!
//! Setting `management/min_required_commit_version` advances versions, as on a cluster. Only the
//! transaction that sets it can read it there; the last value is at
//! `\xff/minRequiredCommitVersion`, a system key.
//!
//! Other keys for the administration of a cluster have no function here. They have no rows,
//! clearing them does nothing, and a commit after setting one fails with
//! `special_keys_api_failure`, with the reason at `\xff\xff/error_message`.

mod conflicts;
mod database;
mod modules;
mod read;
mod tracing;
mod write;

use std::collections::BTreeMap;

use super::Database;
use crate::error::Result;
use crate::range_set::RangeSet;

pub use read::{get, range, shows_reads};
pub use write::SpecialKeyWrites;

/// The first special key.
const SPACE_BEGIN: &[u8] = b"\xff\xff";
/// End of the special keys, exclusive.
const SPACE_END: &[u8] = b"\xff\xff\xff";

/// True for a key that the client itself answers.
pub fn is_special(key: &[u8]) -> bool {
    (SPACE_BEGIN..SPACE_END).contains(&key)
}

/// True if both bounds are special keys. The end may be their end.
pub fn is_special_range(begin: &[u8], end: &[u8]) -> bool {
    is_special(begin) && (SPACE_BEGIN..=SPACE_END).contains(&end)
}

/// The data for special keys: about the transaction at the moment, and its database. Read without
/// the transaction's lock, because some of it comes from the disk.
pub struct Facts<'d> {
    /// The database.
    pub database: &'d Database,
    /// The transaction's writes to special keys.
    pub session: SpecialKeyWrites,
    /// The read ranges that caused the last conflict.
    pub conflicting: RangeSet,
    /// The read conflict ranges, or the error of reading them.
    pub reads: Result<RangeSet>,
    /// The write conflict ranges.
    pub writes: RangeSet,
    /// Reads may cross from one module into another.
    pub relaxed: bool,
}

/// Special keys and their values.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
