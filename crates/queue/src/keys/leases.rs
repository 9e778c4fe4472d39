//! (q, "lease", session, number): the header of a lease on a batch of items; (q, "held", session, number, i): its body.
//!
//! A take writes both; the body never changes. Its holder rewrites the header to extend it or to mark items as acknowledged, and clears
//! both with the last item; a sweeper does, once the deadline is past. So extending costs the same whatever the batch holds.
//!
//! Header: format, which also tells whether the one it was written for has yet to take it up and whether the lease has a record of progress, deadline, length, number of items,
//! number of pieces, a bit for each item (set: acknowledged), and what a search for an item needs: the least and the greatest id of its items, and of a lease of few items a fingerprint of
//! each. A body that is no longer than that stands there itself, and then there are no pieces. If items have
//! joined batches while they were running, a byte of flags and [these](crate::keys::joined) stand before that.
//!
//! Whatever looks for a running item reads all headers. So they have to be short.

use std::collections::BTreeSet;

use bytes::Bytes;
use twox_hash::xxhash3_128::Hasher;

use crate::keys::joined::Joined;
use crate::keys::range;
use crate::model::element::{UUID, append_number, append_uuid, split_number};
use crate::model::id::ItemId;
use crate::model::lease_id::LeaseId;
use crate::model::session_id::SessionId;
use mutant::{bound, mutant};

/// Second element of a header's key.
pub(crate) const LEASE: &[u8] = b"lease";

/// Second element of the key of a piece of a body.
pub(crate) const HELD: &[u8] = b"held";

/// The first byte of a header.
const FORMAT: u8 = 1;

/// The same of a lease that was written for another session, which has not been heard of since.
const SERVED: u8 = 2;

/// The same of a lease that has a record of progress.
const PROGRESS: u8 = 3;

/// The same of a lease whose items have joined batches. Then flags say what the other formats do.
const JOINED: u8 = 4;

/// The flag of a header like one of the format [`SERVED`].
const IS_SERVED: u8 = 1;

/// The flag of a header like one of the format [`PROGRESS`].
const HAS_PROGRESS: u8 = 2;

/// The most bytes of a header that items join batches in: it has to fit into a value, whatever else is added.
pub(crate) const MAX_JOINED_HEADER: usize = 80_000;

/// How long a lease lasts that was written for another session, in versions, until that has taken it up: as long as any transaction.
pub(crate) const PICK_UP: u64 = 5_000_000;

const FIXED: usize = 1 + 8 + 8 + 4 + 4;

/// A body up to this length stands in the header, so that a lease of one small item has no row besides. Ten thousand such headers can be searched in one transaction. Earlier
/// versions put bodies up to 4,096 bytes there.
fn max_inline() -> usize {
    bound("lease-inline-bytes", 512)
}

/// A lease up to this number of items has a fingerprint of each in its header.
const MAX_FINGERPRINTS: usize = 128;

/// The length of a piece.
pub(crate) fn piece_bytes() -> usize {
    bound("lease-piece-bytes", 90_000)
}

/// The header of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// Whether it was written by who served another's request, and that one has not taken it up. Then nobody has begun with its items.
    pub(crate) served: bool,
    /// Whether there is a record of the items' progress. The holder has then taken the lease up.
    pub(crate) progress: bool,
    /// The database version after which a sweeper may take the lease away.
    pub(crate) deadline: u64,
    /// How far the deadline is set ahead, in versions.
    pub(crate) length: u64,
    pub(crate) acknowledged: Acknowledged,
    /// The batches that its items have joined.
    pub(crate) joined: Joined,
    /// In how many pieces the body is stored.
    pub(crate) pieces: u32,
    /// The body, if there are no pieces; otherwise the least and the greatest id of its items, and perhaps fingerprints, so that a search for an item does not read the pieces.
    pub(crate) rest: Bytes,
}

/// Which items of a lease are acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    count: usize,
    bits: Vec<u8>,
}

/// One item in a lease's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) id: ItemId,
    /// Its side record, encoded, as it was when the item was ready; empty for none.
    pub(crate) meta: Bytes,
    /// Its value as it was stored.
    pub(crate) value: Bytes,
}

impl Acknowledged {
    pub(crate) fn none(count: usize) -> Acknowledged {
        Acknowledged { count, bits: vec![0; count.div_ceil(8)] }
    }

    /// Whether all items are marked here that the other has marked.
    pub(crate) fn covers(&self, other: &Acknowledged) -> bool {
        let ours = self.bits.iter().copied().chain(std::iter::repeat(0));
        other.bits.iter().zip(ours).all(|(theirs, ours)| theirs & !ours == 0)
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.bits.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }

    /// Whether the lease has an item of this index that is not acknowledged.
    pub(crate) fn is_open(&self, index: usize) -> bool {
        index < self.count && !self.contains(index)
    }

