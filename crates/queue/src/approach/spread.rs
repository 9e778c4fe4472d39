//! Each process a stretch of its own, as far apart as conflicts demand.

use super::{Place, Staged};
use crate::id::ItemId;
use crate::rng::Rng;

/// The state of [`Approach::Spread`](super::Approach::Spread).
///
/// It begins at the front and stays there, in strict order, until a take loses against another process. Then it jumps to a place at
/// random within a *window* of the first items and goes on from there, each take behind the one before; after some takes, or where
/// the queue ends, it goes back and jumps anew, so that nothing at the front waits for long. A conflict doubles the window, each
/// take without one narrows it a little: it settles where one or two takes in a hundred conflict, however many processes take,
/// and closes again for one that is alone.
///
/// Where the queue is too short to spread, all want the same few items, and each push wakes them all. There takes that conflict are
/// staged, with those that follow for a while, until the queue is long again.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The window in runs of K items. Below two it is closed.
    runs: f64,
    /// The last item of the take before, and how many takes may still go on behind it.
    stretch: Option<(ItemId, u32)>,
    /// How many takes in a row must find all they ask for before the queue counts as long enough to spread. While it is not 0, takes
    /// begin at the front.
    cramped: u32,
    staged: Staged,
}

/// What a take without a conflict leaves of the window. With doubling, 1 - this is about the share of conflicts that remains.
const NARROWER: f64 = 0.99;

/// The widest window in items: a jump walks over those that it skips.
const MAX_SKIP: usize = 10_000;

/// Takes between two jumps.
const STRETCH: u32 = 32;

/// After so many takes that found all they asked for, a queue that was short counts as long.
const LONG_AGAIN: u32 = 64;

impl Default for Spread {
    fn default() -> Spread {
        Spread { runs: 1.0, stretch: None, cramped: 0, staged: Staged::default() }
    }
}

impl Spread {
    /// Whether takes are staged for now.
    pub(super) fn is_staged(&self) -> bool {
        self.cramped > 0 && self.staged.asks()
    }

    /// The take under way is through, however it got its items.
    pub(super) fn done(&mut self) {
        self.staged.done();
    }

    /// The take under way was served. Those who serve hand out what a take of its own would get, so a full one tells as much; another
    /// may have been cut by what those before it got.
    pub(super) fn served(&mut self, full: bool) {
        if full {
            self.note(true);
        }
        self.staged.done();
    }

    pub(super) fn place(&self, k: usize, rng: &mut Rng) -> Place {
        if self.cramped > 0 {
            return Place::default();
        }
        match &self.stretch {
            Some((last, _)) => Place { behind: Some(last.clone()), skip: 0 },
            None => {
                let most = (MAX_SKIP / k).max(1);
                Place { behind: None, skip: k * rng.below((self.runs as usize).clamp(1, most)) }
            }
        }
    }

    pub(super) fn conflicted(&mut self, full: bool) {
        self.stretch = None;
        if !full {
            self.cramped = LONG_AGAIN;
        }
        if self.cramped > 0 {
            self.staged.conflicted();
        } else {
            self.runs = (self.runs * 2.0).min(MAX_SKIP as f64);
        }
    }

    pub(super) fn committed(&mut self, full: bool, last: &ItemId) {
        self.note(full);
        self.staged.done();
        self.runs = (self.runs * NARROWER).max(1.0);
        let left = self.stretch.as_ref().map_or(STRETCH, |(_, left)| left - 1);
        self.stretch = (self.runs >= 2.0 && left > 0).then(|| (last.clone(), left));
    }

    pub(super) fn short(&mut self) {
        self.note(false);
        self.runs = (self.runs / 2.0).max(1.0);
        self.stretch = None;
    }

    /// A take found all it asked for, or not.
    fn note(&mut self, full: bool) {
        self.cramped = if full { self.cramped.saturating_sub(1) } else { LONG_AGAIN };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Stamp;
    use crate::session::SessionId;

    fn fresh() -> (Spread, Rng, ItemId) {
        (Spread::default(), Rng::of(SessionId([7; 16])), Stamp::from([1; 12]).into())
    }

    #[test]
    fn alone_it_takes_the_first() {
        let (mut spread, mut rng, last) = fresh();
        for _ in 0..100 {
            assert!(spread.place(10, &mut rng).is_front());
            spread.committed(true, &last);
        }
    }

    #[test]
    fn a_conflict_leads_to_jumps_within_the_window() {
        let (mut spread, mut rng, _) = fresh();
        (0..5).for_each(|_| spread.conflicted(true));
        let places: Vec<_> = (0..1_000).map(|_| spread.place(10, &mut rng)).collect();
        assert!(
            places.iter().all(|place| place.behind.is_none() && place.skip % 10 == 0 && place.skip < 320)
        );
        assert!(places.iter().any(|place| place.skip >= 300) && places.iter().any(Place::is_front));
    }

    #[test]
    fn it_goes_on_behind_its_last_take_for_a_while() {
        let (mut spread, mut rng, last) = fresh();
        (0..8).for_each(|_| spread.conflicted(true));
        for _ in 0..STRETCH {
            spread.committed(true, &last);
            assert_eq!(spread.place(1, &mut rng), Place { behind: Some(last.clone()), skip: 0 });
        }
        spread.committed(true, &last);
        assert_eq!(spread.place(1, &mut rng).behind, None);
    }

    #[test]
    fn peace_and_a_short_queue_close_the_window() {
        let (mut spread, mut rng, last) = fresh();
        (0..5).for_each(|_| spread.conflicted(true));
        (0..500).for_each(|_| spread.committed(true, &last));
        assert!(spread.place(1, &mut rng).is_front());
        (0..5).for_each(|_| spread.conflicted(true));
        (0..5).for_each(|_| spread.short());
        (0..LONG_AGAIN).for_each(|_| spread.committed(true, &last));
        assert_eq!(spread, Spread::default());
    }

    #[test]
    fn full_takes_count_whoever_served_them() {
        let (mut spread, _, _) = fresh();
        spread.conflicted(false);
        (1..LONG_AGAIN).for_each(|_| spread.served(true));
        spread.conflicted(true);
        assert!(spread.is_staged());
        spread.served(false);
        spread.conflicted(true);
        assert!(spread.is_staged(), "a short one tells nothing");
        spread.served(true);
        spread.conflicted(true);
        assert!(!spread.is_staged());
    }

    #[test]
    fn the_window_is_bounded_in_items() {
        let (mut spread, mut rng, _) = fresh();
        (0..100).for_each(|_| spread.conflicted(true));
        for k in [1, 100, 10_000, 100_000] {
            assert!((0..100).all(|_| spread.place(k, &mut rng).skip < MAX_SKIP.max(k)));
        }
        assert!(spread.place(10_000, &mut rng).is_front());
    }

    #[test]
    fn where_the_queue_is_short_takes_that_conflict_are_staged_for_a_while() {
        let (mut spread, mut rng, last) = fresh();
        spread.conflicted(true);
        assert!(!spread.is_staged(), "a long queue has room for both");
        spread.conflicted(false);
        assert!(spread.is_staged());
        assert!(spread.place(1, &mut rng).is_front());
        (0..LONG_AGAIN).for_each(|_| spread.committed(true, &last));
        assert!(!spread.is_staged(), "the queue is long again");
        spread.conflicted(false);
        (0..100).for_each(|_| spread.committed(false, &last));
        assert!(!spread.is_staged(), "nobody else takes");
    }
}
