//! What operations have told their workers, held against what they did.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::{Item, ItemId, LeaseId, SessionId};

use crate::intent::{Intent, Operation};
use crate::model::{Event, Model, Verdict, promise};

/// What a worker was told.
#[derive(Debug)]
pub(crate) enum Claim {
    /// These items are in the queue.
    Pushed(Vec<ItemId>),
    /// These items are held, on this lease.
    Leased(LeaseId, Vec<Item>),
    /// These items are the worker's; `short`: there were no more than that.
    Took { items: Vec<Item>, short: bool },
    /// There was nothing to take.
    Nothing,
    /// The settlement happened.
    Settled,
    /// The lease is lost.
    Lost,
    /// It came to nothing, for certain or perhaps.
    Failed { perhaps: bool },
}

/// What committed, by operation and session.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// How often an operation committed that did something.
    commits: BTreeMap<(String, u64), Vec<Event>>,
    /// Leases that a session took and was not told of yet.
    leases: BTreeMap<SessionId, BTreeSet<LeaseId>>,
    /// Items that a session took for good and was not told of yet.
    items: BTreeMap<SessionId, BTreeSet<ItemId>>,
}

impl Claims {
    /// An operation committed.
    pub(crate) fn committed(&mut self, operation: &Operation, event: &Event) -> Verdict {
        let session = match operation.intent {
            Intent::Lease { session, .. } | Intent::Take { session, .. } => Some(session),
            _ => None,
        };
        match (event, session) {
            (Event::Leased { lease, .. }, Some(session)) => {
                self.leases.entry(session).or_default().insert(*lease);
            }
            (Event::Taken { items, .. }, Some(session)) => {
                self.items.entry(session).or_default().extend(items.iter().cloned());
            }
            _ => {}
        }
        let commits = self.commits.entry(key(operation)).or_default();
        commits.push(event.clone());
        let may_repeat = matches!(event, Event::Settled { settlements, .. } if settlements.is_empty());
        promise!(commits.len() == 1 || may_repeat || *event == Event::Nothing, "{operation} happened twice");
        Ok(())
    }

    /// A worker was told something.
    pub(crate) fn check(&mut self, operation: &Operation, claim: &Claim, model: &Model) -> Verdict {
        let commits = self.commits.get(&key(operation)).map(Vec::as_slice).unwrap_or_default();
        match claim {
            Claim::Pushed(ids) => {
                let [Event::Pushed(items)] = commits else {
                    return Err(format!("{operation}: nothing was pushed"));
                };
                promise!(
                    items.iter().map(|(id, _)| id).eq(ids),
                    "{operation}: told {ids:?}, pushed {items:?}"
                );
            }
            Claim::Failed { perhaps } => {
                promise!(*perhaps || commits.is_empty(), "{operation} failed, and happened")
            }
            Claim::Settled => {
                promise!(settled(operation, model), "{operation}: told it was settled, and it was not")
            }
            Claim::Lost => {
                let Intent::Settle { lease, .. } = &operation.intent else { return Ok(()) };
                promise!(!model.is_held(*lease), "{operation}: told that the lease was lost, and it is held");
                let may_have = operation.unknown.get() > 0 || commits.is_empty();
                promise!(may_have, "{operation}: told that the lease was lost, and settled it");
            }
            Claim::Leased(..) | Claim::Took { .. } | Claim::Nothing => self.took(operation, claim, model)?,
        }
        Ok(())
    }

    fn took(&mut self, operation: &Operation, claim: &Claim, model: &Model) -> Verdict {
        let (Intent::Lease { session, .. } | Intent::Take { session, .. } | Intent::Close { session }) =
            operation.intent
        else {
            return Ok(());
        };
        let leases = self.leases.entry(session).or_default();
        let items = self.items.entry(session).or_default();
        let mut is_short = true;
        match claim {
            Claim::Leased(lease, got) => {
                promise!(leases.remove(lease), "{operation} was given {lease:?} twice, or it is not its own");
                model.check_handed(*lease, got)?;
            }
            Claim::Took { items: got, short } => {
                is_short = *short;
                for item in got {
                    promise!(
                        items.remove(&item.id),
                        "{operation} was given {} twice, or it is not its own",
                        item.id
                    );
                    model.check_content(item)?;
                }
            }
            _ => promise!(
                model.was_empty_since(operation.begun),
                "{operation} found nothing where there was something"
            ),
        }
        let stranded = leases.iter().find(|lease| model.is_held(**lease));
        promise!(
            stranded.is_none() || matches!(operation.intent, Intent::Close { .. }),
            "{operation}: its session has {stranded:?} and was not told"
        );
        promise!(!is_short || items.is_empty(), "{operation}: its session has {items:?} and was not told");
        Ok(())
    }
}

fn key(operation: &Operation) -> (String, u64) {
    (operation.worker.clone(), operation.number)
}

/// Whether what the operation was to settle is settled.
fn settled(operation: &Operation, model: &Model) -> bool {
    let Intent::Settle { lease, settlements, .. } = &operation.intent else { return false };
    let is_held = model.is_held(*lease);
    if settlements.is_empty() {
        is_held
    } else {
        settlements.iter().all(|(index, _)| model.is_settled(*lease, *index))
    }
}
