//! A lease of a fetch whose outcome is not known.

use crate::keys::leases::Held;
use crate::model::item::Item;
use crate::model::lease_id::LeaseId;

/// A lease of a fetch that may have committed.
#[derive(Debug)]
pub(super) struct Unsure {
    pub(super) id: LeaseId,
    pub(super) items: Vec<Item>,
    pub(super) held: Vec<Held>,
    /// The number of its attempt's first lease.
    pub(super) attempt: u64,
}
