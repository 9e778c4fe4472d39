//! Choosing items of a keyed queue: from several keys, in the order of their positions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use foundationdb::options::{ConflictRangeType, MutationType, StreamingMode};
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::{try_join, try_join_all};
use mutant::mutant;

use super::changes::Parked;
use super::{activate, count_active, count_running, rules, step, virtual_time};
use crate::MAX_TAKE_BYTES;
use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::keyed::{KeyedSpace, key_element, scopes};
use crate::keys::{Space, after, range};
use crate::limits::RuleBook;
use crate::ops::scan::{self, Row, decode_meta};
use crate::ops::{claim, conflict};
use crate::rng::Rng;
use crate::suspects::Suspicion;

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
    book: Arc<RuleBook>,
    /// Whether the items go to leases, and so take slots.
    on_lease: bool,
    vtime: u64,
    keys: Vec<Candidate>,
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
}

impl Candidate {
    /// Whether the key moves: it is served, or it cannot be.
    fn moves(&self) -> bool {
        !self.rows.is_empty() || self.is_over || self.blocked.is_some()
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
        book,
        on_lease: wanted.on_lease,
        vtime,
        keys: Vec::new(),
        free: BTreeMap::new(),
        suspicion: None,
    };
    let (mut begin, end) = keyed.active_range();
    let window = wanted.k.get().max(MIN_WINDOW).max(wanted.scatter);
    let (mut left, mut bytes) = (wanted.k.get(), 0);
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
            scatter(&mut page, left, rng);
        }
        choice.learn_free(keyed, tr, &page).await?;
        choice.serve(space, tr, &mut page, &mut left, &mut bytes, wanted).await?;
        choice.keys.append(&mut page);
        match last {
            Some(last) if left > 0 && !is_last && bytes < MAX_TAKE_BYTES && choice.keys.len() < MAX_KEYS => {
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

    /// Gives keys of a page their shares of the items that are left, and reads these.
    async fn serve(
        &mut self,
        space: &Space,
        tr: &Transaction,
        page: &mut [Candidate],
        left: &mut usize,
        bytes: &mut usize,
        wanted: Wanted,
    ) -> Result<(), QueueError> {
        // The second round gives away what keys with too few items have left.
        for _ in 0..2 {
            self.share_out(page, *left);
            let asked = page.iter().filter(|candidate| candidate.quota > candidate.rows.len()).count();
            if asked == 0 {
                break;
            }
            let most = MAX_TAKE_BYTES / asked;
            let read = page.iter().map(async |candidate| {
                let more = candidate.quota.saturating_sub(candidate.rows.len());
                if more == 0 { Ok(None) } else { items_of(space, tr, candidate, more, most).await.map(Some) }
            });
            let read = try_join_all(read).await?;
            for (candidate, read) in page.iter_mut().zip(read) {
                let Some((mut rows, is_over)) = read else { continue };
                let fit = self.fitting(space, &rows, bytes, *left, wanted)?;
                candidate.is_over = is_over && fit == rows.len();
                candidate.keeps_place = wanted.lazy && fit + candidate.rows.len() > 0;
                rows.truncate(fit);
                *left = left.saturating_sub(rows.len());
                self.take_slots(&candidate.key, rows.len());
                candidate.rows.append(&mut rows);
            }
            if *left == 0 || *bytes >= MAX_TAKE_BYTES {
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
    fn share_out(&self, page: &mut [Candidate], left: usize) {
        // Items that are taken for good take no slots.
        let mut free = if self.on_lease { self.free.clone() } else { BTreeMap::new() };
        let (mut turns, mut left) = (BinaryHeap::new(), left);
        for (at, candidate) in page.iter_mut().enumerate() {
            candidate.quota = candidate.rows.len();
            if !candidate.is_over {
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

    /// How many of a key's next rows the fetch gets: as suspect as the first of all, and not too long together. Rows of a key are
    /// never passed over.
    fn fitting(
        &mut self,
        space: &Space,
        rows: &[Row],
        bytes: &mut usize,
        left: usize,
        wanted: Wanted,
    ) -> Result<usize, QueueError> {
        let got = wanted.k.get() - left;
        for (at, row) in rows.iter().enumerate() {
            let meta = decode_meta(space, row)?;
            let suspicion = Suspicion::of(meta.crashes);
            let first = *self
                .suspicion
                .get_or_insert_with(|| if suspicion <= wanted.allows { suspicion } else { Suspicion::None });
            let most =
                if first > Suspicion::None { first.group(wanted.suspects.get()) } else { wanted.k.get() };
            let size = claim::size(space, row, &meta);
            let is_too_long = got + at > 0 && bytes.saturating_add(size) > MAX_TAKE_BYTES;
            if suspicion != first || got + at >= most || is_too_long {
                if got + at == 0 {
                    self.suspicion = None;
                }
                *bytes = if is_too_long { MAX_TAKE_BYTES } else { *bytes };
                return Ok(at);
            }
            *bytes = bytes.saturating_add(size);
        }
        Ok(rows.len())
    }

    fn take_slots(&mut self, key: &[u8], n: usize) {
        if self.on_lease {
            take_slots(&mut self.free, key, n as u64);
        }
    }

    fn full_scope(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.on_lease { full_scope(&self.free, key) } else { None }
    }

    /// Writes the choice: takes the items, moves the keys.
    pub(crate) async fn write(
        &self,
        space: &Space,
        keyed: &KeyedSpace,
        tr: &Transaction,
    ) -> Result<(), QueueError> {
        let passed_on = self.passed_on(keyed, tr).await?;
        let moving: Vec<_> = self.keys.iter().filter(|candidate| candidate.moves()).collect();
        // Conflicts come first: a transaction does not conflict on what it has itself overwritten.
        for candidate in &moving {
            self.add_conflicts(space, keyed, tr, candidate)?;
        }
        let mut running: BTreeMap<&[u8], i64> = BTreeMap::new();
        let mut vtime = self.vtime;
        for candidate in &moving {
            tr.clear(&candidate.row);
            claim::take(space, tr, &candidate.rows)?;
            let n = candidate.rows.len();
            if n > 0 {
                let last = candidate.position.saturating_sub(step(self.book.limits(&candidate.key)));
                vtime = vtime.max(last);
                for scope in scopes(&candidate.key).filter(|_| self.on_lease) {
                    *running.entry(scope).or_default() += i64::try_from(n).unwrap_or(i64::MAX);
                }
            }
            match &candidate.blocked {
                _ if candidate.is_over => tr.clear(&keyed.listed_key(&candidate.key)),
                Some(scope) => {
                    tr.set(&keyed.parked_key(scope, candidate.position, &candidate.key), &[]);
                }
                None => activate(keyed, tr, candidate.position, &candidate.key),
            }
        }
        running.iter().for_each(|(scope, n)| count_running(keyed, tr, scope, *n));
        if vtime > self.vtime {
            tr.atomic_op(&keyed.vtime, &vtime.to_le_bytes(), MutationType::Max);
        }
        for parked in &passed_on {
            conflict::as_reader(tr, &parked.row)?;
            parked.unpark(keyed, tr);
        }
        count_active(keyed, tr, passed_on.len());
        rules::unpark_page(keyed, tr, &self.book).await
    }

    fn add_conflicts(
        &self,
        space: &Space,
        keyed: &KeyedSpace,
        tr: &Transaction,
        candidate: &Candidate,
    ) -> Result<(), QueueError> {
        conflict::as_reader(tr, &candidate.row)?;
        if self.on_lease && !candidate.rows.is_empty() {
            for scope in scopes(&candidate.key).filter(|scope| self.free.contains_key(*scope)) {
                let gate = keyed.gate_key(scope);
                if !mutant("no-gate") {
                    conflict::as_reader(tr, &gate)?;
                    conflict::as_writer(tr, &gate)?;
                }
            }
        }
        match &candidate.blocked {
            _ if candidate.is_over && !mutant("over-without-conflict") => {
                // All items of the key: a returned item may come before the items that are taken.
                let (begin, end) = range(&[space.ready.as_slice(), &key_element(&candidate.key)].concat());
                tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
            }
            Some(scope) if !candidate.is_over && !mutant("parks-without-conflict") => {
                conflict::as_reader(tr, &keyed.running_key(scope))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Parked keys that get the slots which keys were made active for and do not use: they have no item, their items are taken for good,
    /// or another scope has no slot.
    async fn passed_on(&self, keyed: &KeyedSpace, tr: &Transaction) -> Result<Vec<Parked>, QueueError> {
        let mut unused: BTreeMap<&[u8], usize> = BTreeMap::new();
        let is_idle = |candidate: &&Candidate| candidate.rows.is_empty() || !self.on_lease;
        let idle = self.keys.iter().filter(|candidate| candidate.moves()).filter(is_idle);
        for candidate in idle {
            let others = scopes(&candidate.key).filter(|scope| candidate.blocked.as_deref() != Some(*scope));
            for scope in others.filter(|scope| self.free.get(*scope).is_some_and(|free| *free > 0)) {
                *unused.entry(scope).or_default() += 1;
            }
        }
        let first = unused.into_iter().map(async |(scope, n)| {
            let option = RangeOption {
                limit: Some(n),
                mode: StreamingMode::WantAll,
                ..RangeOption::from(keyed.parked_range(scope))
            };
            let rows = tr.get_range(&option, 1, true).await?;
            let parked = rows.iter().filter_map(|row| Parked::decode(keyed, row.key()));
            Ok::<Vec<_>, QueueError>(parked.map(|(_, parked)| parked).collect())
        });
        Ok(try_join_all(first).await?.into_iter().flatten().collect())
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

/// The next items of a key, at most `n`, and whether there are no others.
async fn items_of(
    space: &Space,
    tr: &Transaction,
    candidate: &Candidate,
    n: usize,
    most_bytes: usize,
) -> Result<(Vec<Row>, bool), QueueError> {
    let element = key_element(&candidate.key);
    let behind = candidate.rows.last().map(|row| &row.id);
    let within = |records: &[u8]| {
        let (first, end) = range(&[records, &element].concat());
        let begin = behind.map_or(first, |id| after(&[records, id.as_bytes()].concat()));
        (begin, end)
    };
    // One more tells whether there are more.
    let (rows, metas) = try_join(
        read(tr, within(&space.ready), n + 1, most_bytes),
        read(tr, within(&space.meta), n, usize::MAX),
    )
    .await?;
    let (found, is_end) = rows;
    let is_over = is_end && found.len() <= n;
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        let id = scan::suffix(space, &key)?.to_vec();
        Ok(Row { id: ItemId::new(id.into()), value: value.into(), meta: Bytes::new() })
    };
    let mut rows: Vec<Row> = found.into_iter().take(n).map(row).collect::<Result<_, QueueError>>()?;
    let metas = metas.0.iter().map(|(key, value)| scan::meta_row(space, key, value));
    scan::attach(&mut rows, metas.collect());
    Ok((rows, is_over))
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The first rows of a range, at most `limit`, and a page more than `most_bytes`; and whether these are all.
async fn read(
    tr: &Transaction,
    (begin, end): (Vec<u8>, Vec<u8>),
    limit: usize,
    most_bytes: usize,
) -> Result<(Rows, bool), QueueError> {
    let option =
        RangeOption { limit: Some(limit), mode: StreamingMode::WantAll, ..RangeOption::from((begin, end)) };
    let mut pages = tr.get_ranges(option, true);
    let (mut rows, mut bytes): (Rows, _) = (Vec::new(), 0);
    while let Some(page) = pages.try_next().await? {
        for row in &page {
            bytes += row.key().len() + row.value().len();
            rows.push((row.key().to_vec(), row.value().to_vec()));
        }
        if bytes >= most_bytes && page.more() {
            return Ok((rows, false));
        }
    }
    let is_end = rows.len() < limit;
    Ok((rows, is_end))
}
