//! Choosing items of a keyed queue: from several keys, in the order of their positions. `write` then moves the items and their keys.

mod items;
mod write;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::{try_join, try_join_all};

use super::{holds, rules, step, virtual_time};
use crate::MAX_TAKE_BYTES;
use crate::error::QueueError;
use crate::keys::keyed::{KeyedSpace, scopes};
use crate::keys::{Space, after};
use crate::limits::RuleBook;
use crate::ops::claim;
use crate::ops::scan::{Row, decode_meta};
use crate::rng::Rng;
use crate::suspects::Suspicion;
use items::next_items;

/// How many keys a fetch looks at in one page, at least.
const MIN_WINDOW: usize = 16;
/// The most keys that one fetch looks at.
const MAX_KEYS: usize = 2_000;

/// What a fetch asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The most items.
    pub(crate) k: NonZeroUsize,
    /// Whether the items go to leases.
    pub(crate) on_lease: bool,
    /// The most items, if they are suspects.
    pub(crate) suspects: NonZeroUsize,
    /// How suspect the items may be.
    pub(crate) allows: Suspicion,
    /// Whether a key whose last item is taken stays in the index, until a later fetch finds it empty. Such a fetch does not conflict
    /// with pushes to the key.
    pub(crate) lazy: bool,
    /// How many keys to choose from at random. 0: the first keys, in their order.
    pub(crate) scatter: usize,
}

/// What a fetch has found. Nothing is written yet.
#[derive(Debug)]
pub(crate) struct Choice {
    wanted: Wanted,
    book: Arc<RuleBook>,
    vtime: u64,
    keys: Vec<Candidate>,
    /// How many items it has, and their bytes.
    items: usize,
    bytes: usize,
    /// Free slots of the limited scopes that the fetch has looked at, less the slots that it takes.
    free: BTreeMap<Vec<u8>, u64>,
    suspicion: Option<Suspicion>,
}

/// A key that a fetch looks at.
#[derive(Debug)]
struct Candidate {
    key: Vec<u8>,
    /// The row that makes it active.
    row: Vec<u8>,
    position: u64,
    /// How many items it is to be served.
    quota: usize,
    rows: Vec<Row>,
    /// Whether it has no items but these, and leaves the index.
    is_over: bool,
    /// Whether it stays in the index though it may have no items but these.
    keeps_place: bool,
    /// The scope that has no slot for its next item.
    blocked: Option<Vec<u8>>,
    /// The row of its first hold. A key with holds is not served.
    hold: Option<Vec<u8>>,
}

impl Candidate {
    /// Whether the key moves: it is served, or it cannot be.
    fn moves(&self) -> bool {
        !self.rows.is_empty() || self.is_over || self.blocked.is_some() || self.hold.is_some()
    }
}

impl Choice {
    /// The items, key by key.
    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.keys.into_iter().flat_map(|candidate| candidate.rows).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.iter().all(|candidate| candidate.rows.is_empty())
    }

    /// Whether there is something to write though there are no items: keys to be parked, or to be taken out of the index.
    pub(crate) fn tidies(&self) -> bool {
        rules::pending(&self.book).is_some() || self.keys.iter().any(Candidate::moves)
    }

    /// Whether it takes keys out of the index, and so conflicts with pushes to these.
    pub(crate) fn ends_keys(&self) -> bool {
        self.keys.iter().any(|candidate| candidate.is_over)
    }

    /// How suspect the items are.
    pub(crate) fn suspicion(&self) -> Suspicion {
        self.suspicion.unwrap_or(Suspicion::None)
    }
}

/// Chooses up to `wanted.k` items. Reads that conflict with nothing but a change of the rules.
pub(crate) async fn choose(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
    wanted: Wanted,
    rng: &mut Rng,
) -> Result<Choice, QueueError> {
    let (book, vtime) = try_join(rules::book(keyed, tr), virtual_time(keyed, tr)).await?;
    let mut choice = Choice {
        wanted,
        book,
        vtime,
        keys: Vec::new(),
        items: 0,
        bytes: 0,
        free: BTreeMap::new(),
        suspicion: None,
    };
    let (mut begin, end) = keyed.active_range();
    let window = wanted.k.get().max(MIN_WINDOW).max(wanted.scatter);
    loop {
        let option = RangeOption {
            limit: Some(window),
            mode: StreamingMode::WantAll,
            ..RangeOption::from((begin.as_slice(), end.as_slice()))
        };
        let rows = tr.get_range(&option, 1, true).await?;
        let last = rows.last().map(|row| row.key().to_vec());
        let mut page = candidates(keyed, rows.iter().map(|row| row.key()));
        drop(rows);
        let is_last = page.len() < window;
        if wanted.scatter > 0 {
            scatter(&mut page, choice.left(), rng);
        }
        choice.learn_free(keyed, tr, &page).await?;
        choice.learn_holds(keyed, tr, &mut page).await?;
        choice.serve(space, tr, &mut page).await?;
        choice.keys.append(&mut page);
        match last {
            Some(last) if choice.left() > 0 && !is_last && choice.keys.len() < MAX_KEYS => {
                begin = after(&last);
            }
            _ => return Ok(choice),
        }
    }
}

