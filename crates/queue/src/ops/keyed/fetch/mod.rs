//! Choosing items of a keyed queue: from several keys, in the order of their positions. `write` then moves the items and their keys.

mod items;
mod learn;
mod left;
mod running;
mod write;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::{try_join, try_join_all, try_join5};

use super::pace::Paces;
use super::{ITEM, holds, rules, step, virtual_time};
use crate::MAX_TAKE_BYTES;
use crate::error::QueueError;
use crate::keys::keyed::{Cause, KeyedSpace};
use crate::keys::{Space, after};
use crate::limits::{Limits, RuleBook};
use crate::ops::claim;
use crate::ops::scan::{Row, decode_meta};
use crate::rng::Rng;
use crate::suspects::Suspicion;
use items::{have_metas, next_items};
use left::Left;
use running::Running;

/// How many keys a fetch looks at in one page, at least.
const MIN_WINDOW: usize = 16;
/// Keys are apart by the items of so many fetches at most: a fetch that chooses at random passes over keys that are further ahead, and a key that could not be served makes up for no
/// more.
const SLACK: u64 = 2;
/// How many keys one fetch looks at, about: no further page after so many.
const MAX_KEYS: usize = 2_000;
/// How many keys without a slot one fetch parks. Each conflicts with an acknowledgement that frees its slot, so a fetch that parked very many would seldom commit. The next fetch parks the others.
const MAX_PARKED: usize = 64;

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
    /// Which gate of limited scopes it takes: this number, modulo the number of gates that are open to it.
    pub(crate) gate: u64,
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
    /// What the limited scopes that the fetch has looked at have left, less what it takes.
    left: BTreeMap<Vec<u8>, Left>,
    paces: Paces,
    /// Scopes with keys that wait for their timers and that the fetch has not looked at.
    behind: Vec<Vec<u8>>,
    suspicion: Option<Suspicion>,
}

/// The place of a key that a fetch looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Active,
    /// It waits for the timer of a scope, which is due.
    Timed(Vec<u8>),
}

/// A key that a fetch looks at.
#[derive(Debug)]
struct Candidate {
    key: Vec<u8>,
    limits: Limits,
    place: Place,
    /// The row of its place.
    row: Vec<u8>,
    position: u64,
    /// How many items it is to be served.
    quota: usize,
    rows: Vec<Row>,
    /// Whether it has no items but these, and leaves the index.
    is_over: bool,
    /// Whether its next item is refused: it may have killed a worker, or others of the fetch may have.
    is_refused: bool,
    /// Whether it stays in the index though it may have no items but these.
    keeps_place: bool,
    /// The scope that its next item waits for.
    blocked: Option<(Cause, Vec<u8>)>,
    /// The row of its first hold. A key with holds is not served.
    hold: Option<Vec<u8>>,
}

impl Candidate {
    fn new(book: &RuleBook, (place, row): (Place, Vec<u8>), position: u64, key: Vec<u8>) -> Candidate {
        let limits = book.limits(&key);
        let (quota, rows, blocked, hold) = (0, Vec::new(), None, None);
        let (is_over, is_refused, keeps_place) = (false, false, false);
        Candidate {
            key,
            limits,
            place,
            row,
            position,
            quota,
            rows,
            is_over,
            is_refused,
            keeps_place,
            blocked,
            hold,
        }
    }

    /// Whether it is active, and has no slot for its next item.
    fn is_full(&self) -> bool {
        self.place == Place::Active && self.rows.is_empty() && matches!(self.blocked, Some((Cause::Slot, _)))
    }

