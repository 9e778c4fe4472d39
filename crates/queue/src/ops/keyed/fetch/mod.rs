//! Choosing items of a keyed queue: from several keys, in the order of their positions. `write` then moves the items and their keys.

mod candidate;
mod items;
mod learn;
mod left;
mod running;
#[cfg(test)]
mod tests;
mod write;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::Transaction;
use futures::future::{try_join, try_join_all, try_join3, try_join5};
use mutant::bound;

use super::lanes::{QueueSlots, Taker};
use super::pace::Paces;
use super::rules::Pending;
use super::{ITEM, holds, rules, step, suspects, virtual_time};
use crate::keys::Space;
use crate::keys::keyed::{Cause, KeyedSpace};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::limits::RuleBook;
use crate::model::rng::Rng;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::model::suspicion::Suspicion;
use crate::ops::keyed::parked::Parked;
use crate::ops::scan::{Row, decode_meta};
use crate::ops::{claim, cost};
use crate::run::range_read::RangeRead;
use candidate::{Candidate, Place};
use items::{have_metas, next_items};
use left::Left;
use running::Running;

/// How many keys a fetch looks at in one page, at least.
fn min_window() -> usize {
    bound("fetch-window", 16)
}
/// Keys are apart by the items of so many fetches at most: a fetch that chooses at random passes over keys that are further ahead, and a key that could not be served makes up for no
/// more.
const SLACK: u64 = 2;
/// The bytes of a transaction for the keys that a fetch serves, at most, in addition to [`MAX_TAKE_BYTES`] for their items.
fn max_index_bytes() -> usize {
    bound("fetch-index-bytes", 3_500_000)
}
/// How many keys one fetch looks at, about: no further page after so many.
fn max_keys() -> usize {
    bound("keys-of-a-fetch", 2_000)
}
/// How many keys without a slot one fetch parks. Each conflicts with an acknowledgement that frees its slot, so a fetch that parked very many would seldom commit. The next fetch parks the others.
fn max_parked() -> usize {
    bound("parked-keys-of-a-fetch", 64)
}

/// How many keys one fetch parks because of suspects, without serving them. The next fetch parks the others.
fn max_suspects() -> usize {
    bound("suspects-of-a-fetch", 500)
}
/// How many keys a page has at most, if the pages before it had no item for the fetch.
const MAX_WINDOW: usize = 512;

/// What a fetch asks for.
#[derive(Debug, Clone)]
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
    /// Whose fetch it is.
    pub(crate) taker: Taker,
}

impl Wanted {
    /// How far keys may be apart, in positions, though they are always there to be served.
    fn slack(&self) -> u64 {
        (self.k.get() as u64).saturating_mul(SLACK * ITEM)
    }
}

