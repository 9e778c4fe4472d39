//! The kinds of queues.

use std::fmt;

use crate::model::id::ItemId;
use crate::model::id_layout::{is_priority_id, is_queue_id};

/// How a queue's items are laid out, and in which order they are taken.
///
/// The two recipes are FoundationDB's own. Their items lie in the subspace of the name as a *text* element, as
/// `Subspace(('Q',))` in Python and `Tuple.from("Q")` in Java have it; what kvqueue stores next to them lies, like all of a FIFO
/// queue, under the name as a *byte string*.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// `(q, "val", stamp)`: the Erlang KvQueue. Items are taken in the order of their commits.
    #[default]
    Fifo,
    /// `(q, index, random)`: FoundationDB's queue recipe.
    Recipe(Packing),
    /// `(q, priority, count, random)`: FoundationDB's priority queue recipe, processed from one end.
    Priority(End, Packing),
    /// `(q, "kval", key, stamp)`: a small FIFO queue for each key. Keys take turns, and have limits.
    Keyed,
}

/// The packing of a recipe's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Packing {
    /// The payload, as the recipe's Python program has it.
    #[default]
    Raw,
    /// A tuple with the payload as its first element, as the recipe's Java programs have it.
    Tuple,
}

/// The end of a priority queue that items are taken from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    /// The lowest priority first.
    #[default]
    Min,
    /// The highest priority first.
    Max,
}

impl Kind {
    /// Whether items are taken from the end of their key range.
    pub(crate) fn takes_last(self) -> bool {
        matches!(self, Kind::Priority(End::Max, _))
    }

    /// The packing of its values.
    pub(crate) fn packing(self) -> Packing {
        match self {
            Kind::Fifo | Kind::Keyed => Packing::Raw,
            Kind::Recipe(packing) | Kind::Priority(_, packing) => packing,
        }
    }

    /// Whether its items have stamps, so that pushes come behind all items that there are: of the queue, or of their key.
    pub(crate) fn is_stamped(self) -> bool {
        matches!(self, Kind::Fifo | Kind::Keyed)
    }

    /// Whether a queue of this kind can have an item of this id.
    ///
    /// Queues of all kinds have their side records, leases and dead letters at the same places, and nothing stored says which kind it
    /// is. So a handle of the wrong kind would take what it finds there for its own, and look for the items where they are not.
    /// Items that foreign programs push to a recipe's queue may have ids of any layout except the layouts of other kinds.
    pub(crate) fn owns(self, id: &ItemId) -> bool {
        match self {
            Kind::Fifo => id.stamp().is_some(),
            Kind::Recipe(_) => !id.is_stamped() && !is_priority_id(id.as_bytes()),
            Kind::Priority(..) => !id.is_stamped() && !is_queue_id(id.as_bytes()),
            Kind::Keyed => id.key().is_some(),
        }
    }
}

impl Kind {
    /// The kind whose items have ids of this layout, if it is that of one.
    pub(crate) fn of_id(id: &ItemId) -> Option<&'static str> {
        match id.as_bytes() {
            _ if id.stamp().is_some() => Some(FIFO),
            _ if id.key().is_some() => Some(KEYED),
            bytes if is_queue_id(bytes) => Some(RECIPE),
            bytes if is_priority_id(bytes) => Some(PRIORITY),
            _ => None,
        }
    }

    /// As it is written in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fifo => FIFO,
            Kind::Recipe(_) => RECIPE,
            Kind::Priority(..) => PRIORITY,
            Kind::Keyed => KEYED,
        }
    }
}

const FIFO: &str = "fifo";
const RECIPE: &str = "recipe";
const PRIORITY: &str = "priority";
const KEYED: &str = "keyed";

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
