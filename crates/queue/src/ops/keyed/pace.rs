//! When items of a scope may start: its rate, and throttles.
//!
//! A scope has a row under `rate`: up to which version it has *paid* for its starts, and its *timer*. Nothing of the scope starts before the timer's version.
//! Then its parked keys are looked at again. The timer has a row of its own, so that a fetch finds the timers that are due. A scope with neither a debt nor a timer
//! needs no row.
//!
//! A fetch that starts items of a scope with a rate reads and writes the scope's row. A fetch that parks a key under it reads it with a conflict, and makes
//! sure that there is a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;
use futures::future::{try_join, try_join_all};
use mutant::{bound, mutant};

use crate::keys::after;
use crate::keys::keyed::KeyedSpace;
use crate::model::error::QueueError;
use crate::model::limits::RuleBook;
use crate::model::rate::Rate;
use crate::model::time::versions;
use crate::run::range_read::RangeRead;
use crate::run::{conflict, version};

/// How many neighbours of a new row, on each side, are looked at whether they are still needed.
const NEIGHBOURS: usize = 2;

/// The row of a timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Timer {
    pub(crate) version: u64,
    pub(crate) scope: Vec<u8>,
    pub(crate) detail: Detail,
}

/// The value of a timer's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Detail {
    /// The version at which it was set.
    set_at: u64,
    /// Whether a throttle has set it, and not the rate.
    throttled: bool,
}

impl Detail {
    fn encode(self) -> Vec<u8> {
        [&self.set_at.to_le_bytes()[..], &[u8::from(self.throttled)]].concat()
    }

    fn decode(value: &[u8]) -> Option<Detail> {
        let (set_at, rest) = value.split_first_chunk()?;
        Some(Detail { set_at: u64::from_le_bytes(*set_at), throttled: rest != [0] })
    }
}

impl Timer {
    /// Whether nothing of the scope starts before it. It does not count if its version has come; if it was set at a version that has not come, because versions went
    /// back; or if the rate set it, and would not set it now.
    fn closes(&self, rate: Option<Rate>, now: u64) -> bool {
        let Detail { set_at, throttled } = self.detail;
        let by_rate = || rate.is_some_and(|rate| self.version <= rate.latest(now));
        self.version > now && set_at <= now && (throttled || by_rate())
    }
}

/// What is known of one scope.
#[derive(Debug)]
struct Pace {
    rate: Option<Rate>,
    has_row: bool,
    paid: u64,
    timer: Option<Timer>,
    /// How many items may start. `None`: any number.
    starts: Option<u64>,
    /// Whether nothing starts before the timer.
    is_closed: bool,
    /// Whether all keys that wait for the timer are known to this fetch.
    all_known: bool,
}

impl Pace {
    /// The version of its timer; 0: it has none.
    fn version(&self) -> u64 {
        self.timer.as_ref().map_or(0, |timer| timer.version)
    }

    /// Whether it has paid further ahead than its rate lets it: an earlier rate did, or versions went back.
    fn is_wrong(&self, now: u64) -> bool {
        self.rate.is_some_and(|rate| rate.is_too_far(self.paid, now))
    }
}

/// The timers, and what is known of scopes, at one version.
#[derive(Debug)]
pub(crate) struct Paces {
    now: u64,
    /// The first timers.
    timers: Vec<Timer>,
    /// Whether these are all.
    complete: bool,
    scopes: BTreeMap<Vec<u8>, Pace>,
}

impl Paces {
    /// Reads the first timers, without a conflict.
    pub(crate) async fn read(keyed: &KeyedSpace, tr: &Transaction, most: usize) -> Result<Paces, QueueError> {
        let first = RangeRead::of(keyed.timer_range()).limit(most).page(tr);
        let (now, page) = try_join(version::now(tr), first).await?;
        let timer = |row: &FdbKeyValue| {
            let (version, scope) = keyed.decode_timer(row.key())?;
            Some(Timer { version, scope, detail: Detail::decode(row.value())? })
        };
        let timers = page.iter().filter_map(timer).collect();
        Ok(Paces { now, timers, complete: !page.has_more(), scopes: BTreeMap::new() })
    }

    /// Scopes whose timers are due.
    pub(crate) fn due(&self, book: &RuleBook) -> Vec<Vec<u8>> {
        let due = self.timers.iter().filter(|timer| !timer.closes(book.limits(&timer.scope).rate, self.now));
        due.map(|timer| timer.scope.clone()).collect()
    }

