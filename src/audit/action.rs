//! The actions that leave a record.

use std::fmt;

/// A change of a queue or of a daemon, other than pushing and working. It is defined where the change is, next to the route of its operation; here are those
/// of commands and of requests that are no operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    /// The code in records. It stays the same from version to version.
    code: &'static str,
    /// What is done, for `docs/security/audit.md`.
    #[cfg(test)]
    pub(crate) change: &'static str,
    /// The details of its records, for `docs/security/audit.md`.
    #[cfg(test)]
    pub(crate) details: &'static str,
}

impl Action {
    pub(crate) const QUEUE_RECOUNT: Self = Self::new("queue.recount", "correct a queue's counters", "");
    pub(crate) const QUEUE_IMPORT: Self =
        Self::new("queue.import", "add the items of an export", "`input`, `again`");
    pub(crate) const QUEUE_MIGRATE: Self = Self::new(
        "queue.migrate",
        "move queues to another database: a record in each of the two",
        "`from`, `to`, `queues`",
    );
    pub(crate) const SCHEDULE_PUT: Self = Self::new(
        "schedule.put",
        "make a schedule, or replace one",
        "`schedule`, `cron` and `zone` or `every`",
    );
    pub(crate) const DAEMON_RELOAD: Self =
        Self::new("daemon.reload", "reload a configuration, by `kvqueue reload` or HTTP", "`daemon`");
    /// Those of commands alone. One that is not here is not in the table of the document.
    #[cfg(test)]
    pub(crate) const OF_COMMANDS: [Self; 3] = [Self::QUEUE_RECOUNT, Self::QUEUE_IMPORT, Self::QUEUE_MIGRATE];
    /// For tests of records. The code is a pause's, since some of them show what is stored.
    #[cfg(test)]
    pub(crate) const OF_A_TEST: Self = Self::new("queue.pause", "", "");

    /// `change` and `details` are for the table in `docs/security/audit.md`, which a test writes.
    #[cfg_attr(not(test), expect(unused_variables, reason = "a test writes the document"))]
    pub(crate) const fn new(code: &'static str, change: &'static str, details: &'static str) -> Self {
        Self {
            code,
            #[cfg(test)]
            change,
            #[cfg(test)]
            details,
        }
    }

    /// The code in records.
    pub(crate) fn as_str(self) -> &'static str {
        self.code
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}
