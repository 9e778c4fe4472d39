//! Each process a stretch of its own, as far apart as conflicts demand.

use super::Staged;
use crate::model::id::ItemId;
use crate::model::place::{Extent, Place};
use crate::model::rng::Rng;

/// The state of [`Approach::Spread`](super::Approach::Spread).
///
/// It begins at the front and stays there, in strict order, until a take loses against another process. Then it jumps to a place at
/// random within a *window* of the first items and goes on from there, each take behind the one before; after some takes, or where
/// the queue ends, it goes back and jumps again. Every eighth jump leads to the front, so that no item is overtaken without end. A conflict
/// widens the window, each take without one narrows it a little: it acknowledges where about one take in a hundred conflicts, however
/// many processes take, and closes again for one that is alone.
///
/// Where the queue is too short to spread, all want the same few items, and each push wakes them all. There takes that conflict are
/// staged. So are the fetches that follow, until the queue is long again.
///
/// A program that does not know of staged takes, such as one of the recipe's, always wins the first items if its transactions are
/// shorter. So after some staged takes that lost in a row, the takes that follow jump in the short queue, too, for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The window in runs of K items. Below two it is closed.
    runs: f64,
    /// The last item of the take before, and how many takes may still go on behind it.
    stretch: Option<(ItemId, u32)>,
    /// Jumps since the last one to the front.
    jumps: u32,
    /// From how many runs on a queue is long.
    long_from: usize,
    /// Whether it is, as far as is known. Where it is not known to be, takes look, if they have met others; where it is short, they begin at
    /// the front and are staged.
    extent: Extent,
    staged: Staged,
    /// Staged takes that lost in a row.
    lost: u32,
    /// How many takes from now on are not staged, however short the queue is.
    evasive: u32,
}

/// How many times as wide a conflict makes the window.
const WIDER: f64 = 4.0;

/// The factor by which a fetch without a conflict shrinks the window. The window keeps its size if one fetch in 138 conflicts: 0.99^138 is 1 / 4.
const NARROWER: f64 = 0.99;

/// One jump of this many leads to the front. Without such jumps the first items would wait until a jump leads there by chance.
const TO_THE_FRONT: u32 = 8;

/// The widest window in items.
const MAX_SKIP: usize = 20_000;

/// Takes between two jumps.
const STRETCH: u32 = 32;

/// After this many staged takes have conflicted in a row, takes are evasive.
const LOST: u32 = 3;

/// How many takes are evasive at a time.
const EVASIVE: u32 = 64;

/// The window that evasive takes begin with, in runs of K items.
const EVASIVE_RUNS: f64 = 8.0;

/// The default length of a long queue, in runs. Where a handful of processes spread over less, they conflict more often than staged.
const LONG: usize = 256;

impl Default for Spread {
    fn default() -> Spread {
        Spread::long_from(LONG)
    }
}

impl Spread {
    /// Fetches spread if the queue has this many runs of K items, 256 by default. If it has fewer, they are staged.
    pub fn long_from(runs: usize) -> Spread {
        Spread {
            runs: 1.0,
            stretch: None,
            jumps: 0,
            long_from: runs,
            extent: Extent::Unknown,
            staged: Staged::default(),
            lost: 0,
            evasive: 0,
        }
    }

    /// Whether takes are staged where they conflict.
    pub(super) fn is_staged(&self) -> bool {
        self.extent == Extent::Short && self.evasive == 0
    }

    /// Whether the take under way asks without trying the front.
    pub(super) fn asks(&self) -> bool {
        self.is_staged() && self.staged.asks()
    }

    /// How many items a queue has that counts as long; only if that is to be found out. The database counts them for that, which one that
    /// is alone need not pay for.
    pub(super) fn reach(&self, k: usize) -> Option<usize> {
        let has_met_others = self.runs > 1.0 || self.staged.asks();
        let looks = has_met_others && self.extent != Extent::Long;
        looks.then(|| k.saturating_mul(self.long_from).min(MAX_SKIP).max(k))
    }

    /// The take under way is through, however it got its items.
    pub(super) fn done(&mut self) {
        self.lost = 0;
        self.staged.done();
    }

    pub(super) fn place(&mut self, k: usize, rng: &mut Rng) -> Place {
        if self.is_staged() {
            return Place::default();
        }
        if let Some((last, _)) = &self.stretch {
            return Place { behind: Some(last.clone()), skip: 0 };
        }
        if self.runs >= 2.0 && self.is_to_the_front() {
            return Place::default();
        }
        let most = (MAX_SKIP / k).max(1);
        Place { behind: None, skip: k * rng.below((self.runs as usize).clamp(1, most)) }
    }