fn candidates<'k>(keyed: &KeyedSpace, rows: impl Iterator<Item = &'k [u8]>) -> Vec<Candidate> {
    let candidate = |row: &[u8]| {
        let (position, key) = keyed.decode_active(row)?;
        Some(Candidate {
            key,
            row: row.to_vec(),
            position,
            quota: 0,
            rows: Vec::new(),
            is_over: false,
            keeps_place: false,
            blocked: None,
            hold: None,
        })
    };
    rows.filter_map(candidate).collect()
}

/// Leaves a few keys, chosen at random, so that fetches of several processes meet less often.
fn scatter(page: &mut Vec<Candidate>, k: usize, rng: &mut Rng) {
    let few = k.min(page.len().div_ceil(2)).max(1);
    let len = page.len();
    for at in 0..few.min(len) {
        let other = at + (rng.next() % (len - at) as u64) as usize;
        page.swap(at, other);
    }
    page.truncate(few);
}

impl Choice {
    /// Reads how many slots the scopes of these keys have free.
    async fn learn_free(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        page: &[Candidate],
    ) -> Result<(), QueueError> {
        let all: BTreeSet<&[u8]> = page.iter().flat_map(|candidate| scopes(&candidate.key)).collect();
        let limits = all.into_iter().filter(|scope| !self.free.contains_key(*scope));
        let limits = limits.filter_map(|scope| Some((scope, self.book.limits(scope).most_running()?)));
        let free = limits.map(async |(scope, most)| {
            let running = rules::running(keyed, tr, scope).await?;
            Ok::<_, QueueError>((scope.to_vec(), u64::from(most).saturating_sub(running)))
        });
        self.free.extend(try_join_all(free).await?);
        Ok(())
    }

    /// Reads which of these keys are held. Only ordered keys are.
    async fn learn_holds(
        &self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        page: &mut [Candidate],
    ) -> Result<(), QueueError> {
        let mut ordered: Vec<_> = page.iter_mut().filter(|key| self.is_ordered(key)).collect();
        if ordered.is_empty() || !holds::exist(keyed, tr).await? {
            return Ok(());
        }
        let read = ordered.iter_mut().map(async |candidate| {
            candidate.hold = holds::first(keyed, tr, &candidate.key).await?;
            Ok::<_, QueueError>(())
        });
        try_join_all(read).await.map(drop)
    }

    fn is_ordered(&self, candidate: &Candidate) -> bool {
        self.book.limits(&candidate.key).is_ordered()
    }

    /// Gives keys of a page their shares of the items that are left, and reads these.
    async fn serve(
        &mut self,
        space: &Space,
        tr: &Transaction,
        page: &mut [Candidate],
    ) -> Result<(), QueueError> {
        // The second round gives away what keys with too few items have left.
        for _ in 0..2 {
            self.share_out(page);
            let asked = page.iter().filter(|candidate| candidate.quota > candidate.rows.len()).count();
            if asked == 0 {
                break;
            }
            let most = MAX_TAKE_BYTES / asked;
            let read = page.iter().map(async |candidate| {
                let more = candidate.quota.saturating_sub(candidate.rows.len());
                if more == 0 {
                    Ok(None)
                } else {
                    next_items(space, tr, candidate, more, most).await.map(Some)
                }
            });
            let read = try_join_all(read).await?;
            for (candidate, read) in page.iter_mut().zip(read) {
                let Some((mut rows, is_over)) = read else { continue };
                let fit = self.add_fitting(space, &rows)?;
                candidate.is_over = is_over && fit == rows.len();
                candidate.keeps_place = self.wanted.lazy && fit + candidate.rows.len() > 0;
                rows.truncate(fit);
                self.take_slots(&candidate.key, rows.len());
                candidate.rows.append(&mut rows);
            }
            if self.left() == 0 {
                break;
            }
        }
        // What a key was given and does not use does not count.
        for candidate in page.iter_mut() {
            candidate.blocked = self
                .full_scope(&candidate.key)
                .filter(|_| candidate.quota > 0 || candidate.blocked.is_some() || !candidate.rows.is_empty());
            candidate.position = self.next_position(candidate);
            candidate.is_over &= !candidate.keeps_place;
        }
        Ok(())
    }