/// What a fetch has found. Nothing is written yet.
#[derive(Debug)]
pub(crate) struct Choice {
    wanted: Wanted,
    /// How far keys may be apart. The rate of the queue, which may allow fewer items, does not change it.
    slack: u64,
    book: Arc<RuleBook>,
    /// Holds and parked keys that are to be looked at again.
    pending: Option<Pending>,
    vtime: u64,
    /// Whether any ready item has a side record.
    has_metas: bool,
    /// Whether any key is held.
    has_holds: bool,
    running: Running,
    keys: Vec<Candidate>,
    /// How many items it has, and their bytes.
    items: usize,
    bytes: usize,
    /// The bytes of the transaction for the keys that it serves.
    index_bytes: usize,
    /// The slots of the whole queue, if it has a limit: as the fetch has found them.
    slots: Option<QueueSlots>,
    /// Keys that an earlier version has parked under the limit of the whole queue.
    parked_before: Vec<Parked>,
    /// What the limited scopes that the fetch has looked at have left, less what it takes. The whole queue is not among them.
    left: BTreeMap<Vec<u8>, Left>,
    paces: Paces,
    /// Scopes with keys that wait for their timers and that the fetch has not looked at.
    behind: Vec<Vec<u8>>,
    suspicion: Option<Suspicion>,
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
        self.page().is_some()
            || !self.parked_before.is_empty()
            || self.keys.iter().any(Candidate::moves)
            || self.paces.change(&self.waiting())
    }

    /// Holds and parked keys of which it is to look at a page again.
    fn page(&self) -> Option<&Pending> {
        self.pending.as_ref().filter(|pending| pending.is_for(self.wanted.taker.session, self.paces.now()))
    }

    /// Whether it looks at a page of holds or parked keys again.
    pub(crate) fn looks_again(&self) -> bool {
        self.page().is_some()
    }

    /// Whether it takes slots of the whole queue that other sessions may be about to take.
    pub(crate) fn takes_slots_of_others(&self) -> bool {
        self.slots.as_ref().is_some_and(|slots| slots.takes_of_others(self.items as u64))
    }

    /// The slots of the whole queue, if it has found no free one that it may take.
    pub(crate) fn full(&self) -> Option<&QueueSlots> {
        self.slots.as_ref().filter(|slots| slots.free() == 0)
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
    let (scattered, slack, on_lease) = (wanted.scatter, wanted.slack(), wanted.on_lease);
    let mut window = wanted.k.get().max(min_window()).max(scattered);
    let suspects = suspects::first(keyed, tr, wanted.allows, min_window().max(scattered));
    let first = try_join5(
        rules::book(keyed, tr),
        virtual_time(keyed, tr),
        Paces::read(keyed, tr, window),
        have_metas(space, tr),
        holds::exist(keyed, tr),
    );
    let known = keyed.known.get();
    let ((book, vtime, paces, has_metas, has_holds), running, suspects) =
        try_join3(first, Running::read(keyed, tr, &known), suspects).await?;
    let pending = rules::pending(keyed, tr, &book).await?;
    let mut choice = Choice {
        wanted,
        slack,
        book,
        pending,
        vtime,
        has_metas,
        has_holds,
        running,
        keys: Vec::new(),
        items: 0,
        bytes: 0,
        index_bytes: 0,
        slots: None,
        parked_before: Vec::new(),
        left: BTreeMap::new(),
        paces,
        behind: Vec::new(),
        suspicion: None,
    };
    if on_lease && !choice.obey_the_queue(keyed, tr).await? {
        return Ok(choice);
    }
    let mut page = choice.timed(keyed, tr, rng).await?;
    page.extend(choice.suspects(suspects, rng));
    let (mut begin, end) = keyed.active_range();
    loop {
        let rows = RangeRead::of((&begin[..], &end[..])).limit(window).page(tr);
        let (rows, parked) = try_join(rows, choice.read_parked_before(keyed, tr)).await?;
        choice.parked_before.extend(parked);
        let next = rows.next();
        let mut active = active(keyed, &choice.book, rows.iter().map(|row| row.key()));
        drop(rows);
        if scattered > 0 {
            let last = active.first().map_or(0, |first| first.position.saturating_add(slack));
            // Keys far ahead have had their share.
            active.retain(|candidate| candidate.position <= last);
            scatter(&mut active, choice.left(), rng);
        }
        // Mostly as many keys as items are enough. So what the scopes of the others have left is read only if they are needed.
        let mut others = active.split_off(active.len().min(choice.left()));
        page.append(&mut active);
        // The first key of all decides how suspect the items are.
        page.sort_by_key(|candidate| candidate.position);
        choice.learn(keyed, tr, &mut page).await?;
        choice.serve(space, tr, &mut page, others.first().map(|other| other.position)).await?;
        if choice.left() > 0 && !others.is_empty() {
            choice.learn(keyed, tr, &mut others).await?;
            page.append(&mut others);
            choice.serve(space, tr, &mut page, None).await?;
        }
        choice.place(&mut page, next.is_some() || !others.is_empty());
        if page.iter().all(|candidate| candidate.rows.is_empty()) {
            window = window.max((2 * window).min(MAX_WINDOW));
        }
        choice.keys.append(&mut page);
        match next {
            Some(next) if choice.left() > 0 && choice.may_look_on() => begin = next,
            _ => return Ok(choice),
        }
    }
}

