//! Special keys: those that start with 0xFF 0xFF and are answered by the client itself.
//!
//! | file | what |
//! |---|---|
//! | `modules` | which keys there are: modules, and the parts that answer for them |
//! | `read` | reads: the rules of modules, selectors, limits |
//! | `write` | writes, which the commit carries out or refuses |
//! | `conflicts` | `transaction/`: conflicting keys, read and write conflict ranges |
//! | `database` | status, paths and ids of the database, and its one process |
//! | `tracing` | `tracing/` |
//!
//! Setting `management/min_required_commit_version` makes versions go on from there, as it does on a cluster. Only the transaction that has
//! set it finds it there; what was set last is at `\xff/minRequiredCommitVersion`, a system key.
//!
//! What else administers a cluster has nothing to administer here: those parts hold no rows, clearing them does nothing, and a
//! commit after setting one fails with `special_keys_api_failure` and says so at `\xff\xff/error_message`.

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

pub use database::{ADDRESS, ADDRESS_TEXT, CONNECTION_STRING};
pub use read::{get, range, shows_reads};
pub use write::Session;

/// First special key.
const SPACE_BEGIN: &[u8] = b"\xff\xff";
/// End of the special keys, exclusive.
const SPACE_END: &[u8] = b"\xff\xff\xff";

/// Is the key one that the client answers itself?
pub fn is_special(key: &[u8]) -> bool {
    (SPACE_BEGIN..SPACE_END).contains(&key)
}

/// Do both bounds lie in the special keys? The end may be their end.
pub fn is_special_range(begin: &[u8], end: &[u8]) -> bool {
    is_special(begin) && (SPACE_BEGIN..=SPACE_END).contains(&end)
}

/// What special keys tell: the transaction that asks, as it is at the moment, and its database. They are read without the
/// transaction's lock, for some look at the disk.
pub struct Facts<'d> {
    /// The database.
    pub database: &'d Database,
    /// What the transaction has done to special keys.
    pub session: Session,
    /// The read ranges that made its last commit fail.
    pub conflicting: RangeSet,
    /// Its read conflict ranges, or why they are not shown.
    pub reads: Result<RangeSet>,
    /// Its write conflict ranges.
    pub writes: RangeSet,
    /// Reads may cross from one module into another.
    pub relaxed: bool,
}

/// Special keys and their values.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