    /// Marks an item of the lease as acknowledged.
    pub(crate) fn insert(&mut self, index: usize) {
        debug_assert!(index < self.count);
        self.bits[index / 8] |= 1 << (index % 8);
    }

    /// Marks all items as acknowledged.
    pub(crate) fn fill(&mut self) {
        (0..self.count).for_each(|index| self.insert(index));
    }

    /// The items that are not acknowledged.
    pub(crate) fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.count).filter(|index| !self.contains(*index))
    }

    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.bits.iter().all(|byte| *byte == 0)
    }

    /// How many items the lease had.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Header {
    /// A new lease's header and its pieces.
    pub(crate) fn new(deadline: u64, length: u64, items: &[Held]) -> (Header, Vec<Bytes>) {
        let body = Bytes::from(encode_body(items));
        let mut header = Header {
            served: false,
            progress: false,
            deadline,
            length,
            acknowledged: Acknowledged::none(items.len()),
            joined: Joined::default(),
            pieces: 0,
            rest: Bytes::new(),
        };
        if body.len() <= max_inline() {
            header.rest = body;
            return (header, Vec::new());
        }
        header.rest = encode_search(items).into();
        let pieces: Vec<Bytes> = (0..body.len())
            .step_by(piece_bytes())
            .map(|at| body.slice(at..body.len().min(at + piece_bytes())))
            .collect();
        header.pieces = u32::try_from(pieces.len()).expect("a body is bounded far below 2^32 bytes");
        (header, pieces)
    }

    /// The body, if there are no pieces.
    pub(crate) fn inline(&self) -> Option<&Bytes> {
        Some(&self.rest).filter(|_| self.pieces == 0)
    }

    /// Whether one of these items may be among those of the lease that are not acknowledged: if not, its pieces need not be read.
    pub(crate) fn may_have(&self, ids: &BTreeSet<&ItemId>) -> bool {
        let search = if self.pieces > 0 { split_search(&self.rest) } else { None };
        let Some((least, greatest, fingerprints)) = search else { return true };
        let mut between = match least <= greatest {
            true => ids.range::<&ItemId, _>(&least..=&greatest),
            false => return true,
        };
        if fingerprints.len() != 2 * self.acknowledged.count || mutant("fingerprints-are-ignored") {
            return between.next().is_some();
        }
        let has = |id: &&ItemId| {
            let wanted = fingerprint(id);
            self.acknowledged.open().any(|index| fingerprints[2 * index..][..2] == wanted)
        };
        between.any(has)
    }

    /// How far ahead its deadline was set.
    pub(crate) fn ahead(&self) -> u64 {
        if self.served { PICK_UP } else { self.length }
    }

    /// The version that its last change has read: the deadline is reckoned from there.
    pub(crate) fn set_at(&self) -> u64 {
        self.deadline.saturating_sub(self.ahead())
    }

    /// Whether its deadline says that it has run out. That its holder has lost it only a sweeper's
    /// [history](crate::VersionHistory) can say.
    ///
    /// A deadline that is further ahead than was set was set in another life of the database, before versions went back.
    pub(crate) fn has_run_out(&self, version: u64) -> bool {
        self.deadline < version || self.set_at() > version
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.acknowledged.count).expect("a take is bounded far below 2^32 items");
        let mut out = Vec::with_capacity(FIXED + self.acknowledged.bits.len() + self.rest.len());
        out.push(match (self.served, self.progress) {
            _ if !self.joined.is_empty() => JOINED,
            (true, _) => SERVED,
            (false, true) => PROGRESS,
            (false, false) => FORMAT,
        });
        out.extend_from_slice(&self.deadline.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&self.pieces.to_le_bytes());
        out.extend_from_slice(&self.acknowledged.bits);
        if !self.joined.is_empty() {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            out.push(flag(self.served, IS_SERVED) | flag(self.progress, HAS_PROGRESS));
            self.joined.encode(&mut out);
        }
        out.extend_from_slice(&self.rest);
        out
    }

    /// Reads a header; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<Header> {
        let (&format @ (FORMAT | SERVED | PROGRESS | JOINED), rest) = value.split_first()? else {
            return None;
        };
        let (deadline, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (pieces, rest) = rest.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (bits, rest) = rest.split_at_checked(count.div_ceil(8))?;
        let (flags, joined, rest) = match format {
            JOINED => {
                let (flags, rest) = rest.split_first()?;
                let (joined, rest) = Joined::split(rest)?;
                (*flags, joined, rest)
            }
            _ => (0, Joined::default(), rest),
        };
        Some(Header {
            served: format == SERVED || flags & IS_SERVED != 0,
            progress: format == PROGRESS || flags & HAS_PROGRESS != 0,
            joined,
            deadline: u64::from_le_bytes(*deadline),
            length: u64::from_le_bytes(*length),
            acknowledged: Acknowledged { count, bits: bits.to_vec() },
            pieces: u32::from_le_bytes(*pieces),
            rest: Bytes::copy_from_slice(rest),
        })
    }
}

