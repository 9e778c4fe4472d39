//! The result of a push, item by item.

use std::sync::Arc;

use crate::model::id::ItemId;
use crate::model::id_layout::suffix;
use crate::model::stamp::Stamp;

/// The result for one item of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedItem {
    /// The effect of the push.
    pub effect: PushEffect,
    /// The item that the queue has; `None` where that cannot be known: after a repetition in a recipe's queue, of items that
    /// an earlier version pushed next to others that it did not, and of very many duplicates.
    pub id: Option<ItemId>,
}

/// The effect of a push on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushEffect {
    /// It was added.
    Added,
    /// Nothing: an item of the same unique key waits, is delayed or is being handled.
    Duplicate,
    /// An item of the same unique key that waited has what was pushed; see [`IfTaken::Replace`](crate::IfTaken::Replace). Or a later
    /// item of the same push has replaced it.
    Replaced,
    /// Nothing: the operation had been done before, and had added it then. What the operation did not add then has the effect of then.
    Repeated,
}

/// Where an item is, as far as is known before its transaction has committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Its push number in the transaction, whose stamp will be the item's id.
    User(u16),
    /// The same, with what stands before the stamp: the key of an item as an element, or the number of its partition.
    Behind(Arc<[u8]>, u16),
    /// This is its id.
    Id(ItemId),
}

impl Spot {
    /// The item's id; `None` if it needs the stamp of its transaction and there is none.
    pub(crate) fn id(&self, transaction: Option<[u8; 10]>) -> Option<ItemId> {
        match self {
            Spot::User(user) => Some(Stamp::new(transaction?, *user).into()),
            Spot::Behind(before, user) => {
                let stamp = suffix(Stamp::new(transaction?, *user));
                Some(ItemId::new([before, stamp.as_slice()].concat().into()))
            }
            Spot::Id(id) => Some(id.clone()),
        }
    }
}

/// A push in a transaction that has not committed: what it does, item by item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingPush {
    /// Shared: the session keeps them next to the push that they are of.
    places: Arc<Vec<(PushEffect, Option<Spot>)>>,
    repetition: bool,
    /// The stamp of the transaction that did the same operation before; `None` if that is the same transaction.
    earlier: Option<[u8; 10]>,
}

impl PendingPush {
    /// The items of a push, before its transaction has committed.
    pub(crate) fn new(places: Vec<(PushEffect, Option<Spot>)>) -> PendingPush {
        PendingPush { places: Arc::new(places), repetition: false, earlier: None }
    }

    /// A push that was done before, and what became of its items then.
    pub(crate) fn repetition(
        transaction: Option<[u8; 10]>,
        places: impl Iterator<Item = (PushEffect, Option<Spot>)>,
    ) -> PendingPush {
        let again = |effect| if effect == PushEffect::Added { PushEffect::Repeated } else { effect };
        let places = places.map(|(effect, spot)| (again(effect), spot)).collect();
        PendingPush { places: Arc::new(places), repetition: true, earlier: transaction }
    }

    /// The same push done again.
    pub(crate) fn repeated(&self) -> PendingPush {
        PendingPush::repetition(self.earlier, self.places.iter().cloned())
    }

    pub(crate) fn places(&self) -> &[(PushEffect, Option<Spot>)] {
        &self.places
    }

    /// Whether the operation was done before, so that it adds nothing.
    pub fn is_repetition(&self) -> bool {
        self.repetition
    }

    /// How many items it adds.
    pub fn added(&self) -> usize {
        self.places.iter().filter(|(effect, _)| *effect == PushEffect::Added).count()
    }

    /// Whether it adds or replaces anything.
    pub(crate) fn writes(&self) -> bool {
        !self.repetition
            && self
                .places
                .iter()
                .any(|(effect, _)| matches!(effect, PushEffect::Added | PushEffect::Replaced))
    }

    /// The result for each item, once the transaction has committed with this stamp, which its `get_versionstamp` returns.
    pub fn items(&self, transaction: Option<[u8; 10]>) -> impl Iterator<Item = PushedItem> + use<'_> {
        let transaction = self.earlier.or(transaction);
        let item = move |(effect, spot): &(PushEffect, Option<Spot>)| PushedItem {
            effect: *effect,
            id: spot.as_ref().and_then(|spot| spot.id(transaction)),
        };
        self.places.iter().map(item)
    }
}
