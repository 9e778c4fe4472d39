//! Where takes that go on at the same time look for their items, so that they do not conflict.

#[cfg(test)]
mod overtaking;
mod spread;
mod staged;

pub use spread::Spread;
pub use staged::Staged;

use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::place::{Extent, Place};
use crate::model::rng::Rng;

/// How a take chooses among the ready items.
///
/// Shared by the takes of one process that take turns; each process has its own.
///
/// | | order | conflicts | right for |
/// |---|---|---|---|
/// | `Front` | strict | all takes at a time but one, of several processes | one process; takes so rare that they do not meet |
/// | `Spread` | strict, until takes of several processes meet; then an item may be overtaken by a thousand runs for each process | few | throughput: the most items a second, however many processes |
/// | `Staged` | strict | few | strict order with several processes, where a take may cost more |
#[derive(Debug, Clone, PartialEq)]
pub enum Approach {
    /// Always the first items: the Erlang program's way. Strict order; takes of several processes conflict on them.
    Front,
    /// Each process a stretch of its own, as far apart as conflicts demand; staged where the queue is too short for that, and in a
    /// priority queue, whose order means more than that of pushes. So it needs a [`Sweeper`](crate::Sweeper), as [`Staged`](Approach::Staged) does.
    Spread(Spread),
    /// From the front, one take for all that conflict: the high-contention dequeue of FoundationDB's queue recipe.
    ///
    /// A take that loses asks to be served, and so do those after it for a while: they stand in a line, in the order in which they asked,
    /// and the first process serves all of them in one transaction. So a take under contention is two transactions, and a third, which
    /// takes up what it was served with, unless it has served itself. Needs a [`Sweeper`](crate::Sweeper), in at-most-once delivery too: what
    /// was served to a session that died meanwhile comes back after five seconds, and no attempt is spent.
    Staged(Staged),
}

impl Default for Approach {
    fn default() -> Approach {
        Approach::Spread(Spread::default())
    }
}

impl Approach {
    /// Where a take of `k` items looks for them.
    pub(crate) fn place(&mut self, k: usize, rng: &mut Rng) -> Place {
        match self {
            Approach::Spread(spread) => spread.place(k, rng),
            Approach::Front | Approach::Staged(_) => Place::default(),
        }
    }

    /// Adapts it to a queue of this kind: a priority queue is fetched strictly in order, since urgent items come in at the front while a
    /// stretch goes on behind it.
    pub(crate) fn suit(&mut self, kind: Kind) {
        if let (Approach::Spread(_), Kind::Priority(..)) = (&*self, kind) {
            *self = Approach::Staged(Staged::default());
        }
    }

    /// How many items there have to be for the queue to count as long; `None`: that is not to be found out.
    pub(crate) fn reach(&self, k: usize) -> Option<usize> {
        match self {
            Approach::Spread(spread) => spread.reach(k),
            Approach::Front | Approach::Staged(_) => None,
        }
    }

    /// A take lost against another that had seen so much of the queue.
    pub(crate) fn conflicted(&mut self, seen: Extent) {
        match self {
            Approach::Front => {}
            Approach::Spread(spread) => spread.conflicted(seen),
            Approach::Staged(staged) => staged.conflicted(),
        }
    }

    /// A take committed that had seen so much of the queue; its last item was `last`.
    pub(crate) fn committed(&mut self, seen: Extent, last: &ItemId) {
        match self {
            Approach::Front => {}
            Approach::Spread(spread) => spread.committed(seen, last),
            Approach::Staged(staged) => staged.done(),
        }
    }

    /// There was nothing at a place that was not the front, as far as was seen.
    pub(crate) fn beyond(&mut self, seen: Extent) {
        if let Approach::Spread(spread) = self {
            spread.beyond(seen);
        }
    }

    /// Whether takes ask to be served where they conflict.
    pub(crate) fn is_staged(&self) -> bool {
        match self {
            Approach::Front => false,
            Approach::Spread(spread) => spread.is_staged(),
            Approach::Staged(_) => true,
        }
    }

    /// Whether the take under way asks without trying the front: it, or one shortly before it, has lost.
    pub(crate) fn asks(&self) -> bool {
        match self {
            Approach::Front => false,
            Approach::Spread(spread) => spread.asks(),
            Approach::Staged(staged) => staged.asks(),
        }
    }

    /// The take under way was served by another, or has taken its request back and begins again.
    pub(crate) fn done(&mut self) {
        match self {
            Approach::Front => {}
            Approach::Spread(spread) => spread.done(),
            Approach::Staged(staged) => staged.done(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kind::{End, Packing};
    use crate::model::session_id::SessionId;
    use crate::model::stamp::Stamp;

    #[test]
    fn a_priority_queue_uses_the_staged_strategy() {
        let mut approach = Approach::default();
        approach.suit(Kind::Fifo);
        assert!(matches!(approach, Approach::Spread(_)));
        approach.suit(Kind::Priority(End::Min, Packing::Raw));
        assert_eq!(approach, Approach::Staged(Staged::default()));
    }

    #[test]
    fn front_strategy_fetches_from_the_front_despite_conflicts() {
        let (mut approach, mut rng) = (Approach::Front, Rng::of(SessionId([7; 16])));
        approach.conflicted(Extent::Short);
        approach.committed(Extent::Long, &Stamp::from([1; 12]).into());
        assert!(approach.place(1, &mut rng).is_front());
    }
}