/// The part of a lease's keys behind (q, "lease") and (q, "held").
fn suffix(id: LeaseId) -> Vec<u8> {
    let mut suffix = Vec::with_capacity(1 + 16 + 9);
    append_uuid(&mut suffix, id.session.0);
    append_number(&mut suffix, id.number);
    suffix
}

/// The key of a header; `subspace` is the packed (q, "lease").
pub(crate) fn key(subspace: &[u8], id: LeaseId) -> Vec<u8> {
    [subspace, &suffix(id)].concat()
}

/// Which lease a header's key names; `None` if it is of another layout.
pub(crate) fn decode_key(subspace: &[u8], key: &[u8]) -> Option<LeaseId> {
    let (&UUID, rest) = key.strip_prefix(subspace)?.split_first()? else { return None };
    let (session, rest) = rest.split_first_chunk::<16>()?;
    let (number, []) = split_number(rest)? else { return None };
    Some(LeaseId { session: SessionId(*session), number })
}

/// The key of a piece; `subspace` is the packed (q, "held").
pub(crate) fn piece_key(subspace: &[u8], id: LeaseId, piece: u64) -> Vec<u8> {
    let mut piece_key = key(subspace, id);
    append_number(&mut piece_key, piece);
    piece_key
}

/// Which lease a piece is of, and its number; `None` if its key is of another layout.
pub(crate) fn decode_piece_key(subspace: &[u8], key: &[u8]) -> Option<(LeaseId, u64)> {
    let (&UUID, rest) = key.strip_prefix(subspace)?.split_first()? else { return None };
    let (session, rest) = rest.split_first_chunk::<16>()?;
    let (number, rest) = split_number(rest)?;
    let (piece, []) = split_number(rest)? else { return None };
    Some((LeaseId { session: SessionId(*session), number }, piece))
}

/// All pieces of a lease, as a range.
pub(crate) fn piece_range(subspace: &[u8], id: LeaseId) -> (Vec<u8>, Vec<u8>) {
    range(&key(subspace, id))
}

/// What a header has for a search: the least and the greatest id of a lease's items, which most leases have in this order, and fingerprints.
fn encode_search(items: &[Held]) -> Vec<u8> {
    let ids = || items.iter().map(|item| &item.id);
    let (least, greatest) =
        if ids().is_sorted() { (ids().next(), ids().next_back()) } else { (ids().min(), ids().max()) };
    let mut out = Vec::new();
    for id in [least, greatest].into_iter().flatten() {
        put_part(&mut out, id.as_bytes());
    }
    if items.len() <= MAX_FINGERPRINTS {
        ids().for_each(|id| out.extend_from_slice(&fingerprint(id)));
    }
    out
}

/// The ids of one lease may span those of all others, as in a keyed queue. By this one in 65,536 other items is taken for the one that is looked for.
fn fingerprint(id: &ItemId) -> [u8; 2] {
    let [low, high, ..] = Hasher::oneshot(id.as_bytes()).to_le_bytes();
    [low, high]
}

/// The least and the greatest id, and the fingerprints, which earlier versions did not write. `None` if there are no two ids.
fn split_search(value: &Bytes) -> Option<(ItemId, ItemId, Bytes)> {
    let mut rest = value.clone();
    let (least, greatest) = (split_part(&mut rest)?, split_part(&mut rest)?);
    Some((ItemId::new(least), ItemId::new(greatest), rest))
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    let len = u32::try_from(part.len()).expect("values are bounded far below 2^32 bytes");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(part);
}

fn encode_body(items: &[Held]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        for part in [item.id.as_bytes(), &item.meta, &item.value] {
            put_part(&mut out, part);
        }
    }
    out
}

/// Reads a body; `None` if it is of another layout.
pub(crate) fn decode_body(mut body: Bytes) -> Option<Vec<Held>> {
    let mut items = Vec::new();
    while !body.is_empty() {
        let id = ItemId::new(split_part(&mut body)?);
        items.push(Held { id, meta: split_part(&mut body)?, value: split_part(&mut body)? });
    }
    Some(items)
}

