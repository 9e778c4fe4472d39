//! Keys that are parked because their next items are suspects.
//!
//! A fetch that may not have the next item of a key, because its process holds other suspects, parks the key. Only fetches that may have suspects look at such keys,
//! so the others are not kept up, and the slots that the keys were made active for go to other keys.
//!
//! Whatever gives such a key another first item makes it active again. The value of `listed` says where the key is parked: it is written
//! together with the row, and read with a conflict.

use std::collections::BTreeSet;

use foundationdb::Transaction;
use foundationdb::options::ConflictRangeType;
use futures::future::try_join_all;
use mutant::mutant;

use super::count_active;
use crate::keys::keyed::{Cause, KeyedSpace, decode_listed, encode_listed};
use crate::model::error::QueueError;
use crate::model::suspicion::Suspicion;
use crate::ops::keyed::parked::Parked;
use crate::run::range_read::RangeRead;

/// What a key with such a first item is parked for.
pub(crate) fn cause(suspicion: Suspicion) -> Option<Cause> {
    match suspicion {
        Suspicion::None => None,
        _ if mutant("suspects-stay-active") => None,
        Suspicion::Once => Some(Cause::Suspect),
        Suspicion::Often => Some(Cause::RepeatSuspect),
    }
}

/// Makes those of the keys active that are parked because of a suspect: their first items may be other ones by now. Conflicts with a fetch that parks one
/// of them meanwhile.
pub(crate) async fn unpark(
    keyed: &KeyedSpace,
    tr: &Transaction,
    keys: &BTreeSet<Vec<u8>>,
) -> Result<(), QueueError> {
    if keys.is_empty() {
        return Ok(());
    }
    let (begin, end) = keyed.parked_suspects();
    if RangeRead::of((&begin[..], &end[..])).first_row_key(tr).await?.is_none() {
        return Ok(tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?);
    }
    let parked = keys.iter().map(async |key| {
        let listed = tr.get(&keyed.listed_key(key), false).await?;
        let Some((cause, position)) = listed.and_then(|value| decode_listed(&value)) else { return Ok(None) };
        let row = keyed.parked_key(cause, &[], position, key);
        Ok::<_, QueueError>(Some(Parked { cause, row, position, key: key.clone() }))
    });
    let parked: Vec<_> = try_join_all(parked).await?.into_iter().flatten().collect();
    parked.iter().for_each(|parked| parked.unpark(keyed, tr));
    count_active(keyed, tr, parked.len());
    Ok(())
}

/// For which cause a key is parked, if that is because of a suspect. Read without a conflict.
pub(crate) async fn cause_of(
    keyed: &KeyedSpace,
    tr: &Transaction,
    key: &[u8],
) -> Result<Option<Cause>, QueueError> {
    let listed = tr.get(&keyed.listed_key(key), true).await?;
    Ok(listed.and_then(|value| decode_listed(&value)).map(|(cause, _)| cause))
}

/// Parks a key. The caller has seen to the conflicts.
pub(crate) fn park(keyed: &KeyedSpace, tr: &Transaction, cause: Cause, position: u64, key: &[u8]) {
    tr.set(&keyed.parked_key(cause, &[], position, key), &[]);
    tr.set(&keyed.listed_key(key), &encode_listed(cause, position));
}

/// The first parked keys, up to `most` for each cause, whose items a fetch may have. Read without a conflict.
pub(crate) async fn first(
    keyed: &KeyedSpace,
    tr: &Transaction,
    allows: Suspicion,
    most: usize,
) -> Result<Vec<Parked>, QueueError> {
    let (begin, end) = match allows {
        Suspicion::None => return Ok(Vec::new()),
        Suspicion::Once => keyed.parked_for(Cause::Suspect),
        Suspicion::Often => keyed.parked_suspects(),
    };
    let page = RangeRead::of((begin, end)).limit(most).page(tr).await?;
    let decode = |row: &[u8]| Parked::decode(keyed, row).map(|(_, parked)| parked);
    let mut first: Vec<_> = page.iter().filter_map(|row| decode(row.key())).collect();
    if let Some(next) = page.next().filter(|_| allows == Suspicion::Often) {
        // Items that crashed once may fill the page, and hide items that crashed more often.
        let (begin, end) = keyed.parked_for(Cause::RepeatSuspect);
        let page = RangeRead::of((next.max(begin), end)).limit(most).page(tr).await?;
        first.extend(page.iter().filter_map(|row| decode(row.key())));
    }
    Ok(first)
}
