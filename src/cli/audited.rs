//! Which commands write a record to the audit trail, and of which action.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{Command, globals::Globals};
use rustix::process::getuid;

use crate::{
    audit::{Action, Record, Who},
    users,
};

impl Command {
    /// The action of this command's record. Commands that change a queue or a token write an audit record; push, pop and workers do not.
    ///
    /// Every command is listed here, so that a new one cannot be forgotten.
    fn audited(&self) -> Option<Action> {
        match self {
            Self::Recount(args) => args.audited(),
            Self::Import(_) => Some(Action::QueueImport),
            Self::Migrate(args) => args.audited(),
            // Each operation says so in its route.
            Self::Pause(_) | Self::Resume(_) | Self::Limits(_) | Self::Token(_) => None,
            Self::Delete(_) | Self::Move(_) | Self::Requeue(_) | Self::Item(_) => None,
            Self::Dead(_) | Self::Batch(_) | Self::Schedule(_) => None,
            // They push and work.
            Self::Run(_) | Self::Push(_) | Self::Pop(_) => None,
            Self::Work(_) | Self::Lease(_) | Self::Extend(_) | Self::Ack(_) => None,
            // The daemon that they ask writes the record, if there is one.
            Self::Reload(_) | Self::Page(_) => None,
            // They read.
            Self::Peek(_)
            | Self::Why(_)
            | Self::Len(_)
            | Self::List(_)
            | Self::Export(_)
            | Self::History(_)
            | Self::Audit(_) => None,
            Self::Config(_) | Self::Status(_) | Self::Top(_) | Self::Doctor(_) | Self::Backup(_) => None,
            Self::Completions(_) | Self::Man(_) => None,
            // They have databases, or queues, of their own.
            Self::Init(_) | Self::Demo(_) | Self::Bench(_) => None,
        }
    }

    /// Notes the action for the record.
    pub(super) fn note_action(&self, globals: &mut Globals) {
        globals.audited.action = self.audited();
    }
}

/// What is known of the record of the command that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Audited {
    action: Option<Action>,
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
