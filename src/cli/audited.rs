//! The record of a command in the audit trail.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rustix::process::getuid;

use crate::{
    audit::{Action, Record, Who},
    base::users,
};

/// What is known of the record of the command that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Audited {
    pub(super) action: Option<Action>,
    /// Whether the command has made its record.
    is_made: Arc<AtomicBool>,
}

impl Audited {
    pub(super) fn of(action: Option<Action>) -> Self {
        Self { action, is_made: Arc::default() }
    }

    /// The record of this command, which the user who runs it makes.
    pub(super) fn record(&self) -> Record {
        let action =
            self.action.expect("`Command::audited` has the action of each command that asks for a record");
        self.is_made.store(true, Ordering::Relaxed);
        let uid = getuid().as_raw();
        Record::new(action, Who::Local { uid, name: users::name(uid) })
    }

    /// Fails a test whose command forgot its record.
    pub(super) fn check(&self, is_done: bool) {
        debug_assert!(
            !is_done || self.action.is_none() || self.is_made.load(Ordering::Relaxed),
            "{:?} has no record",
            self.action
        );
    }
}