fn active<'k>(keyed: &KeyedSpace, book: &RuleBook, rows: impl Iterator<Item = &'k [u8]>) -> Vec<Candidate> {
    let candidate = |row: &[u8]| {
        let (position, key) = keyed.decode_active(row)?;
        Some(Candidate::new(book, (Place::Active, row.to_vec()), position, key))
    };
    rows.filter_map(candidate).collect()
}

/// Leaves a few, chosen at random, so that fetches of several processes meet less often.
fn scatter<T>(page: &mut Vec<T>, k: usize, rng: &mut Rng) {
    let few = k.min(page.len().div_ceil(2)).max(1);
    let len = page.len();
    for at in 0..few.min(len) {
        let other = at + (rng.next() % (len - at) as u64) as usize;
        page.swap(at, other);
    }
    page.truncate(few);
}

impl Choice {
    /// Gives keys of a page their shares of the items that are left, and reads these. `before`: the position of the first key that comes after them, and has its
    /// turn there.
    async fn serve(
        &mut self,
        space: &Space,
        tr: &Transaction,
        page: &mut [Candidate],
        before: Option<u64>,
    ) -> Result<(), QueueError> {
        // A further round gives away what keys with too few items have left, or with items that are refused.
        let refused_of = |page: &[Candidate]| page.iter().filter(|key| key.refused.is_some()).count();
        let mut ahead = 1;
        for round in 0.. {
            let refused = refused_of(page);
            self.share_out(page, before, self.left().saturating_mul(ahead));
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
                    next_items(space, tr, candidate, more, most, self.has_metas).await.map(Some)
                }
            });
            let read = try_join_all(read).await?;
            for (candidate, read) in page.iter_mut().zip(read) {
                let Some((mut rows, is_over)) = read else { continue };
                let fit;
                (fit, candidate.refused) = self.add_fitting(space, &rows)?;
                candidate.is_over = is_over && fit == rows.len();
                candidate.keeps_place = self.wanted.lazy && fit + candidate.rows.len() > 0;
                rows.truncate(fit);
                if self.wanted.on_lease {
                    left::take(&mut self.left, &candidate.key, rows.len() as u64);
                }
                candidate.rows.append(&mut rows);
            }
            let is_news = refused_of(page) > refused;
            if self.left() == 0 || (round > 0 && !is_news) {
                break;
            }
            // Where there are suspects there may be many, so the next round looks at more keys than it has to.
            ahead = if is_news { 2 * ahead } else { 1 };
        }
        Ok(())
    }

    /// Decides where the keys of a page go. `has_more`: other keys are active behind these.
    fn place(&self, page: &mut [Candidate], has_more: bool) {
        let (mut parked, mut in_the_way) = (self.parked(), self.in_the_way());
        // What a key was given and does not use does not count.
        for candidate in page {
            let is_served = !candidate.rows.is_empty();
            if candidate.is_in_the_way() {
                in_the_way += 1;
                // The others stay active.
                candidate.refused = candidate.refused.take().filter(|_| in_the_way <= max_suspects());
            }
            candidate.blocked = self
                .blocked(&candidate.key)
                .filter(|_| candidate.quota > 0 || candidate.blocked.is_some() || is_served)
                // A fetch that may have its item looks what the item waits for besides.
                .filter(|_| candidate.suspect().is_none())
                // Its item may have ended by its next turn. If it has not, the fetch that finds the key then parks it.
                .filter(|(cause, _)| !(is_served && has_more && *cause == Cause::Slot));
            if candidate.is_full() {
                parked += 1;
                // The others stay active.
                candidate.blocked = candidate.blocked.take().filter(|_| parked <= max_parked());
            }
            candidate.position = self.next_position(candidate);
            candidate.is_over &= !candidate.keeps_place;
        }
    }

    /// Whether it may look at a further page of keys.
    fn may_look_on(&self) -> bool {
        self.keys.len() < max_keys() && self.parked() < max_parked() && self.in_the_way() < max_suspects()
    }

    /// How many of the keys of earlier pages it parks because of suspects, without serving them.
    fn in_the_way(&self) -> usize {
        self.keys.iter().filter(|candidate| candidate.is_in_the_way()).count()
    }

    /// How many of the keys of earlier pages it parks without serving them.
    fn parked(&self) -> usize {
        self.keys.iter().filter(|candidate| candidate.is_full()).count()
    }

    /// Sets each key's quota of `left` items: item by item, always to the key with the lowest position, up to the position `before`.
    fn share_out(&self, page: &mut [Candidate], before: Option<u64>, mut left: usize) {
        // Items that are taken for good are not limited.
        let mut limits = if self.wanted.on_lease { self.left.clone() } else { BTreeMap::new() };
        let mut turns = BinaryHeap::new();
        for (at, candidate) in page.iter_mut().enumerate() {
            candidate.quota = candidate.rows.len();
            if !candidate.is_over && candidate.refused.is_none() && candidate.hold.is_none() {
                turns.push(Reverse((self.next_position(candidate), at)));
            }
        }
        while left > 0
            && let Some(Reverse((position, at))) = turns.pop()
            && before.is_none_or(|before| position <= before)
        {
            let candidate = &mut page[at];
            candidate.blocked = left::blocked(&limits, &candidate.key);
            if candidate.blocked.is_some() {
                continue;
            }
            left::take(&mut limits, &candidate.key, 1);
            candidate.quota += 1;
            left -= 1;
            let next = self.caught_up(position).saturating_add(step(candidate.limits));
            turns.push(Reverse((next, at)));
        }
    }

    /// The position of a key behind the items that it is served.
    fn next_position(&self, candidate: &Candidate) -> u64 {
        match candidate.rows.len() as u64 {
            0 => candidate.position,
            n => {
                let step = step(candidate.limits);
                self.caught_up(candidate.position).saturating_add(n.saturating_mul(step))
            }
        }
    }

    /// The position from which a key goes on. One that could not be served for long does not make up for all of it.
    fn caught_up(&self, position: u64) -> u64 {
        // A fetch may serve a key that is ahead by the slack, and moves it by its items.
        position.max(self.vtime.saturating_sub(2 * self.slack))
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

    /// Adds the first of a key's next rows: as suspect as the first row of all, and not too long together. Returns how many, and the next one if it is refused because
    /// it is more or less suspect. No row of a key is passed over.
    fn add_fitting(
        &mut self,
        space: &Space,
        rows: &[Row],
    ) -> Result<(usize, Option<(Suspicion, ItemId)>), QueueError> {
        for (at, row) in rows.iter().enumerate() {
            let meta = decode_meta(space, row)?;
            let suspicion = Suspicion::of(meta.crashes);
            let is_alike = match self.suspicion {
                Some(first) => suspicion == first,
                None => suspicion <= self.wanted.allows,
            };
            if !is_alike {
                return Ok((at, Some((suspicion, row.id.clone()))));
            }
            let bytes = self.bytes.saturating_add(claim::size(space, row, &meta));
            let served = if at == 0 { cost::served(space, &row.id) } else { 0 };
            let index_bytes = self.index_bytes.saturating_add(served);
            if self.items > 0 && (bytes > MAX_TAKE_BYTES || index_bytes > max_index_bytes()) {
                // It is full, though shorter rows of other keys might fit.
                self.bytes = MAX_TAKE_BYTES;
                return Ok((at, None));
            }
            self.suspicion = Some(suspicion);
            if self.left() == 0 {
                return Ok((at, None));
            }
            (self.items, self.bytes, self.index_bytes) = (self.items + 1, bytes, index_bytes);
        }
        Ok((rows.len(), None))
    }

    /// The scope that a key's next item waits for.
    fn blocked(&self, key: &[u8]) -> Option<(Cause, Vec<u8>)> {
        if self.wanted.on_lease { left::blocked(&self.left, key) } else { None }
    }
}
