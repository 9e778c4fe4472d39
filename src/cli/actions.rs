//! Which commands write a record to the audit trail, and of which action.

use super::{Command, globals::Globals};
use crate::audit::Action;

impl Command {
    /// The action of this command's record. Commands that change a queue or a token write an audit record; push, pop and workers do not.
    ///
    /// Every command is listed here, so that a new one cannot be forgotten.
    fn audited(&self) -> Option<Action> {
        match self {
            Self::Recount(args) => args.audited(),
            Self::Import(_) => Some(Action::QUEUE_IMPORT),
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