    /// The version of the first timer that is not due.
    pub(crate) fn next(&self, book: &RuleBook) -> Option<u64> {
        let waiting =
            self.timers.iter().filter(|timer| timer.closes(book.limits(&timer.scope).rate, self.now));
        waiting.map(|timer| timer.version).min()
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Reads what these scopes may start.
    pub(crate) async fn learn(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        book: &RuleBook,
        scopes: impl Iterator<Item = &[u8]>,
    ) -> Result<(), QueueError> {
        let known = &*self;
        let unknown: BTreeSet<&[u8]> = scopes.filter(|scope| !known.scopes.contains_key(*scope)).collect();
        let read = unknown.into_iter().map(async |scope| {
            let rate = book.limits(scope).rate;
            let listed = known.timers.iter().find(|timer| timer.scope == scope);
            if rate.is_none() && listed.is_none() && known.complete {
                return Ok(None);
            }
            let row = read(keyed, tr, scope, true).await?;
            let pace = known.pace(keyed, tr, scope, rate, row, listed).await?;
            Ok::<_, QueueError>(Some((scope.to_vec(), pace)))
        });
        let read = try_join_all(read).await?;
        self.scopes.extend(read.into_iter().flatten());
        Ok(())
    }

    async fn pace(
        &self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        scope: &[u8],
        rate: Option<Rate>,
        row: Option<Row>,
        listed: Option<&Timer>,
    ) -> Result<Pace, QueueError> {
        let Row { paid, timer: version } = row.unwrap_or_default();
        let timer = match listed {
            Some(timer) => Some(timer.clone()),
            None if version == 0 => None,
            None => {
                let detail = tr.get(&keyed.timer_key(version, scope), true).await?;
                let detail = detail.and_then(|value| Detail::decode(&value));
                detail.map(|detail| Timer { version, scope: scope.to_vec(), detail })
            }
        };
        let is_closed = timer.as_ref().is_some_and(|timer| timer.closes(rate, self.now));
        let starts = if is_closed { Some(0) } else { rate.map(|rate| rate.starts(paid, self.now)) };
        Ok(Pace { rate, has_row: row.is_some(), paid, timer, starts, is_closed, all_known: false })
    }

    /// How many items of a scope may start. `None`: any number.
    pub(crate) fn starts(&self, scope: &[u8]) -> Option<u64> {
        self.scopes.get(scope)?.starts
    }

    /// From which version on a scope that may start nothing may do so again.
    pub(crate) fn opens_at(&self, scope: &[u8]) -> Option<u64> {
        let pace = self.scopes.get(scope)?;
        match (&pace.timer, pace.rate) {
            (Some(timer), _) if pace.is_closed => Some(timer.version),
            (_, Some(rate)) => Some(rate.ready_at(pace.paid, self.now)),
            _ => None,
        }
    }

    /// Whether a throttle keeps a scope from starting anything.
    pub(crate) fn is_throttled(&self, scope: &[u8]) -> bool {
        let pace = self.scopes.get(scope).filter(|pace| pace.is_closed);
        pace.and_then(|pace| pace.timer.as_ref()).is_some_and(|timer| timer.detail.throttled)
    }

    /// Notes that the fetch knows all keys which wait for the scope's timer.
    pub(crate) fn note_all_known(&mut self, scope: &[u8]) {
        if let Some(pace) = self.scopes.get_mut(scope) {
            pace.all_known = true;
        }
    }

    /// Whether there is something to write though nothing starts: a timer that is to be moved or cleared, a debt from an earlier rate. `waiting` as in
    /// [`write`](Paces::write).
    pub(crate) fn change(&self, waiting: &BTreeSet<&[u8]>) -> bool {
        self.scopes.iter().any(|(scope, pace)| {
            let waits = waiting.contains(scope.as_slice());
            (waits || pace.all_known)
                && (pace.is_wrong(self.now) || self.after(pace, 0, waits).1 != pace.version())
        })
    }

    /// Writes what scopes have paid, and their timers. `started`: how many items of each scope start; `waiting`: the scopes under which
    /// keys are parked, or stay parked, as far as the fetch knows.
    pub(crate) async fn write(
        &self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        started: &BTreeMap<&[u8], u64>,
        waiting: &BTreeSet<&[u8]>,
    ) -> Result<(), QueueError> {
        for (scope, pace) in &self.scopes {
            let started = started.get(scope.as_slice()).copied().unwrap_or_default();
            let waits = waiting.contains(scope.as_slice());
            if !waits && started == 0 && !pace.all_known {
                continue;
            }
            let (paid, timer) = self.after(pace, started, waits);
            if !mutant("rate-without-conflict") {
                conflict::as_reader(tr, &keyed.rate_key(scope))?;
            }
            let before = pace.version();
            if started == 0 && timer == before && !pace.is_wrong(self.now) {
                continue;
            }
            if timer != before {
                let detail = Detail { set_at: self.now, throttled: false };
                move_timer(keyed, tr, scope, before, timer, detail);
            }
            if paid > self.now || timer != 0 {
                tr.set(&keyed.rate_key(scope), &Row { paid, timer }.encode());
                if !pace.has_row {
                    self.forget_neighbours(keyed, tr, scope).await?;
                }
            } else if pace.has_row {
                tr.clear(&keyed.rate_key(scope));
            }
        }
        Ok(())
    }

    /// Up to which version a scope has paid after this fetch, and its timer; 0: none.
    fn after(&self, pace: &Pace, started: u64, waits: bool) -> (u64, u64) {
        let timer = pace.version();
        let paid = pace.rate.map_or(pace.paid, |rate| rate.pay(pace.paid, self.now, started));
        if pace.is_closed {
            return (paid, timer);
        }
        let waits = waits || (timer != 0 && !pace.all_known);
        let timer = match pace.rate {
            _ if !waits => 0,
            Some(rate) if rate.starts(paid, self.now) == 0 => rate.ready_at(paid, self.now),
            // More may start: it stays due.
            _ if timer != 0 && timer <= self.now => timer,
            _ => self.now,
        };
        (paid, timer)
    }

    /// Clears rows near a new one that have no effect any more, so that rows of unused keys do not gather.
    async fn forget_neighbours(
        &self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        scope: &[u8],
    ) -> Result<(), QueueError> {
        let (begin, end) = keyed.rate_range();
        let own = keyed.rate_key(scope);
        let first =
            |range, reverse| RangeRead::of(range).reverse(reverse).limit(NEIGHBOURS).growing().page(tr);
        let behind = first((after(&own), end), false);
        let (before, behind) = try_join(first((begin, own), true), behind).await?;
        for row in before.iter().chain(behind.iter()) {
            // A row that a later version wrote stays.
            if Row::decode(row.value()).is_some_and(|row| row.is_needless(self.now)) {
                conflict::as_reader(tr, row.key())?;
                tr.clear(row.key());
            }
        }
        Ok(())
    }
}

/// The row of a scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Row {
    paid: u64,
    /// 0: none.
    timer: u64,
}

