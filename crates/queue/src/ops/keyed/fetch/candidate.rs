//! A key that a fetch looks at.

use foundationdb::Transaction;

use crate::keys::keyed::{Cause, KeyedSpace};
use crate::model::id::ItemId;
use crate::model::limits::{Limits, RuleBook};
use crate::model::suspicion::Suspicion;
use crate::ops::keyed::parked::Parked;
use crate::ops::keyed::{activate, holds, suspects};
use crate::ops::scan::Row;

/// The place of a key that a fetch looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Active,
    /// It waits for the timer of a scope, which is due.
    Timed(Vec<u8>),
    /// It waits for a fetch that may have suspects, as this one may.
    Suspect(Cause),
}

/// A key that a fetch looks at.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) key: Vec<u8>,
    pub(super) limits: Limits,
    pub(super) place: Place,
    /// The row of its place.
    pub(super) row: Vec<u8>,
    pub(super) position: u64,
    /// How many items it is to be served.
    pub(super) quota: usize,
    pub(super) rows: Vec<Row>,
    /// Whether it has no items but these, and leaves the index.
    pub(super) is_over: bool,
    /// Its next item, if that is refused: it may have killed a worker, or others of the fetch may have.
    pub(super) refused: Option<(Suspicion, ItemId)>,
    /// Whether it stays in the index though it may have no items but these.
    pub(super) keeps_place: bool,
    /// The scope that its next item waits for.
    pub(super) blocked: Option<(Cause, Vec<u8>)>,
    /// The row of its first hold. A key with holds is not served.
    pub(super) hold: Option<Vec<u8>>,
}

impl Candidate {
    pub(super) fn new(
        book: &RuleBook,
        (place, row): (Place, Vec<u8>),
        position: u64,
        key: Vec<u8>,
    ) -> Candidate {
        let limits = book.limits(&key);
        let (quota, rows, refused, blocked, hold) = (0, Vec::new(), None, None, None);
        let (is_over, keeps_place) = (false, false);
        Candidate {
            key,
            limits,
            place,
            row,
            position,
            quota,
            rows,
            is_over,
            refused,
            keeps_place,
            blocked,
            hold,
        }
    }

    pub(super) fn parked(
        book: &RuleBook,
        place: Place,
        Parked { row, position, key, .. }: Parked,
    ) -> Candidate {
        Candidate::new(book, (place, row), position, key)
    }

    /// The cause for which it is parked, if that is because of its next item, and that item.
    pub(super) fn suspect(&self) -> Option<(Cause, &ItemId)> {
        let (suspicion, item) = self.refused.as_ref().filter(|_| self.hold.is_none())?;
        Some((suspects::cause(*suspicion)?, item))
    }

    /// Whether a fetch that may not have its next item comes across it.
    pub(super) fn is_in_the_way(&self) -> bool {
        self.place == Place::Active && self.rows.is_empty() && self.suspect().is_some()
    }

    /// Whether it does not wait for a slot yet, and has none for its next item.
    pub(super) fn is_full(&self) -> bool {
        !matches!(self.place, Place::Timed(_))
            && self.rows.is_empty()
            && matches!(self.blocked, Some((Cause::Slot, _)))
    }

    /// Whether the key moves: it is served, or it cannot be.
    pub(super) fn moves(&self) -> bool {
        !self.rows.is_empty()
            || self.is_over
            || self.hold.is_some()
            || match (&self.place, &self.blocked) {
                (Place::Active, blocked) => blocked.is_some() || self.suspect().is_some(),
                // It does not stay first among the keys that wait for the timer.
                (Place::Timed(_), None) => self.quota > 0 || self.refused.is_some(),
                (Place::Timed(scope), Some(blocked)) => *blocked != (Cause::Rate, scope.clone()),
                (Place::Suspect(_), Some(_)) => true,
                (Place::Suspect(cause), None) => {
                    self.refused.is_some() && self.suspect().is_none_or(|(other, _)| other != *cause)
                }
            }
    }

    /// Gives the key its next place. The row of its last one is cleared.
    pub(super) fn write_place(&self, keyed: &KeyedSpace, tr: &Transaction) {
        let listed = keyed.listed_key(&self.key);
        if self.is_over {
            return tr.clear(&listed);
        }
        if let Some((cause, _)) = self.suspect() {
            return suspects::park(keyed, tr, cause, self.position, &self.key);
        }
        if matches!(self.place, Place::Suspect(_)) {
            tr.set(&listed, &[]);
        }
        match &self.blocked {
            _ if self.hold.is_some() => holds::put_key(keyed, tr, self.position, &self.key),
            Some((cause, scope)) => tr.set(&keyed.parked_key(*cause, scope, self.position, &self.key), &[]),
            None => activate(keyed, tr, self.position, &self.key),
        }
    }

    /// Whether idle consumers which may not have suspects have not seen it, and may have its next item, or wait for its timer.
    pub(super) fn is_back(&self) -> bool {
        matches!(self.place, Place::Suspect(_)) && !self.is_over && self.suspect().is_none()
    }
}
