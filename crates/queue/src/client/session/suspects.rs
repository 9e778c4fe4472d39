//! Passing over suspects that a take may not have, because its process holds other suspects.

use std::num::NonZeroUsize;

use foundationdb::Transaction;

use super::Session;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::place::Place;
use crate::model::suspicion::Suspicion;
use crate::ops::claim::passed_over;
use crate::ops::ready::{find, is_full};
use crate::ops::scan::Row;
use crate::run::version::now;

/// How many rows are read at once where there are only suspects.
pub(super) const PAGE: NonZeroUsize = NonZeroUsize::new(500).unwrap();

/// For how long, in versions, takes begin behind the suspects that were passed over: a second, and a millisecond for each of them. Until
/// then they do not see what becomes ready before that place. Afterwards they read the suspects again, which takes a small part
/// of that time.
const RELIED_ON: u64 = 1_000_000;

const FOR_EACH: u64 = 1_000;

/// How far takes have passed over suspects at the front.
#[derive(Debug)]
pub(super) struct Passed {
    /// The last of them.
    pub(super) last: ItemId,
    /// How many there were.
    pub(super) count: u64,
    /// The highest suspicion that was allowed.
    pub(super) allows: Suspicion,
    /// Since when, a version.
    pub(super) since: u64,
}

impl Session {
    /// How suspect an item may be that a take on a lease gets now. A take for good gets any: nothing is left that could crash again.
    pub(super) fn allows(&self, on_lease: bool) -> Suspicion {
        if on_lease { self.quarantine.allows(&self.queue.space().ready) } else { Suspicion::Often }
    }

    /// Where a take begins to read: behind the suspects that takes before it have passed over, if that was not long ago.
    pub(super) async fn beginning(
        &mut self,
        tr: &Transaction,
        place: Place,
        allows: Suspicion,
    ) -> Result<Place, QueueError> {
        let Some(passed) = self.passed.as_ref().filter(|_| place.is_front()) else { return Ok(place) };
        let age = now(tr).await?.checked_sub(passed.since);
        let relied_on = RELIED_ON.saturating_add(passed.count.saturating_mul(FOR_EACH));
        if age.is_none_or(|age| age > relied_on) {
            self.passed = None;
            return Ok(place);
        }
        if passed.allows < allows {
            // The next take may be allowed less again.
            return Ok(place);
        }
        Ok(Place { behind: Some(passed.last.clone()), skip: 0 })
    }

    /// Goes on behind the rows found at a place for as long as there are only suspects that the take may not have. Returns rows of which
    /// it gets some, or none.
    pub(super) async fn pass_over(
        &mut self,
        tr: &Transaction,
        k: NonZeroUsize,
        mut rows: Vec<Row>,
        at_front: bool,
        allows: impl Fn() -> Suspicion,
    ) -> Result<Vec<Row>, QueueError> {
        let space = self.queue.space().clone();
        // An urgent item comes in before the others of a priority queue, and is not to be overlooked.
        let remembers = at_front && !matches!(space.kind, Kind::Priority(..));
        let mut limit = k;
        loop {
            let count = passed_over(&space, &rows, &allows)?;
            let Some(last) = count.checked_sub(1).map(|at| rows[at].id.clone()) else { return Ok(rows) };
            if remembers {
                self.note_passed(last.clone(), count as u64, allows(), now(tr).await?);
            }
            if count < rows.len() {
                return Ok(rows);
            }
            if !is_full(&space, &rows, limit) {
                return Ok(Vec::new());
            }
            limit = k.max(PAGE);
            rows = find(&space, tr, limit, &Place { behind: Some(last), skip: 0 }).await?;
        }
    }

    fn note_passed(&mut self, last: ItemId, count: u64, allows: Suspicion, now: u64) {
        let (before, since) = match &self.passed {
            Some(passed) if passed.allows == allows => (passed.count, passed.since),
            _ => (0, now),
        };
        self.passed = Some(Passed { last, count: before + count, allows, since });
    }
}
