//! The actions that leave a record.

use std::fmt;

/// A change of a queue or of a daemon, other than pushing and working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing is fetched from a queue any more.
    QueuePause,
    /// A paused queue goes on.
    QueueResume,
    /// A rule of a keyed queue is set or removed.
    QueueLimits,
    /// A held key of a keyed queue goes on.
    QueueUnblock,
    /// A queue and its items are deleted.
    QueueDelete,
    /// All items of some states are made ready.
    QueueRequeue,
    /// All items that match are cancelled.
    QueueCancel,
    /// Items go to another queue.
    QueueMove,
    /// Counters are compared with the items, and corrected.
    QueueRecount,
    /// The items of an export are added.
    QueueImport,
    /// Queues are moved to another database.
    QueueMigrate,
    /// Items that are named are deleted.
    ItemDelete,
    /// Items that are named are made ready.
    ItemRequeue,
    /// Items that are named are cancelled.
    ItemCancel,
    /// An item gets another time.
    ItemReschedule,
    /// An item gets another payload.
    ItemEdit,
    /// Dead letters are deleted.
    DeadPurge,
    /// A schedule is made, or replaced.
    SchedulePut,
    /// A schedule is removed.
    ScheduleRemove,
    /// A schedule does not fire any more.
    SchedulePause,
    /// A paused schedule goes on.
    ScheduleResume,
    /// An item of a schedule is pushed out of turn.
    ScheduleFire,
    /// A batch is removed without a callback.
    BatchCancel,
    /// A daemon reloads its configuration.
    DaemonReload,
    /// An access token is made.
    TokenNew,
    /// An access token is revoked.
    TokenRevoke,
}

impl Action {
    /// Every action.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 26] = [
        Self::QueuePause,
        Self::QueueResume,
        Self::QueueLimits,
        Self::QueueUnblock,
        Self::QueueDelete,
        Self::QueueRequeue,
        Self::QueueCancel,
        Self::QueueMove,
        Self::QueueRecount,
        Self::QueueImport,
        Self::QueueMigrate,
        Self::ItemDelete,
        Self::ItemRequeue,
        Self::ItemCancel,
        Self::ItemReschedule,
        Self::ItemEdit,
        Self::DeadPurge,
        Self::SchedulePut,
        Self::ScheduleRemove,
        Self::SchedulePause,
        Self::ScheduleResume,
        Self::ScheduleFire,
        Self::BatchCancel,
        Self::DaemonReload,
        Self::TokenNew,
        Self::TokenRevoke,
    ];

    /// The code in records. It stays the same from version to version.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::QueuePause => "queue.pause",
            Self::QueueResume => "queue.resume",
            Self::QueueLimits => "queue.limits",
            Self::QueueUnblock => "queue.unblock",
            Self::QueueDelete => "queue.delete",
            Self::QueueRequeue => "queue.requeue",
            Self::QueueCancel => "queue.cancel",
            Self::QueueMove => "queue.move",
            Self::QueueRecount => "queue.recount",
            Self::QueueImport => "queue.import",
            Self::QueueMigrate => "queue.migrate",
            Self::ItemDelete => "item.delete",
            Self::ItemRequeue => "item.requeue",
            Self::ItemCancel => "item.cancel",
            Self::ItemReschedule => "item.reschedule",
            Self::ItemEdit => "item.edit",
            Self::DeadPurge => "dead.purge",
            Self::SchedulePut => "schedule.put",
            Self::ScheduleRemove => "schedule.remove",
            Self::SchedulePause => "schedule.pause",
            Self::ScheduleResume => "schedule.resume",
            Self::ScheduleFire => "schedule.fire",
            Self::BatchCancel => "batch.cancel",
            Self::DaemonReload => "daemon.reload",
            Self::TokenNew => "token.new",
            Self::TokenRevoke => "token.revoke",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_explains_every_action() {
        let manual = include_str!("../../docs/security/audit.md");
        for action in Action::ALL {
            assert!(
                manual.contains(&format!("| `{action}` |")),
                "docs/security/audit.md does not explain {action}"
            );
        }
    }
}