    /// Whether the key moves: it is served, or it cannot be.
    fn moves(&self) -> bool {
        !self.rows.is_empty()
            || self.is_over
            || self.hold.is_some()
            || match (&self.place, &self.blocked) {
                (Place::Active, blocked) => blocked.is_some(),
                // It does not stay first among the keys that wait for the timer.
                (Place::Timed(_), None) => self.quota > 0 || self.is_refused,
                (Place::Timed(scope), Some(blocked)) => *blocked != (Cause::Rate, scope.clone()),
            }
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
        rules::pending(&self.book).is_some()
            || self.keys.iter().any(Candidate::moves)
            || self.paces.change(&self.waiting())
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
    let window = wanted.k.get().max(MIN_WINDOW).max(wanted.scatter);
    let first = try_join5(
        rules::book(keyed, tr),
        virtual_time(keyed, tr),
        Paces::read(keyed, tr, window),
        have_metas(space, tr),
        holds::exist(keyed, tr),
    );
    let known = keyed.known.get();
    let ((book, vtime, paces, has_metas, has_holds), running) =
        try_join(first, Running::read(keyed, tr, &known)).await?;
    let mut choice = Choice {
        wanted,
        slack: wanted.slack(),
        book,
        vtime,
        has_metas,
        has_holds,
        running,
        keys: Vec::new(),
        items: 0,
        bytes: 0,
        left: BTreeMap::new(),
        paces,
        behind: Vec::new(),
        suspicion: None,
    };
    if wanted.on_lease && !choice.obey_the_queue(keyed, tr).await? {
        return Ok(choice);
    }
    let mut page = choice.timed(keyed, tr, rng).await?;
    let (mut begin, end) = keyed.active_range();
    loop {
        let option = RangeOption {
            limit: Some(window),
            mode: StreamingMode::WantAll,
            ..RangeOption::from((begin.as_slice(), end.as_slice()))
        };
        let rows = tr.get_range(&option, 1, true).await?;
        let last = rows.last().map(|row| row.key().to_vec());
        let mut active = active(keyed, &choice.book, rows.iter().map(|row| row.key()));
        drop(rows);
        let is_last = active.len() < window;
        if wanted.scatter > 0 {
            let last = active.first().map_or(0, |first| first.position.saturating_add(wanted.slack()));
            // Keys far ahead have had their share.
            active.retain(|candidate| candidate.position <= last);
            scatter(&mut active, choice.left(), rng);
        }
        // Mostly as many keys as items are enough. So what the scopes of the others have left is read only if they are needed.
        let mut others = active.split_off(active.len().min(choice.left()));
        page.append(&mut active);
        choice.learn(keyed, tr, &mut page).await?;
        choice.serve(space, tr, &mut page, others.first().map(|other| other.position)).await?;
        if choice.left() > 0 && !others.is_empty() {
            choice.learn(keyed, tr, &mut others).await?;
            page.append(&mut others);
            choice.serve(space, tr, &mut page, None).await?;
        }
        choice.place(&mut page, !is_last || !others.is_empty());
        choice.keys.append(&mut page);
        match last {
            Some(last) if choice.left() > 0 && !is_last && choice.may_look_on() => {
                begin = after(&last);
            }
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
        for round in 0.. {
            let refused = page.iter().filter(|candidate| candidate.is_refused).count();
            self.share_out(page, before);
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
                (fit, candidate.is_refused) = self.add_fitting(space, &rows)?;
                candidate.is_over = is_over && fit == rows.len();
                candidate.keeps_place = self.wanted.lazy && fit + candidate.rows.len() > 0;
                rows.truncate(fit);
                if self.wanted.on_lease {
                    left::take(&mut self.left, &candidate.key, rows.len() as u64);
                }
                candidate.rows.append(&mut rows);
            }
            let is_news = page.iter().filter(|candidate| candidate.is_refused).count() > refused;
            if self.left() == 0 || (round > 0 && !is_news) {
                break;
            }
        }
        Ok(())
    }

    /// Decides where the keys of a page go. `has_more`: other keys are active behind these.
    fn place(&self, page: &mut [Candidate], has_more: bool) {
        let mut parked = self.parked();
        // What a key was given and does not use does not count.
        for candidate in page {
            let is_served = !candidate.rows.is_empty();
            candidate.blocked = self
                .blocked(&candidate.key)
                .filter(|_| candidate.quota > 0 || candidate.blocked.is_some() || is_served)
                // Its item may have ended by its next turn. If it has not, the fetch that finds the key then parks it.
                .filter(|(cause, _)| !(is_served && has_more && *cause == Cause::Slot));
            if candidate.is_full() {
                parked += 1;
                // The others stay active.
                candidate.blocked = candidate.blocked.take().filter(|_| parked <= MAX_PARKED);
            }
            candidate.position = self.next_position(candidate);
            candidate.is_over &= !candidate.keeps_place;
        }
    }

    /// Whether it may look at a further page of keys.
    fn may_look_on(&self) -> bool {
        self.keys.len() < MAX_KEYS && self.parked() < MAX_PARKED
    }

    /// How many of the keys of earlier pages it parks without serving them.
    fn parked(&self) -> usize {
        self.keys.iter().filter(|candidate| candidate.is_full()).count()
    }

    /// Sets each key's quota: item by item, always to the key with the lowest position, up to the position `before`.
    fn share_out(&self, page: &mut [Candidate], before: Option<u64>) {
        // Items that are taken for good are not limited.
        let mut limits = if self.wanted.on_lease { self.left.clone() } else { BTreeMap::new() };
        let (mut turns, mut left) = (BinaryHeap::new(), self.left());
        for (at, candidate) in page.iter_mut().enumerate() {
            candidate.quota = candidate.rows.len();
            if !candidate.is_over && !candidate.is_refused && candidate.hold.is_none() {
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

    /// Adds the first of a key's next rows: as suspect as the first row of all, and not too long together. Returns how many, and whether the next one is refused because
    /// it is more or less suspect. No row of a key is passed over.
    fn add_fitting(&mut self, space: &Space, rows: &[Row]) -> Result<(usize, bool), QueueError> {
        for (at, row) in rows.iter().enumerate() {
            let meta = decode_meta(space, row)?;
            let suspicion = Suspicion::of(meta.crashes);
            let is_alike = match self.suspicion {
                Some(first) => suspicion == first,
                None => suspicion <= self.wanted.allows,
            };
            if !is_alike {
                return Ok((at, true));
            }
            let bytes = self.bytes.saturating_add(claim::size(space, row, &meta));
            if self.items > 0 && bytes > MAX_TAKE_BYTES {
                // It is full, though shorter rows of other keys might fit.
                self.bytes = MAX_TAKE_BYTES;
                return Ok((at, false));
            }
            self.suspicion = Some(suspicion);
            if self.left() == 0 {
                return Ok((at, false));
            }
            (self.items, self.bytes) = (self.items + 1, bytes);
        }
        Ok((rows.len(), false))
    }

    /// The scope that a key's next item waits for.
    fn blocked(&self, key: &[u8]) -> Option<(Cause, Vec<u8>)> {
        if self.wanted.on_lease { left::blocked(&self.left, key) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PushOptions;
    use crate::approach::Approach;
    use crate::kind::Kind;
    use crate::limits::Pattern;
    use crate::new_item::NewItem;
    use crate::queue::Queue;
    use crate::session::{FetchOptions, Session, SessionId};
    use crate::testing::on_database;

    #[test]
    fn a_fetch_parks_a_bounded_number_of_keys() {
        on_database(async |db| {
            let queue = Queue::of_kind(b"", b"q", Kind::Keyed).unwrap();
            let tr = db.create_trx().unwrap();
            queue
                .set_rule(&tr, &Pattern::keys("*").unwrap(), &Limits::default().with_running(1))
                .await
                .unwrap();
            tr.commit().await.unwrap();
            let mut session = Session::new(queue.clone());
            let item = |n: usize| NewItem::new("x").with_key(format!("k{}", n % 200));
            let items: Vec<_> = (0..400).map(item).collect();
            session.push_items(db, &items, &PushOptions::default()).await.unwrap();
            let k = NonZeroUsize::new(190).unwrap();
            let (mut approach, length) = (Approach::Front, std::time::Duration::from_secs(30));
            // Other keys are active, so these 190 stay active.
            let fetched = session.fetch(db, &mut FetchOptions::new(k, length, &mut approach)).await.unwrap();
            let _lease = fetched.lease.unwrap();
            let (space, keyed) = (queue.space(), queue.space().keyed.as_ref().unwrap());
            for k in [1, 500] {
                let k = NonZeroUsize::new(k).unwrap();
                let wanted = Wanted {
                    k,
                    on_lease: true,
                    suspects: k,
                    allows: Suspicion::None,
                    lazy: false,
                    scatter: 0,
                    gate: 0,
                };
                let tr = db.create_trx().unwrap();
                let choice =
                    choose(space, keyed, &tr, wanted, &mut Rng::of(SessionId([7; 16]))).await.unwrap();
                // The ten keys that were not served come first.
                assert_eq!(choice.items, k.get().min(10));
                assert_eq!(choice.parked(), if k.get() == 1 { 0 } else { MAX_PARKED });
            }
        });
    }
}
