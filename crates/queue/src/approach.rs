//! Where takes that go on at the same time look for their items, so that they do not conflict.

use crate::rng::Rng;

/// How a take chooses among the ready items.
///
/// Shared by the takes of one process that take turns; each process has its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Approach {
    /// Always the first items: the Erlang program's way. Strict order; takes of several processes conflict on them.
    Front,
    /// A run of items at random within a window that is as wide as conflicts demand.
    Spread(Spread),
}

/// The window of [`Approach::Spread`], counted in runs of K items.
///
/// It begins with one run, the first items, so a process that is alone takes strictly in order. A conflict doubles it, and each
/// take without one narrows it a little, so it settles where about three takes in a hundred conflict, however many take.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    runs: f64,
}

/// What a take without a conflict leaves of the window. With doubling, 1 - this is about the share of conflicts that remains.
const NARROWER: f64 = 0.98;

/// The widest window in items: the database walks over those that are skipped.
const MAX_SKIP: usize = 10_000;

impl Default for Spread {
    fn default() -> Spread {
        Spread { runs: 1.0 }
    }
}

impl Default for Approach {
    fn default() -> Approach {
        Approach::Spread(Spread::default())
    }
}

impl Approach {
    /// How many items a take of `k` passes over.
    pub(crate) fn skip(&self, k: usize, rng: &mut Rng) -> usize {
        match self {
            Approach::Front => 0,
            Approach::Spread(spread) => {
                let most = (MAX_SKIP / k).max(1);
                k * rng.below((spread.runs as usize).clamp(1, most))
            }
        }
    }

    /// A take lost against another.
    pub(crate) fn conflicted(&mut self) {
        if let Approach::Spread(spread) = self {
            spread.runs = (spread.runs * 2.0).min(MAX_SKIP as f64);
        }
    }

    /// A take found its items and committed.
    pub(crate) fn committed(&mut self) {
        if let Approach::Spread(spread) = self {
            spread.runs = (spread.runs * NARROWER).max(1.0);
        }
    }

    /// There were fewer items than the window is wide.
    pub(crate) fn short(&mut self) {
        if let Approach::Spread(spread) = self {
            spread.runs = (spread.runs / 2.0).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionId;

    #[test]
    fn alone_it_takes_the_first() {
        let (mut approach, mut rng) = (Approach::default(), Rng::of(SessionId([7; 16])));
        for _ in 0..100 {
            assert_eq!(approach.skip(10, &mut rng), 0);
            approach.committed();
        }
    }

    #[test]
    fn conflicts_widen_the_window_and_peace_narrows_it() {
        let (mut approach, mut rng) = (Approach::default(), Rng::of(SessionId([7; 16])));
        (0..5).for_each(|_| approach.conflicted());
        let skips: Vec<_> = (0..1_000).map(|_| approach.skip(10, &mut rng)).collect();
        assert!(skips.iter().all(|skip| skip % 10 == 0 && *skip < 320));
        assert!(skips.iter().any(|skip| *skip >= 300) && skips.contains(&0));
        (0..300).for_each(|_| approach.committed());
        assert_eq!(approach, Approach::default());
    }

    #[test]
    fn the_window_is_bounded_in_items() {
        let (mut approach, mut rng) = (Approach::default(), Rng::of(SessionId([7; 16])));
        (0..100).for_each(|_| approach.conflicted());
        for k in [1, 100, 10_000, 100_000] {
            assert!((0..100).all(|_| approach.skip(k, &mut rng) < MAX_SKIP.max(k)));
        }
        assert_eq!(approach.skip(10_000, &mut rng), 0);
    }

    #[test]
    fn the_front_stays_the_front() {
        let (mut approach, mut rng) = (Approach::Front, Rng::of(SessionId([7; 16])));
        approach.conflicted();
        assert_eq!(approach.skip(1, &mut rng), 0);
    }
}
