//! The layout of the special keys. A read stays within one module; a write goes to one part.

use std::ops::Range;

use crate::error::{Code, Result};

use super::{SPACE_BEGIN, SPACE_END};

/// The prefix of all names below.
const PREFIX: &[u8] = b"\xff\xff/";

/// The modules by name. A name with a slash at its end stands for all keys below it, another for
/// one key.
const MODULES: &[&str] = &[
    "transaction/",
    "worker_interfaces/",
    "status/json",
    "connection_string",
    "cluster_file_path",
    "metrics/",
    "management/",
    "error_message",
    "configuration/",
    "global_config/",
    "tracing/",
    "actor_lineage/",
    "actor_profiler_conf/",
    "cluster_id",
];

/// The content of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// The ranges that caused the last conflict.
    ConflictingKeys,
    /// The read conflict ranges.
    ReadConflicts,
    /// The write conflict ranges.
    WriteConflicts,
    /// The reason for which the last special key operation failed.
    ErrorMessage,
    /// The status document.
    Status,
    /// The URL or path by which the client opened the database.
    ClusterFilePath,
    /// The connection string.
    ConnectionString,
    /// The id of the database.
    ClusterId,
    /// The one coordinator.
    Coordinators,
    /// The proposed coordinators, which are the same.
    AutoCoordinators,
    /// The class of the one process.
    ProcessClass,
    /// The source of that class.
    ProcessClassSource,
    /// Options of management commands, kept in the transaction.
    Options,
    /// Ids for tracing.
    Tracing,
    /// The version to which versions should advance.
    MinCommitVersion,
    /// Exists only on clusters; reading it finds no rows.
    Absent,
    /// Reading it fails, as on a cluster that does not collect it.
    Failing,
}

/// A range of special keys with one kind of contents.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    /// Its content.
    pub kind: PartKind,
    /// True if it can be written.
    pub is_writable: bool,
}

const fn reads(name: &'static str, kind: PartKind) -> Part {
    Part { name, kind, is_writable: false }
}

const fn writes(name: &'static str, kind: PartKind) -> Part {
    Part { name, kind, is_writable: true }
}

/// All parts. They do not overlap.
pub const PARTS: &[Part] = &[
    reads("transaction/conflicting_keys/", PartKind::ConflictingKeys),
    reads("transaction/read_conflict_range/", PartKind::ReadConflicts),
    reads("transaction/write_conflict_range/", PartKind::WriteConflicts),
    reads("error_message", PartKind::ErrorMessage),
    reads("status/json", PartKind::Status),
    reads("cluster_file_path", PartKind::ClusterFilePath),
    reads("connection_string", PartKind::ConnectionString),
    reads("cluster_id", PartKind::ClusterId),
    reads("worker_interfaces/", PartKind::Absent),
    reads("metrics/data_distribution_stats/", PartKind::Absent),
    reads("metrics/health/", PartKind::Absent),
    reads("actor_lineage/", PartKind::Failing),
    writes("actor_profiler_conf/", PartKind::Absent),
    writes("global_config/", PartKind::Absent),
    writes("tracing/", PartKind::Tracing),
    writes("configuration/coordinators/", PartKind::Coordinators),
    writes("configuration/process/class_type/", PartKind::ProcessClass),
    reads("configuration/process/class_source/", PartKind::ProcessClassSource),
    reads("management/auto_coordinators", PartKind::AutoCoordinators),
    writes("management/options/", PartKind::Options),
    writes("management/excluded/", PartKind::Absent),
    writes("management/failed/", PartKind::Absent),
    writes("management/excluded_locality/", PartKind::Absent),
    writes("management/failed_locality/", PartKind::Absent),
    reads("management/in_progress_exclusion/", PartKind::Absent),
    writes("management/db_locked", PartKind::Absent),
    writes("management/consistency_check_suspended", PartKind::Absent),
    writes("management/min_required_commit_version", PartKind::MinCommitVersion),
    writes("management/version_epoch", PartKind::Absent),
    writes("management/maintenance/", PartKind::Absent),
    writes("management/data_distribution/", PartKind::Absent),
    writes("management/tenant/", PartKind::Absent),
];

