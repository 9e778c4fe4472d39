//! Where takes that go on at the same time look for their items, so that they do not conflict.

use std::time::Duration;

use crate::id::ItemId;
use crate::patience::Patience;
use crate::rng::Rng;

/// How a take chooses among the ready items.
///
/// Shared by the takes of one process that take turns; each process has its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Approach {
    /// Always the first items: the Erlang program's way. Strict order; takes of several processes conflict on them.
    Front,
    /// Each process a stretch of its own, as far apart as conflicts demand.
    Spread(Spread),
}

/// The state of [`Approach::Spread`].
///
/// It begins at the front and stays there, in strict order, until a take loses against another process. Then it jumps to a place at
/// random within a *window* of the first items and goes on from there, each take behind the one before; after some takes, or where
/// the queue ends, it goes back and jumps anew, so that nothing at the front waits for long. A conflict doubles the window, each
/// take without one narrows it a little: it settles where one or two takes in a hundred conflict, however many processes take,
/// and closes again for one that is alone.
///
/// Where the queue is too short to spread, a take that loses leaves the items to the winner, and its process waits before it takes
/// again ([`Approach::wait`]): longer each time it loses, and less when it wins. Soon one process takes at once and the others come
/// to look now and then.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The window in runs of K items. Below two it is closed.
    runs: f64,
    /// The last item of the take before, and how many takes may still go on behind it.
    stretch: Option<(ItemId, u32)>,
    /// How many takes in a row must find all they ask for before the queue counts as long enough to spread. While it is not 0, takes
    /// begin at the front, and those that lose hold back.
    cramped: u32,
    patience: Patience,
}

/// Where a take looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Place {
    /// Behind this item; `None`: from the front.
    pub(crate) behind: Option<ItemId>,
    /// So many items are passed over.
    pub(crate) skip: usize,
}

/// What a take without a conflict leaves of the window. With doubling, 1 - this is about the share of conflicts that remains.
const NARROWER: f64 = 0.99;

/// The widest window in items: a jump walks over those that it skips.
const MAX_SKIP: usize = 10_000;

/// Takes between two jumps.
const STRETCH: u32 = 32;

/// After so many takes that found all they asked for, a queue that was short counts as long.
const LONG_AGAIN: u32 = 8;

impl Default for Spread {
    fn default() -> Spread {
        Spread { runs: 1.0, stretch: None, cramped: 0, patience: Patience::default() }
    }
}

impl Default for Approach {
    fn default() -> Approach {
        Approach::Spread(Spread::default())
    }
}

impl Place {
    pub(crate) fn is_front(&self) -> bool {
        *self == Place::default()
    }
}

impl Approach {
    /// How long to wait before the next take, so as not to lose a race for the last few items. `random` is any number.
    pub fn wait(&self, random: u64) -> Duration {
        match self {
            Approach::Spread(Spread { cramped: 1.., patience, .. }) => patience.wait(random),
            Approach::Front | Approach::Spread(_) => Duration::ZERO,
        }
    }

    /// Where a take of `k` items looks for them.
    pub(crate) fn place(&self, k: usize, rng: &mut Rng) -> Place {
        match self {
            Approach::Front | Approach::Spread(Spread { cramped: 1.., .. }) => Place::default(),
            Approach::Spread(Spread { stretch: Some((last, _)), .. }) => {
                Place { behind: Some(last.clone()), skip: 0 }
            }
            Approach::Spread(Spread { runs, .. }) => {
                let most = (MAX_SKIP / k).max(1);
                Place { behind: None, skip: k * rng.below((*runs as usize).clamp(1, most)) }
            }
        }
    }

    /// A take that had found as many items as it asked for, or not, lost against another. Says whether it leaves them to that one.
    pub(crate) fn conflicted(&mut self, full: bool) -> bool {
        let Approach::Spread(spread) = self else { return false };
        spread.note(full);
        spread.stretch = None;
        if spread.cramped > 0 {
            spread.patience.lost();
            return true;
        }
        spread.runs = (spread.runs * 2.0).min(MAX_SKIP as f64);
        false
    }

