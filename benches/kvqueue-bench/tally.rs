//! Counting what was lost and what came twice.
//!
//! A bench's items are numbered: a payload begins with its number. Three notes are taken of each, in vectors of atomics, so that
//! no note waits for another: that its push was acknowledged, that it was seen, and when.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// The digits of a payload that are its number: text, since a payload that is not is longer in JSON.
pub(super) const NUMBER: usize = 8;

/// The most items of a cell.
pub(super) const MAX_ITEMS: u64 = (PAGES * PAGE) as u64;

/// Items on a page of a [`Sheet`].
const PAGE: usize = 1 << 16;

/// Pages of a sheet.
const PAGES: usize = 512;

/// A payload of this many bytes that begins with a number.
pub(super) fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = vec![b'.'; bytes.max(NUMBER)];
    let mut rest = number;
    for digit in payload[..NUMBER].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    payload
}

/// The number that a payload begins with.
fn number(payload: &[u8]) -> Option<u64> {
    std::str::from_utf8(payload.first_chunk::<NUMBER>()?).ok()?.parse().ok()
}

/// A note per item. Pages are made as they are needed.
struct Sheet<T> {
    pages: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> Sheet<T> {
    fn new() -> Self {
        Self { pages: (0..PAGES).map(|_| OnceLock::new()).collect() }
    }

    /// The note about an item; `None` for a number that no item can have.
    fn at(&self, number: u64) -> Option<&T> {
        let number = usize::try_from(number).ok()?;
        let page = self.pages.get(number / PAGE)?;
        Some(&page.get_or_init(|| (0..PAGE).map(|_| T::default()).collect())[number % PAGE])
    }
}

/// What is known of the items of one cell.
pub(super) struct Tally {
    begin: Instant,
    pushed: Sheet<AtomicBool>,
    seen: Sheet<AtomicBool>,
    /// When each was handled first, in nanoseconds since `begin`; 0: not yet.
    handled_at: Option<Sheet<AtomicU64>>,
    /// The number that the next item gets.
    next: AtomicU64,
    handled: AtomicU64,
    repeated: AtomicU64,
    invented: AtomicU64,
    /// How many handled items somebody waits for.
    awaited: AtomicU64,
    reached: Notify,
}

/// What should not be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Acknowledged, and never seen again.
    pub(super) lost: u64,
    /// Times that an item was seen after the first time.
    pub(super) repeated: u64,
    /// Seen, though nobody has pushed it.
    pub(super) invented: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            begin: Instant::now(),
            pushed: Sheet::new(),
            seen: Sheet::new(),
            handled_at: None,
            next: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            invented: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
        }
    }

    /// One that also notes when items are handled.
    pub(super) fn with_times() -> Self {
        Self { handled_at: Some(Sheet::new()), ..Self::new() }
    }

    /// Numbers for `n` new items: this one and those after it. `None` when there are no more.
    pub(super) fn number(&self, n: u64) -> Option<u64> {
        let first = self.next.fetch_add(n, Relaxed);
        (first + n <= MAX_ITEMS).then_some(first)
    }

    /// The pushes of these items were acknowledged.
    pub(super) fn pushed(&self, first: u64, n: u64) {
        for number in first..first + n {
            if let Some(pushed) = self.pushed.at(number) {
                pushed.store(true, Relaxed);
            }
        }
    }

    /// A handler has got these payloads.
    pub(super) fn handled<'p>(&self, payloads: impl Iterator<Item = &'p [u8]>) {
        let at = self.handled_at.as_ref().map(|sheet| (sheet, self.nanos(Instant::now())));
        let mut new = 0;
        for number in payloads.filter_map(|payload| self.see(payload)) {
            new += 1;
            if let Some((sheet, now)) = at
                && let Some(at) = sheet.at(number)
            {
                at.store(now, Relaxed);
            }
        }
        let before = self.handled.fetch_add(new, Relaxed);
        if (before..before + new).contains(&(self.awaited.load(Relaxed).wrapping_sub(1))) {
            self.reached.notify_one();
        }
    }

    /// A payload was found in the queue, after everybody had stopped.
    pub(super) fn found(&self, payload: &[u8]) {
        self.see(payload);
    }

    /// Notes that an item was seen; its number if that was the first time.
    fn see(&self, payload: &[u8]) -> Option<u64> {
        let known = number(payload).filter(|number| *number < self.next.load(Relaxed));
        let Some((number, seen)) = known.and_then(|number| Some((number, self.seen.at(number)?))) else {
            self.invented.fetch_add(1, Relaxed);
            return None;
        };
        if seen.swap(true, Relaxed) {
            self.repeated.fetch_add(1, Relaxed);
            return None;
        }
        Some(number)
    }

    /// How many numbers were given out.
    pub(super) fn numbers(&self) -> u64 {
        self.next.load(Relaxed).min(MAX_ITEMS)
    }

    /// How many different items were handled so far.
    pub(super) fn count(&self) -> u64 {
        self.handled.load(Relaxed)
    }

    /// Waits until this number of different items was handled. One waits at a time.
    pub(super) async fn reaches(&self, count: u64) {
        self.awaited.store(count, Relaxed);
        while self.count() < count {
            // An item that is handled just now may pass by the number above: it is looked for again.
            let _ = tokio::time::timeout(Duration::from_millis(10), self.reached.notified()).await;
        }
    }

    /// A time as the tally notes it: never 0.
    pub(super) fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begin).as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// When the item was handled, in nanoseconds since the beginning; `None`: not yet, or it is not noted.
    pub(super) fn handled_at(&self, number: u64) -> Option<u64> {
        let at = self.handled_at.as_ref()?.at(number)?.load(Relaxed);
        (at > 0).then_some(at)
    }

    /// What should not be, when everything has been handled or found.
    pub(super) fn faults(&self) -> Faults {
        let is = |sheet: &Sheet<AtomicBool>, number| sheet.at(number).is_some_and(|note| note.load(Relaxed));
        let lost = (0..self.numbers()).filter(|number| is(&self.pushed, *number) && !is(&self.seen, *number));
        Faults {
            lost: lost.count() as u64,
            repeated: self.repeated.load(Relaxed),
            invented: self.invented.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(items: u64) -> Tally {
        let tally = Tally::with_times();
        let first = tally.number(items).unwrap();
        tally.pushed(first, items);
        tally
    }

    fn handle(tally: &Tally, numbers: &[u64]) {
        let payloads: Vec<_> = numbers.iter().map(|number| payload(*number, 100)).collect();
        tally.handled(payloads.iter().map(Vec::as_slice));
    }

    #[test]
    fn an_acknowledged_item_neither_handled_nor_found_is_lost() {
        let tally = tally(5);
        handle(&tally, &[0, 1]);
        tally.found(&payload(4, 8));
        assert_eq!(tally.faults(), Faults { lost: 2, repeated: 0, invented: 0 });
        assert_eq!(tally.count(), 2);
        assert!(tally.handled_at(1).is_some() && tally.handled_at(2).is_none());
    }

    #[test]
    fn an_unacknowledged_item_does_not_count_as_lost() {
        let tally = Tally::new();
        assert_eq!(tally.number(3), Some(0));
        tally.pushed(0, 1);
        handle(&tally, &[0, 2]);
        assert_eq!(tally.faults(), Faults::default());
    }

    #[test]
    fn repeated_items_are_counted_each_time() {
        let tally = tally(3);
        handle(&tally, &[0, 1, 1, 2]);
        handle(&tally, &[2]);
        tally.found(&payload(2, 8));
        assert_eq!(tally.faults(), Faults { lost: 0, repeated: 3, invented: 0 });
    }

    #[test]
    fn an_item_that_was_not_pushed_counts_as_invented() {
        let tally = tally(3);
        handle(&tally, &[3, u64::MAX]);
        tally.found(b"short");
        assert_eq!(tally.faults(), Faults { lost: 3, repeated: 0, invented: 3 });
    }

    #[test]
    fn no_item_numbers_are_given_out_above_the_limit() {
        let tally = Tally::new();
        assert_eq!(tally.number(MAX_ITEMS - 1), Some(0));
        assert_eq!(tally.number(2), None);
    }

    #[tokio::test]
    async fn reaches_resolves_when_the_count_is_reached() {
        let tally = tally(3);
        tokio::join!(tally.reaches(3), async { handle(&tally, &[0, 1, 2]) });
    }
}
