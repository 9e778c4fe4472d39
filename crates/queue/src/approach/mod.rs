//! Where takes that go on at the same time look for their items, so that they do not conflict.
//!
//! | file | role |
//! |---|---|
//! | `spread` | each process a stretch of its own |
//! | `patience` | holding back where the queue is too short for that |
//! | `staged` | one take for all that conflict |

mod patience;
mod spread;
mod staged;

use std::time::Duration;

pub use spread::Spread;
pub use staged::Staged;

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

/// Where a take looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Place {
    /// Behind this item; `None`: from the front.
    pub(crate) behind: Option<ItemId>,
    /// So many items are passed over.
    pub(crate) skip: usize,
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
            Approach::Spread(spread) => spread.wait(random),
            Approach::Front | Approach::Staged(_) => Duration::ZERO,
        }
    }

    /// Where a take of `k` items looks for them.
    pub(crate) fn place(&self, k: usize, rng: &mut Rng) -> Place {
        match self {
            Approach::Spread(spread) => spread.place(k, rng),
            Approach::Front | Approach::Staged(_) => Place::default(),
        }
    }

    /// A take that had found as many items as it asked for, or not, lost against another. Says whether it leaves them to that one.
    pub(crate) fn conflicted(&mut self, full: bool) -> bool {
        match self {
            Approach::Front => false,
            Approach::Spread(spread) => spread.conflicted(full),
            Approach::Staged(staged) => {
                staged.conflicted();
                false
            }
        }
    }

    /// A take committed that found as many items as it asked for, or not, and whose last item was `last`.
    pub(crate) fn committed(&mut self, full: bool, last: &ItemId) {
        match self {
            Approach::Front => {}
            Approach::Spread(spread) => spread.committed(full, last),
            Approach::Staged(staged) => *staged = Staged::default(),
        }
    }

    /// There was nothing at a place that was not the front.
    pub(crate) fn short(&mut self) {
        if let Approach::Spread(spread) = self {
            spread.short();
        }
    }

    /// Whether takes ask to be served where they conflict.
    pub(crate) fn is_staged(&self) -> bool {
        matches!(self, Approach::Staged(_))
    }

    /// Whether the take under way lost and is to ask.
    pub(crate) fn has_lost(&self) -> bool {
        matches!(self, Approach::Staged(staged) if staged.has_lost())
    }

    /// Whether the take under way, which has asked, serves the line; `is_next` if it stands first.
    pub(crate) fn serves(&self, is_next: bool) -> bool {
        matches!(self, Approach::Staged(staged) if staged.serves(is_next))
    }

    /// The take under way waits for its turn.
    pub(crate) fn waited(&mut self) {
        if let Approach::Staged(staged) = self {
            staged.waited();
        }
    }

    /// The take under way has taken its request back, and begins anew.
    pub(crate) fn left(&mut self) {
        if let Approach::Staged(staged) = self {
            staged.left();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Stamp;
    use crate::session::SessionId;

    #[test]
    fn the_front_stays_the_front() {
        let (mut approach, mut rng) = (Approach::Front, Rng::of(SessionId([7; 16])));
        assert!(!approach.conflicted(false));
        approach.committed(true, &Stamp::from([1; 12]).into());
        assert!(approach.place(1, &mut rng).is_front());
        assert_eq!(approach.wait(1), Duration::ZERO);
    }
}
