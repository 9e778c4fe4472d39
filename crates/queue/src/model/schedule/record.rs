//! What became of occurrences.

use std::time::SystemTime;

use crate::model::id::ItemId;

/// What became of one occurrence, or of several that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OccurrenceRecord {
    /// The number of the record, from 0; they count up.
    pub number: u64,
    /// When it was recorded, by the clock of the process that did so.
    pub at: SystemTime,
    /// The first nominal time.
    pub from: SystemTime,
    /// The last nominal time; the same for a single occurrence.
    pub to: SystemTime,
    /// How many occurrences there are between the two, both included.
    pub count: u64,
    /// `false`: there may be more of them.
    pub is_exact: bool,
    /// What became of them.
    pub outcome: Outcome,
}

/// What became of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was pushed.
    Fired {
        /// The item; `None` in what a sweep returns: the database gives the id when the sweep commits.
        id: Option<ItemId>,
        /// The number of the schedule's item, from 1.
        occurrence: u64,
    },
    /// It was pushed because somebody asked for it; its nominal time is that of the request.
    FiredByHand {
        /// The item; `None` as in `Fired`.
        id: Option<ItemId>,
        /// The number of the schedule's item, from 1.
        occurrence: u64,
    },
    /// It was not pushed although it was due.
    Skipped(SkipReason),
    /// It was not fired in time, and not later either.
    Missed(MissReason),
    /// An outcome that a later version has recorded, by its code.
    Unknown(u8),
}

impl Outcome {
    /// The item, if one was pushed and its id is known.
    pub fn id(&self) -> Option<&ItemId> {
        match self {
            Outcome::Fired { id, .. } | Outcome::FiredByHand { id, .. } => id.as_ref(),
            Outcome::Skipped(_) | Outcome::Missed(_) | Outcome::Unknown(_) => None,
        }
    }

    /// The same without the id: what is known before the commit.
    pub(crate) fn without_id(mut self) -> Outcome {
        if let Outcome::Fired { id, .. } | Outcome::FiredByHand { id, .. } = &mut self {
            *id = None;
        }
        self
    }
}

/// Why an occurrence was not pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// The last item had not ended.
    Overlap,
    /// The schedule was paused.
    Paused,
    /// The calendar was changed before the occurrence fired.
    Redefined,
    /// The schedule was restarted before the occurrence fired.
    Restarted,
}

/// Why a missed occurrence was not fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MissReason {
    /// The policy is not to fire it.
    Policy,
    /// It was older than the window.
    Window,
    /// More recent ones were as many as the maximum.
    Maximum,
}
