//! Which special keys there are. A read stays within one module; a write goes to one part.

use std::ops::Range;

use crate::error::{Code, Result};

use super::{SPACE_BEGIN, SPACE_END};

/// What all names below follow.
const PREFIX: &[u8] = b"\xff\xff/";

/// Modules, by name: one that ends with a slash is all keys below it, another is one key.
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

/// What answers for a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ranges that made the last commit fail.
    ConflictingKeys,
    /// The transaction's read conflict ranges.
    ReadConflicts,
    /// Its write conflict ranges.
    WriteConflicts,
    /// Why its last special key operation failed.
    ErrorMessage,
    /// The status document.
    Status,
    /// What the client called the database.
    ClusterFilePath,
    /// How to find the database.
    ConnectionString,
    /// Which database it is.
    ClusterId,
    /// The coordinators, of which there is one.
    Coordinators,
    /// The same as a proposal.
    AutoCoordinators,
    /// The class of the one process.
    ProcessClass,
    /// Where that class comes from.
    ProcessClassSource,
    /// Options of management commands, kept for the transaction.
    Options,
    /// Ids for tracing.
    Tracing,
    /// From where versions are to go on.
    MinCommitVersion,
    /// Only clusters have this; reading it finds nothing.
    Absent,
    /// Reading it fails, as it does on a cluster that does not collect it.
    Failing,
}

/// A range of special keys that one thing answers for.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    /// What answers.
    pub kind: Kind,
    /// Can it be written?
    pub is_writable: bool,
}

const fn reads(name: &'static str, kind: Kind) -> Part {
    Part { name, kind, is_writable: false }
}

const fn writes(name: &'static str, kind: Kind) -> Part {
    Part { name, kind, is_writable: true }
}

/// All parts; they do not overlap.
pub const PARTS: &[Part] = &[
    reads("transaction/conflicting_keys/", Kind::ConflictingKeys),
    reads("transaction/read_conflict_range/", Kind::ReadConflicts),
    reads("transaction/write_conflict_range/", Kind::WriteConflicts),
    reads("error_message", Kind::ErrorMessage),
    reads("status/json", Kind::Status),
    reads("cluster_file_path", Kind::ClusterFilePath),
    reads("connection_string", Kind::ConnectionString),
    reads("cluster_id", Kind::ClusterId),
    reads("worker_interfaces/", Kind::Absent),
    reads("metrics/data_distribution_stats/", Kind::Absent),
    reads("metrics/health/", Kind::Absent),
    reads("actor_lineage/", Kind::Failing),
    writes("actor_profiler_conf/", Kind::Absent),
    writes("global_config/", Kind::Absent),
    writes("tracing/", Kind::Tracing),
    writes("configuration/coordinators/", Kind::Coordinators),
    writes("configuration/process/class_type/", Kind::ProcessClass),
    reads("configuration/process/class_source/", Kind::ProcessClassSource),
    reads("management/auto_coordinators", Kind::AutoCoordinators),
    writes("management/options/", Kind::Options),
    writes("management/excluded/", Kind::Absent),
    writes("management/failed/", Kind::Absent),
    writes("management/excluded_locality/", Kind::Absent),
    writes("management/failed_locality/", Kind::Absent),
    reads("management/in_progress_exclusion/", Kind::Absent),
    writes("management/db_locked", Kind::Absent),
    writes("management/consistency_check_suspended", Kind::Absent),
    writes("management/min_required_commit_version", Kind::MinCommitVersion),
    writes("management/version_epoch", Kind::Absent),
    writes("management/maintenance/", Kind::Absent),
    writes("management/data_distribution/", Kind::Absent),
    writes("management/tenant/", Kind::Absent),
];

/// The special key of a name.
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
    /// The part's keys.
    pub fn keys(&self) -> Range<Vec<u8>> {
        keys(self.name)
    }

    /// The part's name below `\xff\xff/`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The part that can be written at `key`.
    pub fn writable(key: &[u8]) -> Option<&'static Part> {
        PARTS.iter().find(|part| part.is_writable && contains(&part.keys(), key))
    }

    /// The part that can be written at the last key before `end`.
    pub fn writable_before(end: &[u8]) -> Option<&'static Part> {
        let holds = |keys: Range<Vec<u8>>| keys.start.as_slice() < end && end <= keys.end.as_slice();
        PARTS.iter().find(|part| part.is_writable && holds(part.keys()))
    }
}

fn contains(keys: &Range<Vec<u8>>, key: &[u8]) -> bool {
    keys.start.as_slice() <= key && key < keys.end.as_slice()
}

/// What a read from `begin` to `end` may look at: their module, or everything if it is `relaxed`.
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

/// The keys around `key` that no module has.
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