/// The special key with this name.
pub fn key(name: &str) -> Vec<u8> {
    [PREFIX, name.as_bytes()].concat()
}

/// The keys that a name stands for.
fn keys(name: &str) -> Range<Vec<u8>> {
    let begin = key(name);
    let mut end = begin.clone();
    match end.pop() {
        Some(b'/') => end.push(b'/' + 1),
        last => end.extend(last.into_iter().chain([0])),
    }
    begin..end
}

impl Part {
    /// The keys of the part.
    pub fn keys(&self) -> Range<Vec<u8>> {
        keys(self.name)
    }

    /// The name of the part after `\xff\xff/`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The writable part that contains `key`.
    pub fn writable(key: &[u8]) -> Option<&'static Part> {
        PARTS.iter().find(|part| part.is_writable && contains(&part.keys(), key))
    }

    /// The writable part that contains the last key before `end`.
    pub fn writable_before(end: &[u8]) -> Option<&'static Part> {
        let holds = |keys: Range<Vec<u8>>| keys.start.as_slice() < end && end <= keys.end.as_slice();
        PARTS.iter().find(|part| part.is_writable && holds(part.keys()))
    }
}

fn contains(keys: &Range<Vec<u8>>, key: &[u8]) -> bool {
    keys.start.as_slice() <= key && key < keys.end.as_slice()
}

/// The keys that a read from `begin` to `end` may visit: those of its module, or all of them if it
/// is `relaxed`.
pub fn boundary(begin: &[u8], end: &[u8], relaxed: bool) -> Result<Range<Vec<u8>>> {
    if relaxed {
        return Ok(SPACE_BEGIN.to_vec()..SPACE_END.to_vec());
    }
    let modules: Vec<_> = MODULES.iter().map(|name| keys(name)).collect();
    let (stretch, outcome) = match modules.iter().find(|keys| contains(keys, begin)) {
        Some(module) => (module.clone(), Ok(module.clone())),
        None => (between(&modules, begin), Err(Code::SPECIAL_KEYS_NO_MODULE)),
    };
    let is_within = stretch.start.as_slice() <= end && end <= stretch.end.as_slice();
    if is_within { outcome } else { Err(Code::SPECIAL_KEYS_CROSS_MODULE) }
}

/// The keys around `key` that belong to no module.
fn between(modules: &[Range<Vec<u8>>], key: &[u8]) -> Range<Vec<u8>> {
    let before = modules.iter().map(|keys| &keys.end[..]).filter(|end| *end <= key).max();
    let after = modules.iter().map(|keys| &keys.start[..]).filter(|start| *start > key).min();
    before.unwrap_or(SPACE_BEGIN).to_vec()..after.unwrap_or(SPACE_END).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_lies_in_one_module_and_parts_do_not_overlap() {
        let mut parts: Vec<_> = PARTS.iter().map(Part::keys).collect();
        for part in &parts {
            assert!(boundary(&part.start, &part.end, false).is_ok(), "{part:?}");
        }
        parts.sort_by(|a, b| a.start.cmp(&b.start));
        assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn a_range_has_one_module() {
        let found = |begin: &str, end: &str| boundary(&key(begin), &key(end), false).map(drop);
        assert_eq!(found("metrics/", "metrics0"), Ok(()));
        assert_eq!(found("status/json", "status/json\0"), Ok(()));
        assert_eq!(found("status/json", "status/json\0\0"), Err(Code::SPECIAL_KEYS_CROSS_MODULE));
        assert_eq!(found("nothing", "nothing0"), Err(Code::SPECIAL_KEYS_NO_MODULE));
        assert_eq!(found("nothing", "tracing/\0"), Err(Code::SPECIAL_KEYS_CROSS_MODULE));
        assert!(boundary(SPACE_BEGIN, SPACE_END, true).is_ok());
    }
}