    /// A take committed that found as many items as it asked for, or not, and whose last item was `last`.
    pub(crate) fn committed(&mut self, full: bool, last: &ItemId) {
        let Approach::Spread(spread) = self else { return };
        spread.note(full);
        spread.patience.won();
        spread.runs = (spread.runs * NARROWER).max(1.0);
        let left = spread.stretch.as_ref().map_or(STRETCH, |(_, left)| left - 1);
        spread.stretch = (spread.runs >= 2.0 && left > 0).then(|| (last.clone(), left));
    }

    /// There was nothing at a place that was not the front.
    pub(crate) fn short(&mut self) {
        if let Approach::Spread(spread) = self {
            spread.note(false);
            spread.runs = (spread.runs / 2.0).max(1.0);
            spread.stretch = None;
        }
    }
}

impl Spread {
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

    fn spread() -> (Approach, Rng, ItemId) {
        (Approach::default(), Rng::of(SessionId([7; 16])), Stamp::from([1; 12]).into())
    }

    #[test]
    fn alone_it_takes_the_first() {
        let (mut approach, mut rng, last) = spread();
        for _ in 0..100 {
            assert!(approach.place(10, &mut rng).is_front());
            approach.committed(true, &last);
        }
    }

    #[test]
    fn a_conflict_leads_to_jumps_within_the_window() {
        let (mut approach, mut rng, _) = spread();
        (0..5).for_each(|_| _ = approach.conflicted(true));
        let places: Vec<_> = (0..1_000).map(|_| approach.place(10, &mut rng)).collect();
        assert!(
            places.iter().all(|place| place.behind.is_none() && place.skip % 10 == 0 && place.skip < 320)
        );
        assert!(places.iter().any(|place| place.skip >= 300) && places.iter().any(Place::is_front));
    }

    #[test]
    fn it_goes_on_behind_its_last_take_for_a_while() {
        let (mut approach, mut rng, last) = spread();
        (0..8).for_each(|_| _ = approach.conflicted(true));
        for _ in 0..STRETCH {
            approach.committed(true, &last);
            assert_eq!(approach.place(1, &mut rng), Place { behind: Some(last.clone()), skip: 0 });
        }
        approach.committed(true, &last);
        assert_eq!(approach.place(1, &mut rng).behind, None);
    }

    #[test]
    fn peace_and_a_short_queue_close_the_window() {
        let (mut approach, mut rng, last) = spread();
        (0..5).for_each(|_| _ = approach.conflicted(true));
        (0..500).for_each(|_| approach.committed(true, &last));
        assert!(approach.place(1, &mut rng).is_front());
        (0..5).for_each(|_| _ = approach.conflicted(true));
        (0..5).for_each(|_| approach.short());
        (0..LONG_AGAIN).for_each(|_| approach.committed(true, &last));
        assert_eq!(approach, Approach::default());
    }

    #[test]
    fn the_window_is_bounded_in_items() {
        let (mut approach, mut rng, _) = spread();
        (0..100).for_each(|_| _ = approach.conflicted(true));
        for k in [1, 100, 10_000, 100_000] {
            assert!((0..100).all(|_| approach.place(k, &mut rng).skip < MAX_SKIP.max(k)));
        }
        assert!(approach.place(10_000, &mut rng).is_front());
    }

    #[test]
    fn the_front_stays_the_front() {
        let (_, mut rng, last) = spread();
        let mut approach = Approach::Front;
        approach.conflicted(true);
        approach.committed(true, &last);
        assert!(approach.place(1, &mut rng).is_front());
    }

    #[test]
    fn where_the_queue_is_short_the_loser_leaves_it_to_the_winner_and_waits() {
        let (mut approach, mut rng, last) = spread();
        assert!(!approach.conflicted(true), "a long queue has room for both");
        assert_eq!(approach.wait(1), Duration::ZERO);
        assert!(approach.conflicted(false));
        assert!(approach.wait(1) > Duration::ZERO);
        assert!(approach.place(1, &mut rng).is_front());
        (0..100).for_each(|_| approach.committed(false, &last));
        assert_eq!(approach.wait(1), Duration::ZERO);
    }
}
