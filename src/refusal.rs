//! Why an item cannot be changed, and what to do instead, for the command line and HTTP.

use kvqueue_queue::{ItemChange, ItemState};

use crate::json::time;

/// What was to be done to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Cancel,
    Reschedule,
    Retry,
    EditPayload,
}

/// Why it was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code in answers over HTTP.
    pub(crate) code: &'static str,
    pub(crate) why: String,
    /// What to do instead.
    pub(crate) fix: &'static str,
}

impl Operation {
    /// The participle, as in "ID is not cancelled".
    pub(crate) fn past(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Reschedule => "rescheduled",
            Self::Retry => "retried",
            Self::EditPayload => "edited",
        }
    }

    /// The state that the item had, or why it was not changed.
    pub(crate) fn result(self, change: &ItemChange) -> Result<ItemState, Refusal> {
        let (code, why, fix) = match (change, self) {
            (ItemChange::Done(before), _) => return Ok(*before),
            (ItemChange::Gone, _) => {
                ("not_found", "there is no such item", "it has ended, or was never in this queue")
            }
            (ItemChange::UniqueTaken(by), _) => {
                return Err(Refusal {
                    code: "unique_taken",
                    why: format!("item {by} has its unique key"),
                    fix: "cancel that item, or wait until it has ended",
                });
            }
            (ItemChange::ExpiresFirst(at), _) => {
                return Err(Refusal {
                    code: "expires_first",
                    why: format!("it expires at {}, so that no attempt would begin", time(*at)),
                    fix: "choose an earlier time",
                });
            }
            (ItemChange::Refused(ItemState::Dead), Self::Cancel) => (
                "dead",
                "it is a dead letter, which does not run any more",
                "purge it, to delete it for good",
            ),
            (ItemChange::Refused(ItemState::Dead), _) => {
                ("dead", "it is a dead letter", "retry it first, which makes it ready")
            }
            (ItemChange::Refused(ItemState::Running), Self::EditPayload) => (
                "running",
                "it is running: its worker has the payload already",
                "cancel it and push another item, or edit it when it waits for its next attempt",
            ),
            (ItemChange::Refused(ItemState::Running), Self::Retry) => {
                ("running", "it is running: a worker tries it now", "wait until its worker is done with it")
            }
            (ItemChange::Refused(ItemState::Running), _) => (
                "running",
                "it is running: a worker has it",
                "cancel it, or wait until its worker is done with it",
            ),
            (ItemChange::Refused(ItemState::Ready), _) => {
                ("ready", "it is ready already", "there is nothing to do")
            }
            (ItemChange::Refused(ItemState::Scheduled | ItemState::Retrying), _) => {
                ("waiting", "it waits for its time", "reschedule it")
            }
        };
        Err(Refusal { code, why: why.to_owned(), fix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_the_state_and_a_way_out() {
        let operations = [Operation::Cancel, Operation::Reschedule, Operation::Retry, Operation::EditPayload];
        for operation in operations {
            for state in ItemState::ALL {
                assert_eq!(operation.result(&ItemChange::Done(state)), Ok(state));
                let refusal = operation.result(&ItemChange::Refused(state)).unwrap_err();
                assert!(!refusal.fix.is_empty() && !refusal.why.is_empty(), "{operation:?}, {state}");
            }
            assert_eq!(operation.result(&ItemChange::Gone).unwrap_err().code, "not_found");
        }
    }
}
