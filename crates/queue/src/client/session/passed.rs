//! How far takes have passed over suspects.

use crate::model::id::ItemId;
use crate::model::suspicion::Suspicion;

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
