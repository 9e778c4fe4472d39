//! What people read of an item by its state: all texts of a state stand in its row.

use kvqueue_queue::{ItemChange, ItemId, ItemState};

use super::{
    Class, Refusal,
    object::{JsonObject, MOST},
    why::Why,
};
use crate::base::{json::time, text::one_line};

/// What a table shows of an item in a column.
type Cell = fn(&JsonObject) -> String;

/// The texts of a state.
pub(super) struct Texts {
    /// The columns of a table of such items, behind those of their ids and keys and before that of their payloads: each with its title and its cell.
    pub(super) columns: &'static [(&'static str, Cell)],
    /// Why such an item has not been handled yet.
    pub(super) why: fn(&Why) -> String,
    /// The code of the error if a change of such an item is refused.
    code: &'static str,
    /// Why it is refused, and what to do instead: for some changes, and in the last line for all others.
    refusals: &'static [(Option<Change>, &'static str, &'static str)],
}

const READY: Texts = Texts {
    columns: &[("pushed", |item| item.cell("enqueued_at")), ("attempt", |item| item.of_most("attempt"))],
    why: Why::ready,
    code: "ready",
    refusals: &[(None, "it is ready already", "there is nothing to do")],
};

const SCHEDULED: Texts = Texts {
    columns: &[("due", |item| item.cell("due")), ("pushed", |item| item.cell("enqueued_at"))],
    why: |why| format!("it was pushed for a later time: {}", why.due()),
    code: "waiting",
    refusals: &[(None, "it waits for its time", "reschedule it")],
};

const RETRYING: Texts = Texts {
    columns: &[
        ("due", |item| item.cell("due")),
        ("attempts", |item| item.of_most("attempts")),
        ("last reason", reason),
    ],
    why: |why| format!("it is retried{}: {}", why.after_attempts(), why.due()),
    ..SCHEDULED
};

const RUNNING: Texts = Texts {
    columns: &[
        ("attempt", |item| item.of_most("attempt")),
        ("worker", |item| item.holder().unwrap_or_default()),
        ("lease", JsonObject::lease),
    ],
    why: Why::running,
    code: "running",
    refusals: &[
        (
            Some(Change::Edit),
            "it is running: its worker has the payload already",
            "cancel it and push another item, or edit it when it waits for its next attempt",
        ),
        (
            Some(Change::Requeue),
            "it is running: a worker tries it now",
            "wait until its worker is done with it",
        ),
        (None, "it is running: a worker has it", "cancel it, or wait until its worker is done with it"),
    ],
};

const DEAD: Texts = Texts {
    columns: &[
        ("died", |item| item.cell("died_at")),
        ("attempts", |item| item.of_most("attempts")),
        ("reason", reason),
    ],
    why: |why| {
        let attempts = why.after_attempts();
        format!("it is a dead letter{attempts}, and is not tried again until it is requeued")
    },
    code: "dead",
    refusals: &[
        (
            Some(Change::Cancel),
            "it is a dead letter, which does not run any more",
            "purge it, to delete it for good",
        ),
        (None, "it is a dead letter", "requeue it first, which makes it ready"),
    ],
};

/// The texts of this state.
pub(super) const fn texts(state: ItemState) -> &'static Texts {
    match state {
        ItemState::Ready => &READY,
        ItemState::Scheduled => &SCHEDULED,
        ItemState::Retrying => &RETRYING,
        ItemState::Running => &RUNNING,
        ItemState::Dead => &DEAD,
    }
}

fn reason(item: &JsonObject) -> String {
    one_line(&item.cell("reason"), MOST)
}

/// The states of items that are cancelled all at once.
pub(crate) fn cancelled_at_once() -> impl Iterator<Item = ItemState> {
    ItemState::ALL.into_iter().filter(|state| *state != ItemState::Dead)
}

/// What can be done to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Cancel,
    Requeue,
    Reschedule,
    Edit,
    Purge,
    Delete,
    Move,
}

impl Change {
    /// The participle, as in "is not cancelled".
    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Requeue => "requeued",
            Self::Reschedule => "rescheduled",
            Self::Edit => "edited",
            Self::Purge => "purged",
            Self::Delete => "deleted",
            Self::Move => "moved",
        }
    }

    /// Why an item was not changed, and what to do.
    pub(super) fn refusal(self, id: &ItemId, change: &ItemChange) -> Refusal {
        let (code, why, fix) = match (change, self) {
            (ItemChange::Gone, Self::Purge) => {
                ("not_found", "there is no such dead letter", "`kvqueue item show` says where the item is")
            }
            (ItemChange::Gone, _) => {
                ("not_found", "there is no such item", "it has ended, or was never in this queue")
            }
            (ItemChange::UniqueTaken(by), _) => {
                let fix = "cancel that item, or wait until it has ended";
                return self.refused(id, "unique_taken", &format!("item {by} has its unique key"), fix);
            }
            (ItemChange::ExpiresFirst(at), _) => {
                let why = format!("it expires at {}, so that no attempt would begin", time(*at));
                return self.refused(id, "expires_first", &why, "choose an earlier time");
            }
            (ItemChange::Refused(state) | ItemChange::Done(state), _) => {
                let Texts { code, refusals, .. } = texts(*state);
                let mut of_it = refusals.iter().filter(|(of, ..)| of.is_none_or(|of| of == self));
                let (_, why, fix) = of_it.next().expect("the last line is for all others");
                (*code, *why, *fix)
            }
        };
        self.refused(id, code, why, fix)
    }

    fn refused(self, id: &ItemId, code: &'static str, why: &str, fix: &'static str) -> Refusal {
        let class = if code == "not_found" { Class::NotFound } else { Class::Conflict };
        let message = format!("{id} is not {}: {why}", self.done());
        Refusal { class, code, message, fix: fix.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_the_state_and_a_way_out() {
        let id: ItemId = "0".repeat(24).parse().unwrap();
        let changes = [Change::Cancel, Change::Requeue, Change::Reschedule, Change::Edit, Change::Purge];
        for change in changes.into_iter().chain([Change::Delete]) {
            let of_states = ItemState::ALL.map(ItemChange::Refused);
            for found in of_states.iter().chain([&ItemChange::Gone]) {
                let refusal = change.refusal(&id, found);
                assert!(!refusal.fix.is_empty() && refusal.message.contains(change.done()), "{refusal:?}");
                assert_eq!(refusal.class == Class::NotFound, *found == ItemChange::Gone);
            }
        }
    }
}
