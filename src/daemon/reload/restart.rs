//! Keys that take effect at a start only.

use super::diff::Key;
use crate::telemetry;

/// These keys, and all below them. A `*` stands for any part. What a queue's `kind` and `values` say is where its items are: consumers of before and
/// after would look in different places.
const AT_START: &[&[&str]] = &[
    &["database"],
    &["prefix"],
    &["http"],
    &["log", "format"],
    &["queues", "*", "kind"],
    &["queues", "*", "values"],
];

/// But for these, and all below them.
const AT_ONCE: &[&[&str]] = &[&["http", "read-only"], &["http", "require-token"], &["http", "origins"]];

/// A configuration that only a restart can put in force.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: changed, and read only when the daemon starts; restart it, or change that back")]
pub(in crate::daemon) struct NeedsRestart(String);

/// Whether a running daemon can take the changes of these keys up.
pub(super) fn check(changed: &[Key]) -> Result<(), NeedsRestart> {
    let is_among = |key: &Key, patterns: &[&[&str]]| patterns.iter().any(|pattern| is_below(key, pattern));
    let keys = changed.iter().filter(|key| is_among(key, AT_START) && !is_among(key, AT_ONCE));
    let keys: Vec<_> = keys.map(Key::to_string).collect();
    if keys.is_empty() { Ok(()) } else { Err(NeedsRestart(telemetry::listed(&keys))) }
}

fn is_below(key: &Key, pattern: &[&str]) -> bool {
    let mut parts = key.parts();
    pattern.iter().all(|wanted| parts.next().is_some_and(|part| *wanted == "*" || *wanted == part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_names_all_keys_that_need_a_restart() {
        let reference = include_str!("../../../docs/CONFIG.md");
        let line = reference.lines().find(|line| line.starts_with("| only at a start:")).unwrap();
        for pattern in AT_START {
            let key = pattern.join(".").replace('*', "NAME");
            assert!(
                line.contains(&format!("`{key}`")),
                "docs/CONFIG.md does not say that {key} is read at a start only"
            );
        }
    }
}
