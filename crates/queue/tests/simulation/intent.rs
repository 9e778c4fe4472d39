//! What a worker asks of the layer, and what it was when it committed.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use kvqueue_queue::{ItemId, LeaseId, SessionId, Settlement};

use crate::image::Image;
use crate::model::{Event, NewItem, Terms};

/// An operation of a worker.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The worker's name.
    pub(crate) worker: String,
    /// Counts up in each worker.
    pub(crate) number: u64,
    pub(crate) intent: Intent,
    /// The version of the last commit before it began.
    pub(crate) begun: u64,
    /// How many of its commits had an outcome that it was not told.
    pub(crate) unknown: Cell<u32>,
}

/// What an operation is to do.
#[derive(Debug, Clone)]
pub(crate) enum Intent {
    Push { items: Vec<NewItem> },
    Lease { session: SessionId, terms: Terms },
    Take { session: SessionId, terms: Terms },
    Settle { lease: LeaseId, settlements: Vec<(usize, Settlement)>, with_effects: bool },
    Close { session: SessionId },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{} {}", self.worker, self.number, self.intent.name())
    }
}

impl Intent {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Intent::Push { .. } => "push",
            Intent::Lease { .. } => "lease",
            Intent::Take { .. } => "take",
            Intent::Settle { settlements, .. } if settlements.is_empty() => "extend",
            Intent::Settle { .. } => "settle",
            Intent::Close { .. } => "close",
        }
    }

    /// What a transaction of this intent did that made `after` of `before`: which choices it made. Whether it may have made them is
    /// for the model to say, and whether it did nothing else.
    pub(crate) fn event(&self, before: &Image, after: &Image) -> Result<Event, String> {
        match self {
            Intent::Push { items } => pushed(items, before, after),
            Intent::Lease { terms, .. } => {
                let mut new = after.leases.iter().filter(|(id, _)| !before.leases.contains_key(id));
                let (Some((lease, held)), None) = (new.next(), new.next()) else {
                    return Err("a take made not one lease".to_owned());
                };
                let items = held.items.iter().map(|item| item.id.clone()).collect();
                Ok(Event::Leased { lease: *lease, items, terms: *terms })
            }
            Intent::Take { terms, .. } => {
                let gone = before.ready.keys().filter(|id| !after.ready.contains_key(id)).cloned().collect();
                Ok(Event::Taken { items: gone, terms: *terms })
            }
            Intent::Settle { lease, settlements, with_effects } => Ok(Event::Settled {
                lease: *lease,
                settlements: settlements.clone(),
                with_effects: *with_effects,
            }),
            Intent::Close { .. } => Ok(Event::Nothing),
        }
    }
}

fn pushed(items: &[NewItem], before: &Image, after: &Image) -> Result<Event, String> {
    let ids = |image: &Image| -> BTreeSet<ItemId> {
        image.ready.keys().chain(image.later.keys().map(|(_, id)| id)).cloned().collect()
    };
    let (before, after) = (ids(before), ids(after));
    let new: Vec<ItemId> = after.difference(&before).cloned().collect();
    if new.len() != items.len() {
        return Err(format!("a push of {} items added {}", items.len(), new.len()));
    }
    Ok(Event::Pushed(new.into_iter().zip(items.iter().cloned()).collect()))
}
