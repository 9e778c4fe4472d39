//! A queue that nothing may move in, as during a migration. No command makes one.

use super::{Database, helper};

/// Freezes the queue `q`.
pub(crate) fn freeze(db: &Database) {
    assert!(helper(db, "support::freeze").output().unwrap().status.success());
}