impl Row {
    /// Whether it has no effect at this version, and later.
    fn is_needless(self, now: u64) -> bool {
        self.timer == 0 && self.paid <= now
    }

    fn encode(self) -> Vec<u8> {
        [self.paid.to_le_bytes(), self.timer.to_le_bytes()].concat()
    }

    fn decode(value: &[u8]) -> Option<Row> {
        let (paid, timer) = value.split_first_chunk()?;
        Some(Row { paid: u64::from_le_bytes(*paid), timer: u64::from_le_bytes(timer.try_into().ok()?) })
    }
}

async fn read(
    keyed: &KeyedSpace,
    tr: &Transaction,
    scope: &[u8],
    snapshot: bool,
) -> Result<Option<Row>, QueueError> {
    let row = tr.get(&keyed.rate_key(scope), snapshot).await?;
    Ok(row.and_then(|value| Row::decode(&value)))
}

/// Moves a scope's timer from a version to another; 0: none. It wakes nobody: idle consumers were woken when the key that waits now became active.
fn move_timer(keyed: &KeyedSpace, tr: &Transaction, scope: &[u8], from: u64, to: u64, detail: Detail) {
    if from != 0 {
        tr.clear(&keyed.timer_key(from, scope));
    }
    if to != 0 {
        tr.set(&keyed.timer_key(to, scope), &detail.encode());
    }
}

/// The longest throttle, in versions: a day.
const LONGEST: u64 = 86_400_000_000;

/// Lets nothing of a scope start for a time. A throttle that ends later stays.
pub(crate) async fn throttle(
    keyed: &KeyedSpace,
    tr: &Transaction,
    scope: &[u8],
    wait: Duration,
) -> Result<(), QueueError> {
    let (now, row) = try_join(version::now(tr), read(keyed, tr, scope, false)).await?;
    let Row { paid, timer } = row.unwrap_or_default();
    let until = now.saturating_add(versions(wait).min(LONGEST)).max(1);
    let before = if timer == 0 { None } else { tr.get(&keyed.timer_key(timer, scope), true).await? };
    let before = before.and_then(|value| Detail::decode(&value));
    if timer >= until && before.is_some_and(|before| before.throttled && before.set_at <= now) {
        return Ok(());
    }
    move_timer(keyed, tr, scope, timer, until, Detail { set_at: now, throttled: true });
    tr.set(&keyed.rate_key(scope), &Row { paid, timer: until }.encode());
    Ok(())
}

/// How many rows one transaction looks at whether they are still needed.
fn page_rows() -> usize {
    bound("rates-page", 500)
}

/// Clears those of a page of rows, from `from` on, that have no effect any more. Fetches clear such rows near new ones only, so those of keys that do not come back would stay. Returns how many it
/// has cleared, and where the next page begins: at the front, if that is empty.
pub(crate) async fn forget_page(
    keyed: &KeyedSpace,
    tr: &Transaction,
    from: &[u8],
) -> Result<(usize, Vec<u8>), QueueError> {
    let (first, end) = keyed.rate_range();
    let page = RangeRead::of((first.max(from.to_vec()), end)).limit(page_rows()).page(tr).await?;
    let now = version::now(tr).await?;
    let needless: Vec<_> = page
        .iter()
        .filter(|row| Row::decode(row.value()).is_some_and(|row| row.is_needless(now)))
        .map(|row| row.key().to_vec())
        .collect();
    for row in &needless {
        conflict::as_reader(tr, row)?;
        tr.clear(row);
    }
    Ok((needless.len(), page.next().unwrap_or_default()))
}