    /// Counts a jump; whether it leads to the front.
    fn is_to_the_front(&mut self) -> bool {
        self.jumps = (self.jumps + 1) % TO_THE_FRONT;
        self.jumps == 0
    }

    pub(super) fn conflicted(&mut self, seen: Extent) {
        self.stretch = None;
        self.look(seen);
        if self.is_staged() {
            self.staged.conflicted();
            self.lost += 1;
            if self.lost >= LOST {
                (self.lost, self.evasive) = (0, EVASIVE);
                self.runs = self.runs.max(EVASIVE_RUNS);
            }
        } else {
            self.runs = (self.runs * WIDER).min(MAX_SKIP as f64);
            self.extent = Extent::Unknown;
        }
    }

    pub(super) fn committed(&mut self, seen: Extent, last: &ItemId) {
        let left = self.stretch.as_ref().map_or(STRETCH, |(_, left)| left - 1);
        let opened = self.look(seen);
        self.done();
        self.evasive = self.evasive.saturating_sub(1);
        self.runs = (self.runs * NARROWER).max(1.0);
        // With a window that has just opened the others go on from the front, too.
        let goes_on = seen == Extent::Long && self.runs >= 2.0 && left > 0 && !opened;
        self.stretch = goes_on.then(|| (last.clone(), left));
    }

    /// Where takes were staged till now there are others, so the window opens as soon as the queue is seen to be long; returns whether it
    /// does.
    fn look(&mut self, seen: Extent) -> bool {
        let opens = seen == Extent::Long && self.asks();
        if opens {
            self.runs = self.runs.max((self.long_from / 2) as f64);
        }
        self.extent = seen;
        opens
    }