    /// Sets each key's quota: item by item, always to the key with the lowest position.
    fn share_out(&self, page: &mut [Candidate]) {
        // Items that are taken for good take no slots.
        let mut free = if self.wanted.on_lease { self.free.clone() } else { BTreeMap::new() };
        let (mut turns, mut left) = (BinaryHeap::new(), self.left());
        for (at, candidate) in page.iter_mut().enumerate() {
            candidate.quota = candidate.rows.len();
            if !candidate.is_over && candidate.hold.is_none() {
                turns.push(Reverse((self.next_position(candidate), at)));
            }
        }
        while left > 0
            && let Some(Reverse((position, at))) = turns.pop()
        {
            let candidate = &mut page[at];
            if let Some(full) = full_scope(&free, &candidate.key) {
                candidate.blocked = Some(full);
                continue;
            }
            take_slots(&mut free, &candidate.key, 1);
            candidate.quota += 1;
            left -= 1;
            let next = position.max(self.vtime).saturating_add(step(self.book.limits(&candidate.key)));
            turns.push(Reverse((next, at)));
        }
    }

    /// The position of a key behind the items that it is served.
    fn next_position(&self, candidate: &Candidate) -> u64 {
        match candidate.rows.len() as u64 {
            0 => candidate.position,
            n => {
                let step = step(self.book.limits(&candidate.key));
                candidate.position.max(self.vtime).saturating_add(n.saturating_mul(step))
            }
        }
    }

    /// How many more items it may have.
    fn left(&self) -> usize {
        if self.bytes >= MAX_TAKE_BYTES { 0 } else { self.most().saturating_sub(self.items) }
    }

    /// The most items: fewer if they are suspects.
    fn most(&self) -> usize {
        match self.suspicion() {
            Suspicion::None => self.wanted.k.get(),
            suspicion => suspicion.group(self.wanted.suspects.get()),
        }
    }

    /// Adds the first of a key's next rows: as suspect as the first row of all, and not too long together. Returns how many. No row of a
    /// key is passed over.
    fn add_fitting(&mut self, space: &Space, rows: &[Row]) -> Result<usize, QueueError> {
        for (at, row) in rows.iter().enumerate() {
            let meta = decode_meta(space, row)?;
            let suspicion = Suspicion::of(meta.crashes);
            let is_alike = match self.suspicion {
                Some(first) => suspicion == first,
                None => suspicion <= self.wanted.allows,
            };
            if !is_alike {
                return Ok(at);
            }
            let bytes = self.bytes.saturating_add(claim::size(space, row, &meta));
            if self.items > 0 && bytes > MAX_TAKE_BYTES {
                // It is full, though shorter rows of other keys might fit.
                self.bytes = MAX_TAKE_BYTES;
                return Ok(at);
            }
            self.suspicion = Some(suspicion);
            if self.left() == 0 {
                return Ok(at);
            }
            (self.items, self.bytes) = (self.items + 1, bytes);
        }
        Ok(rows.len())
    }

    fn take_slots(&mut self, key: &[u8], n: usize) {
        if self.wanted.on_lease {
            take_slots(&mut self.free, key, n as u64);
        }
    }

    fn full_scope(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.wanted.on_lease { full_scope(&self.free, key) } else { None }
    }
}

fn full_scope(free: &BTreeMap<Vec<u8>, u64>, key: &[u8]) -> Option<Vec<u8>> {
    scopes(key).find(|scope| free.get(*scope) == Some(&0)).map(<[u8]>::to_vec)
}

fn take_slots(free: &mut BTreeMap<Vec<u8>, u64>, key: &[u8], n: u64) {
    for scope in scopes(key) {
        if let Some(free) = free.get_mut(scope) {
            *free = free.saturating_sub(n);
        }
    }
}
