//! Where takes that go on at the same time look for their items, so that they do not conflict.

use crate::id::ItemId;
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
    /// From the front, one take for all that conflict: the recipe's high-contention dequeue.
    Staged(Staged),
}

/// The state of [`Approach::Staged`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Staged {
    /// How many takes from now on ask at once: those after one that lost.
    asks: u32,
}

/// The state of [`Approach::Spread`].
///
/// It begins at the front and stays there, in strict order, until a take loses against another process. Then it jumps to a place at
/// random within a *window* of the first items and goes on from there, each take behind the one before; after some takes, or where
/// the queue ends, it goes back and jumps anew, so that nothing at the front waits for long. A conflict doubles the window, each
/// take without one narrows it a little: it settles where one or two takes in a hundred conflict, however many processes take,
/// and closes again for one that is alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The window in runs of K items. Below two it is closed.
    runs: f64,
    /// The last item of the take before, and how many takes may still go on behind it.
    stretch: Option<(ItemId, u32)>,
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

/// How many takes ask at once after one that lost. Where takes lose, the next ones do too; and one that is alone again soon stops.
const ASKS: u32 = 64;

impl Default for Spread {
    fn default() -> Spread {
        Spread { runs: 1.0, stretch: None }
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
    /// Where a take of `k` items looks for them.
    pub(crate) fn place(&self, k: usize, rng: &mut Rng) -> Place {
        match self {
            Approach::Front | Approach::Staged(_) => Place::default(),
            Approach::Spread(Spread { stretch: Some((last, _)), .. }) => {
                Place { behind: Some(last.clone()), skip: 0 }
            }
            Approach::Spread(Spread { runs, .. }) => {
                let most = (MAX_SKIP / k).max(1);
                Place { behind: None, skip: k * rng.below((*runs as usize).clamp(1, most)) }
            }
        }
    }

    /// A take lost against another.
    pub(crate) fn conflicted(&mut self) {
        match self {
            Approach::Front => {}
            Approach::Spread(spread) => {
                spread.runs = (spread.runs * 2.0).min(MAX_SKIP as f64);
                spread.stretch = None;
            }
            Approach::Staged(staged) => staged.asks = ASKS,
        }
    }

    /// A take committed whose last item was `last`.
    pub(crate) fn committed(&mut self, last: &ItemId) {
        match self {
            Approach::Front => {}
            Approach::Spread(spread) => {
                spread.runs = (spread.runs * NARROWER).max(1.0);
                let left = spread.stretch.as_ref().map_or(STRETCH, |(_, left)| left - 1);
                spread.stretch = (spread.runs >= 2.0 && left > 0).then(|| (last.clone(), left));
            }
            Approach::Staged(_) => self.left(),
        }
    }

    /// Whether takes ask to be served where they conflict.
    pub(crate) fn is_staged(&self) -> bool {
        matches!(self, Approach::Staged(_))
    }

    /// Whether the take under way asks without trying the front: it, or one shortly before it, has lost.
    pub(crate) fn asks(&self) -> bool {
        matches!(self, Approach::Staged(staged) if staged.asks > 0)
    }

    /// The take under way is through, or begins anew.
    pub(crate) fn left(&mut self) {
        if let Approach::Staged(staged) = self {
            staged.asks = staged.asks.saturating_sub(1);
        }
    }

    /// There were fewer items than asked for at a place that was not the front.
    pub(crate) fn short(&mut self) {
        if let Approach::Spread(spread) = self {
            spread.runs = (spread.runs / 2.0).max(1.0);
            spread.stretch = None;
        }
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
            approach.committed(&last);
        }
    }

    #[test]
    fn a_conflict_leads_to_jumps_within_the_window() {
        let (mut approach, mut rng, _) = spread();
        (0..5).for_each(|_| approach.conflicted());
        let places: Vec<_> = (0..1_000).map(|_| approach.place(10, &mut rng)).collect();
        assert!(
            places.iter().all(|place| place.behind.is_none() && place.skip % 10 == 0 && place.skip < 320)
        );
        assert!(places.iter().any(|place| place.skip >= 300) && places.iter().any(Place::is_front));
    }

    #[test]
    fn it_goes_on_behind_its_last_take_for_a_while() {
        let (mut approach, mut rng, last) = spread();
        (0..8).for_each(|_| approach.conflicted());
        for _ in 0..STRETCH {
            approach.committed(&last);
            assert_eq!(approach.place(1, &mut rng), Place { behind: Some(last.clone()), skip: 0 });
        }
        approach.committed(&last);
        assert_eq!(approach.place(1, &mut rng).behind, None);
    }

    #[test]
    fn peace_and_a_short_queue_close_the_window() {
        let (mut approach, mut rng, last) = spread();
        (0..5).for_each(|_| approach.conflicted());
        (0..500).for_each(|_| approach.committed(&last));
        assert!(approach.place(1, &mut rng).is_front());
        (0..5).for_each(|_| approach.conflicted());
        (0..5).for_each(|_| approach.short());
        assert_eq!(approach, Approach::default());
    }

    #[test]
    fn the_window_is_bounded_in_items() {
        let (mut approach, mut rng, _) = spread();
        (0..100).for_each(|_| approach.conflicted());
        for k in [1, 100, 10_000, 100_000] {
            assert!((0..100).all(|_| approach.place(k, &mut rng).skip < MAX_SKIP.max(k)));
        }
        assert!(approach.place(10_000, &mut rng).is_front());
    }

    #[test]
    fn the_front_stays_the_front() {
        let (_, mut rng, last) = spread();
        let mut approach = Approach::Front;
        approach.conflicted();
        approach.committed(&last);
        assert!(approach.place(1, &mut rng).is_front());
    }
}
