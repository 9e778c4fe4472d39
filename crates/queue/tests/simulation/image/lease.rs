//! Leases, read by hand.

use std::collections::BTreeMap;

use kvqueue_queue::item_batch::BatchId;
use kvqueue_queue::{ItemId, LeaseId, Meta, Progress, SessionId, from_millis};

use super::element::Ids;
use super::{Want, element};

/// What a header says.
pub(super) struct Header {
    /// Written for another session, which has not been heard of since.
    pub(super) served: bool,
    /// Whether there is a record of progress.
    pub(super) has_progress: bool,
    pub(super) deadline: u64,
    pub(super) length: u64,
    /// For each item of the lease.
    pub(super) settled: Vec<bool>,
    /// What each item of the lease has joined since it was fetched.
    pub(super) joined: Vec<Vec<BatchId>>,
    /// The body, if it is not in pieces.
    pub(super) inline: Vec<u8>,
    /// Otherwise the least and the greatest id of its items, and a fingerprint of each.
    pub(super) search: Option<Search>,
}

/// The least and the greatest id of the items of a lease, and the fingerprint of each.
type Search = ([Vec<u8>; 2], Vec<[u8; 2]>);

impl Header {
    pub(super) fn decode(value: &[u8]) -> Option<Header> {
        let (&format @ 1..=4, rest) = value.split_first()? else { return None };
        let (deadline, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (pieces, rest) = rest.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (bits, mut rest) = rest.split_at_checked(count.div_ceil(8))?;
        let mut flags = [0, 1, 2, 0][usize::from(format) - 1];
        let mut joined = vec![Vec::new(); count];
        if format == 4 {
            let (&of_joined @ 0..=3, behind) = rest.split_first()? else { return None };
            flags = of_joined;
            rest = joins(&mut joined, behind)?;
        }
        let mut search = None;
        if *pieces != [0; 4] {
            let ids = [part(&mut rest)?.to_vec(), part(&mut rest)?.to_vec()];
            let (fingerprints, []) = rest.as_chunks() else { return None };
            search = Some((ids, fingerprints.to_vec()));
            rest = &[];
        }
        Some(Header {
            served: flags & 1 != 0,
            has_progress: flags & 2 != 0,
            deadline: u64::from_le_bytes(*deadline),
            length: u64::from_le_bytes(*length),
            settled: (0..count).map(|at| bits[at / 8] & (1 << (at % 8)) != 0).collect(),
            joined,
            inline: rest.to_vec(),
            search,
        })
    }
}

/// Reads which items have joined which batches, none of them twice; returns what follows.
fn joins<'v>(joined: &mut [Vec<BatchId>], value: &'v [u8]) -> Option<&'v [u8]> {
    let (number, mut rest) = value.split_first_chunk::<4>()?;
    // Without any, the header has another format.
    let 1.. = u32::from_le_bytes(*number) else { return None };
    for _ in 0..u32::from_le_bytes(*number) {
        let (index, behind) = rest.split_first_chunk::<4>()?;
        let (len, behind) = behind.split_first_chunk::<4>()?;
        let (batch, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let (unique, home) = batch.split_first_chunk()?;
        let (of_item, batch) =
            (joined.get_mut(u32::from_le_bytes(*index) as usize)?, BatchId::with_unique(home, *unique));
        (!of_item.contains(&batch)).then(|| of_item.push(batch))?;
        rest = behind;
    }
    Some(rest)
}

/// A request to be served.
pub(super) fn want(value: &[u8]) -> Option<Want> {
    let (&1, rest) = value.split_first()? else { return None };
    let (session, rest) = rest.split_first_chunk::<16>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (k, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (deadline, [0 | 1]) = rest.split_first_chunk::<8>()? else { return None };
    Some(Want {
        lease: LeaseId { session: SessionId(*session), number: u64::from_le_bytes(*number) },
        k: u32::from_le_bytes(*k) as usize,
        length: u64::from_le_bytes(*length),
        deadline: u64::from_le_bytes(*deadline),
    })
}

/// How far the items of a lease are, by their indexes.
pub(super) fn progress(mut value: &[u8]) -> Option<BTreeMap<usize, Progress>> {
    let mut items = BTreeMap::new();
    while let Some((&tag, rest)) = value.split_first() {
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let (index, content) = content.split_first_chunk::<4>()?;
        let (at, content) = content.split_first_chunk::<8>()?;
        let (percent, message) = content.split_first()?;
        let percent = Some(*percent).filter(|percent| *percent != 255);
        let message = str::from_utf8(message).ok()?;
        let progress = Progress::new(from_millis(u64::from_le_bytes(*at)), percent, message);
        (tag == 1 && items.insert(u32::from_le_bytes(*index) as usize, progress).is_none()).then_some(())?;
        value = rest;
    }
    Some(items)
}

/// The lease that a key names behind its second element.
pub(super) fn id(key: &[u8]) -> Option<LeaseId> {
    let (session, rest) = element::split_session(key)?;
    let (number, _) = element::split_number(rest)?;
    Some(LeaseId { session, number })
}

/// The items of a body: id, side record, value.
pub(super) fn body(ids: &mut Ids, mut body: &[u8]) -> Option<Vec<(ItemId, Meta, Vec<u8>)>> {
    let mut items = Vec::new();
    while !body.is_empty() {
        let id = ids.get(part(&mut body)?)?;
        items.push((id, super::side::decode(part(&mut body)?)?, part(&mut body)?.to_vec()));
    }
    Some(items)
}

fn part<'b>(body: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, rest) = body.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *body = rest;
    Some(part)
}