    pub(super) fn beyond(&mut self, seen: Extent) {
        self.stretch = None;
        self.extent = seen;
        self.runs /= 2.0;
        if seen == Extent::Long {
            // The queue has this many runs, so another jump will find something.
            self.runs = self.runs.min((self.long_from / 2) as f64);
        }
        self.runs = self.runs.max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use Extent::{Long, Short, Unknown};

    use super::*;
    use crate::model::session_id::SessionId;
    use crate::model::stamp::Stamp;

    /// Of a queue that is known to be long.
    fn fresh() -> (Spread, Rng, ItemId) {
        let last = Stamp::from([1; 12]).into();
        let mut spread = Spread::default();
        spread.committed(Long, &last);
        (spread, Rng::of(SessionId([7; 16])), last)
    }

    #[test]
    fn a_session_without_conflicts_fetches_from_the_front() {
        let (mut spread, mut rng, last) = fresh();
        for _ in 0..100 {
            assert!(spread.place(10, &mut rng).is_front());
            spread.committed(Long, &last);
        }
    }

    #[test]
    fn a_conflict_leads_to_jumps_within_the_window() {
        let (mut spread, mut rng, _) = fresh();
        (0..3).for_each(|_| spread.conflicted(Long));
        let places: Vec<_> = (0..1_000).map(|_| spread.place(10, &mut rng)).collect();
        assert!(
            places.iter().all(|place| place.behind.is_none() && place.skip % 10 == 0 && place.skip < 640)
        );
        assert!(places.iter().any(|place| place.skip >= 600) && places.iter().any(Place::is_front));
    }

    #[test]
    fn a_spread_session_continues_behind_its_last_fetch_for_a_stretch() {
        let (mut spread, mut rng, last) = fresh();
        (0..4).for_each(|_| spread.conflicted(Long));
        for _ in 0..STRETCH {
            spread.committed(Long, &last);
            assert_eq!(spread.place(1, &mut rng), Place { behind: Some(last.clone()), skip: 0 });
        }
        spread.committed(Long, &last);
        assert_eq!(spread.place(1, &mut rng).behind, None);
    }

    #[test]
    fn window_closes_without_conflicts_or_in_a_short_queue() {
        let (mut spread, mut rng, last) = fresh();
        let closed = Spread { jumps: 0, ..spread.clone() };
        (0..3).for_each(|_| spread.conflicted(Long));
        (0..500).for_each(|_| spread.committed(Long, &last));
        assert!(spread.place(1, &mut rng).is_front());
        (0..3).for_each(|_| spread.conflicted(Long));
        (0..6).for_each(|_| spread.beyond(Short));
        spread.committed(Long, &last);
        assert_eq!(Spread { jumps: 0, ..spread }, closed);
    }

    #[test]
    fn the_window_is_bounded_in_items() {
        let (mut spread, mut rng, _) = fresh();
        (0..100).for_each(|_| spread.conflicted(Long));
        for k in [1, 100, 10_000, 100_000] {
            assert!((0..100).all(|_| spread.place(k, &mut rng).skip < MAX_SKIP.max(k)));
        }
        assert!(spread.place(MAX_SKIP, &mut rng).is_front());
    }

    #[test]
    fn conflicting_fetches_of_a_short_queue_are_staged_for_a_while() {
        let (mut spread, mut rng, last) = fresh();
        spread.conflicted(Long);
        assert!(!spread.is_staged(), "a long queue has room for both");
        spread.conflicted(Short);
        assert!(spread.is_staged() && spread.asks());
        assert!(spread.place(1, &mut rng).is_front());
        spread.committed(Long, &last);
        assert!(!spread.is_staged(), "the queue is long again");
        spread.conflicted(Short);
        (0..100).for_each(|_| spread.committed(Short, &last));
        assert!(!spread.asks(), "nobody else takes");
    }

    #[test]
    fn after_lost_staged_fetches_a_short_queue_is_fetched_with_jumps() {
        let (mut spread, mut rng, last) = fresh();
        spread.conflicted(Short);
        (1..LOST).for_each(|_| spread.conflicted(Short));
        assert!(!spread.is_staged());
        assert!((0..100).map(|_| spread.place(1, &mut rng)).any(|place| place.skip > 0));
        (0..EVASIVE).for_each(|_| spread.committed(Short, &last));
        assert!(spread.is_staged(), "staged again");
        // One that was served in between has not lost in a row.
        for _ in 0..LOST {
            spread.conflicted(Short);
            spread.done();
        }
        assert!(spread.is_staged());
    }

    #[test]
    fn window_opens_when_staged_fetches_find_a_long_queue() {
        let (mut spread, mut rng, last) = fresh();
        spread.conflicted(Short);
        spread.committed(Long, &last);
        let places: Vec<_> = (0..1_000).map(|_| spread.place(1, &mut rng)).collect();
        assert!(places.iter().all(|place| place.behind.is_none() && place.skip < LONG / 2));
        assert!(places.iter().any(|place| place.skip > LONG / 4));
        let (mut alone, ..) = fresh();
        alone.beyond(Short);
        alone.committed(Long, &last);
        assert!(alone.place(1, &mut rng).is_front(), "nobody else takes");
    }

    #[test]
    fn a_stretch_ending_at_the_queues_end_leaves_its_length_unknown() {
        let (mut spread, mut rng, last) = fresh();
        (0..4).for_each(|_| spread.conflicted(Long));
        spread.committed(Long, &last);
        assert_eq!(spread.reach(10), None);
        spread.committed(Unknown, &last);
        assert!(!spread.is_staged() && spread.reach(10).is_some());
        assert!((0..100).map(|_| spread.place(1, &mut rng)).any(|place| place.skip > 0));
    }

    #[test]
    fn after_a_jump_beyond_the_end_the_next_jump_is_shorter() {
        let (mut spread, mut rng, _) = fresh();
        (0..100).for_each(|_| spread.conflicted(Long));
        spread.beyond(Long);
        let places: Vec<_> = (0..1_000).map(|_| spread.place(1, &mut rng)).collect();
        assert!(
            places.iter().all(|place| place.skip < LONG) && places.iter().any(|place| place.skip > LONG / 4)
        );
        spread.beyond(Short);
        assert!(spread.place(1, &mut rng).is_front());
    }

    #[test]
    fn queue_length_is_read_only_after_conflicts_while_unknown() {
        let (mut spread, _, last) = fresh();
        spread.committed(Short, &last);
        assert_eq!(spread.reach(10), None, "it is alone");
        spread.conflicted(Long);
        assert_eq!([1, 10, 1_000, 100_000].map(|k| spread.reach(k)), [256, 2_560, 20_000, 100_000].map(Some));
        spread.committed(Long, &last);
        assert_eq!(spread.reach(10), None, "it knows");
        for doubt in
            [|spread: &mut Spread| spread.beyond(Unknown), |spread: &mut Spread| spread.conflicted(Short)]
        {
            spread.conflicted(Long);
            doubt(&mut spread);
            assert!(spread.reach(10).is_some());
        }
        (0..500).for_each(|_| spread.committed(Short, &last));
        assert_eq!(spread.reach(10), None, "it is alone again");
    }
}
