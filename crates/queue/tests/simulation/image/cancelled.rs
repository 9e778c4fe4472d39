//! Records of items that were cancelled on leases, read by hand.

use std::collections::BTreeMap;

use kvqueue_queue::ItemId;

use super::element::Ids;

/// The items of a lease that were cancelled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cancelled {
    /// Until this version the record is needed.
    pub(crate) until: u64,
    /// Their ids, by their indexes in the lease.
    pub(crate) items: BTreeMap<usize, ItemId>,
}

/// Reads a record.
pub(super) fn decode(ids: &mut Ids, value: &[u8]) -> Option<Cancelled> {
    let (&1, rest) = value.split_first()? else { return None };
    let (until, mut rest) = rest.split_first_chunk::<8>()?;
    let mut items = BTreeMap::new();
    while !rest.is_empty() {
        let (index, more) = rest.split_first_chunk::<4>()?;
        let (len, more) = more.split_first_chunk::<4>()?;
        let (id, more) = more.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        // None is there twice.
        let earlier = items.insert(u32::from_le_bytes(*index) as usize, ids.get(id)?);
        earlier.is_none().then_some(())?;
        rest = more;
    }
    Some(Cancelled { until: u64::from_le_bytes(*until), items })
}