fn split_part(body: &mut Bytes) -> Option<Bytes> {
    let len = u32::from_le_bytes(*body.first_chunk::<4>()?) as usize;
    if body.len() < 4 + len {
        return None;
    }
    let part = body.split_to(4 + len).slice(4..);
    Some(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::item_batch::BatchId;

    prop_compose! {
        fn held()(id: Vec<u8>, meta: Vec<u8>, value in prop::collection::vec(any::<u8>(), 0..3_000)) -> Held {
            Held { id: ItemId::new(id.into()), meta: meta.into(), value: value.into() }
        }
    }

    #[test]
    fn a_lease_id_has_one_text_form() {
        let id = LeaseId { session: SessionId([0xab; 16]), number: 12 };
        assert_eq!(id.to_string(), format!("{}-12", "ab".repeat(16)));
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "-1", "ab-1", &format!("{}-1", "AB".repeat(16)), &format!("{}-01", "ab".repeat(16))]
        {
            assert!(wrong.parse::<LeaseId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_lease_expires_after_its_deadline_or_when_versions_went_back() {
        let header = |deadline, length| Header::new(deadline, length, &[]).0;
        assert!(!header(100, 30).has_run_out(100));
        assert!(header(100, 30).has_run_out(101));
        assert!(!header(100, 30).has_run_out(70));
        assert!(header(100, 30).has_run_out(69));
        // One that was served is set ahead by the time for picking it up, whatever its length.
        let served = Header { served: true, ..header(PICK_UP + 10, 30) };
        assert!(!served.has_run_out(10) && !served.has_run_out(PICK_UP + 10));
        assert!(served.has_run_out(9) && served.has_run_out(PICK_UP + 11));
    }

    proptest! {
        #[test]
        fn leases_round_trip(
            deadline: u64,
            length: u64,
            items in prop::collection::vec(held(), 1..20),
            acknowledged in prop::collection::vec(0..20_usize, 0..10),
            (served, progress) in any::<(bool, bool)>(),
            joined in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 1..=255), any::<[u8; 16]>()), 0..3),
        ) {
            let (mut header, pieces) = Header::new(deadline, length, &items);
            header.served = served;
            // Only one that was taken up has a record of progress.
            header.progress = progress && !served;
            joined.iter().for_each(|(index, home, unique)| {
                header.joined.insert(*index, &BatchId::with_unique(home, *unique));
            });
            prop_assert_eq!(header.pieces as usize, pieces.len());
            for index in acknowledged.into_iter().filter(|index| *index < items.len()) {
                header.acknowledged.insert(index);
                prop_assert!(header.acknowledged.contains(index));
            }
            let open = header.acknowledged.open().count();
            let read = Header::decode(&header.encode()).expect("it is a header");
            prop_assert_eq!(&read, &header);
            prop_assert_eq!(read.acknowledged.open().count(), open);
            let body = read.inline().map_or_else(|| pieces.concat(), |inline| inline.to_vec());
            if !pieces.is_empty() {
                let ids: BTreeSet<&ItemId> = items.iter().map(|item| &item.id).collect();
                let may_have = |header: &Header, id| header.may_have(&BTreeSet::from([id]));
                prop_assert!(read.acknowledged.open().all(|index| may_have(&read, &items[index].id)));
                let (least, greatest, fingerprints) = split_search(&read.rest).expect("it has a span");
                prop_assert_eq!((Some(&&least), Some(&&greatest)), (ids.first(), ids.last()));
                prop_assert_eq!(fingerprints.len(), 2 * items.len());
                // An earlier version wrote no fingerprints.
                let mut earlier = read.clone();
                earlier.rest.truncate(read.rest.len() - fingerprints.len());
                prop_assert_eq!(Header::decode(&earlier.encode()), Some(earlier.clone()));
                prop_assert!(ids.iter().all(|id| may_have(&earlier, id)));
                let behind = ItemId::new([greatest.as_bytes(), &[0]].concat().into());
                prop_assert!(!read.may_have(&BTreeSet::from([&behind])) && !read.may_have(&BTreeSet::new()));
            }
            prop_assert!(pieces.iter().all(|piece| piece.len() <= piece_bytes()));
            prop_assert_eq!(decode_body(body.into()), Some(items));
        }

        #[test]
        fn keys_round_trip(session: [u8; 16], number: u64, subspace: Vec<u8>) {
            let id = LeaseId { session: SessionId(session), number };
            prop_assert_eq!(decode_key(&subspace, &key(&subspace, id)), Some(id));
            let (begin, end) = piece_range(&subspace, id);
            let piece = piece_key(&subspace, id, 3);
            prop_assert!(begin <= piece && piece < end);
            prop_assert_eq!(decode_piece_key(&subspace, &piece), Some((id, 3)));
            // The pieces of another lease lie outside.
            let next = piece_key(&subspace, LeaseId { number: number ^ 1, ..id }, 3);
            prop_assert!(next < begin || end <= next);
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = Header::decode(&value);
            let _ = (decode_key(&[], &value), decode_piece_key(&[], &value));
            let _ = decode_body(value.into());
        }
    }
}
