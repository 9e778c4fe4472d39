//! The list of all operations: routes and documents are made from it.

use super::{Visit, audit, batches, ended, items, letters, limits, look, pause, queues, schedules, tokens};

/// Visits every operation.
pub(crate) fn each(visit: &mut impl Visit) {
    queues::each(visit);
    ended::each(visit);
    look::each(visit);
    items::each(visit);
    letters::each(visit);
    pause::each(visit);
    limits::each(visit);
    batches::each(visit);
    schedules::each(visit);
    audit::each(visit);
    tokens::each(visit);
}
