//! Special keys: those that start with 0xFF 0xFF and are answered by the client itself.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Limits;
use super::database::Database;
use crate::error::{Code, Result};
use crate::range_set::{KeyRange, RangeSet};
use crate::rows::RowSet;

/// Where the ranges that made a commit conflict can be read, if the option asked for them.
const CONFLICTING_KEYS: &[u8] = b"\xff\xff/transaction/conflicting_keys/";
/// Modules, by prefix; a range may not cross from one into another.
const MODULES: &[&[u8]] = &[
    b"\xff\xff/transaction/",
    b"\xff\xff/status/json",
    b"\xff\xff/cluster_file_path",
    b"\xff\xff/connection_string",
    b"\xff\xff/cluster_id",
    b"\xff\xff/metrics/",
    b"\xff\xff/worker_interfaces/",
    b"\xff\xff/management/",
    b"\xff\xff/configuration/",
    b"\xff\xff/global_config/",
    b"\xff\xff/tracing/",
    b"\xff\xff/error_message",
    b"\xff\xff/actor_lineage/",
];

/// Is the key one that the client answers itself?
pub fn is_special(key: &[u8]) -> bool {
    key.starts_with(b"\xff\xff") && key.len() > 2
}

/// Why a special key cannot be written.
pub fn write_error(enabled: bool) -> Code {
    if enabled { Code::SPECIAL_KEYS_NO_WRITE_MODULE } else { Code::SPECIAL_KEYS_WRITE_DISABLED }
}

/// The special keys as one transaction sees them.
pub struct SpecialKeys {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    relaxed: bool,
}

impl SpecialKeys {
    /// `conflicting` are the ranges that made the last commit fail.
    pub fn new(database: &Database, conflicting: &[KeyRange], relaxed: bool) -> SpecialKeys {
        let mut rows = BTreeMap::new();
        rows.insert(b"\xff\xff/cluster_file_path".to_vec(), database.url().as_bytes().to_vec());
        rows.insert(b"\xff\xff/connection_string".to_vec(), database.url().as_bytes().to_vec());
        rows.insert(b"\xff\xff/status/json".to_vec(), status_json(database.url()).into_bytes());
        let conflicting: RangeSet = conflicting.iter().cloned().collect();
        for (begin, end) in conflicting.iter() {
            rows.insert([CONFLICTING_KEYS, begin].concat(), b"1".to_vec());
            rows.insert([CONFLICTING_KEYS, end].concat(), b"0".to_vec());
        }
        SpecialKeys { rows, relaxed }
    }

    /// The value of one key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.check(key, key)?;
        Ok(self.rows.get(key).map(|value| Bytes::copy_from_slice(value)))
    }

    /// The rows of a range.
    pub fn range(&self, begin: &[u8], end: &[u8], limits: Limits, reverse: bool) -> Result<RowSet> {
        self.check(begin, end)?;
        let mut rows = RowSet::default();
        if begin >= end {
            return Ok(rows);
        }
        let mut found: Vec<_> = self.rows.range(begin.to_vec()..end.to_vec()).collect();
        if reverse {
            found.reverse();
        }
        for (key, value) in found {
            rows.push(key, value);
            let full = limits.rows.is_some_and(|limit| rows.len() >= limit)
                || limits.bytes.is_some_and(|limit| rows.byte_len() >= limit);
            if full {
                rows.more = true;
                break;
            }
        }
        Ok(rows)
    }

    fn check(&self, begin: &[u8], end: &[u8]) -> Result<()> {
        if self.relaxed {
            return Ok(());
        }
        let module = MODULES.iter().find(|module| begin.starts_with(module) || module.starts_with(begin));
        let module = module.ok_or(Code::SPECIAL_KEYS_NO_MODULE)?;
        let mut after = module.to_vec();
        if let Some(last) = after.last_mut() {
            *last += 1;
        }
        let within = end <= after.as_slice();
        if within { Ok(()) } else { Err(Code::SPECIAL_KEYS_CROSS_MODULE) }
    }
}

/// The little that monitoring tools look for first.
fn status_json(url: &str) -> String {
    let url = url.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "{{\"client\":{{\"cluster_file\":{{\"path\":\"{url}\",\"up_to_date\":true}},\
         \"coordinators\":{{\"coordinators\":[{{\"address\":\"127.0.0.1:4500\",\"reachable\":true}}],\
         \"quorum_reachable\":true}},\"database_status\":{{\"available\":true,\"healthy\":true}}}},\
         \"cluster\":{{\"database_available\":true,\"generation\":1,\"layers\":{{}},\"processes\":{{}}}}}}"
    )
}
