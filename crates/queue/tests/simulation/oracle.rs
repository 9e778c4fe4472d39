//! The judge of a run: sees every commit, in order, and every result that a worker gets.

use std::collections::BTreeMap;

use kvqueue_queue::Kind;

use crate::claims::{Claim, Claims};
use crate::desk::Counter;
use crate::history::History;
use crate::image::{self, Ids, Image, Index, Rows};
use crate::intent::{Intent, Operation};
use crate::model::{At, Event, Model, Verdict, promise};

/// The judge of one run.
pub(crate) struct Oracle {
    kind: Kind,
    ids: Ids,
    pub(crate) model: Model,
    claims: Claims,
    /// The queue as the last commit has left it.
    image: Image,
    /// The index of keys, as the last commit has left it.
    index: Index,
    pub(crate) history: History,
    /// The version of the last commit.
    pub(crate) version: u64,
}

impl Oracle {
    pub(crate) fn new(kind: Kind) -> Oracle {
        Oracle {
            kind,
            ids: Ids::default(),
            model: Model::new(kind),
            claims: Claims::default(),
            image: Image::default(),
            index: Index::default(),
            history: History::default(),
            version: 0,
        }
    }

    /// An operation committed, and left these rows. Returns what it did.
    pub(crate) fn committed(
        &mut self,
        operation: &Operation,
        at: At,
        rows: &Rows,
    ) -> Result<Vec<Event>, String> {
        let after = image::read(self.kind, &mut self.ids, rows)?;
        let events = operation.intent.events(&self.image, &after)?;
        self.history.committed(operation, &events);
        self.model.on(&events, at)?;
        let expected = self.model.image();
        promise!(expected == after, "the queue is not what it should be:\n  {}", expected.difference(&after));
        let counted = after.counters.npush.wrapping_sub(after.counters.npop);
        promise!(
            counted == after.ready.len() as u64,
            "{counted} items are counted, {} are ready",
            after.ready.len()
        );
        if self.kind == Kind::Keyed {
            let index = Index::read(&mut self.ids, &rows.records)?;
            let unblocked = match &operation.intent {
                Intent::Unblock(key) => Some(key.as_slice()),
                _ => None,
            };
            index.check(&after, (&self.index, &self.image), unblocked)?;
            image::check_started(&self.index, &index, &started(&events)?, at.commit)?;
            for event in &events {
                if let Event::Leased { items, .. } | Event::Taken { items, .. } = event {
                    image::check_fetched(&self.index, items)?;
                }
            }
            self.index = index;
        }
        self.claims.committed(operation, &events, &self.model, at.commit)?;
        (self.image, self.version) = (after, at.commit);
        Ok(events)
    }

    /// A worker got a result.
    pub(crate) fn told(&mut self, operation: &Operation, claim: &Claim) -> Verdict {
        self.history.told(operation, claim);
        self.claims.check(operation, claim, &self.model)
    }

    /// The index of keys, as the last commit has left it.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// How many takes passed items over.
    pub(crate) fn jumps(&self) -> u64 {
        self.model.jumps
    }

    /// What a counter says.
    pub(crate) fn counted(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Ready if self.kind == Kind::Keyed => self.index.nactive,
            Counter::Ready => self.image.counters.npush,
            Counter::Later => self.image.counters.nlater,
        }
    }
}

/// How many items of each scope these events start.
fn started(events: &[Event]) -> Result<BTreeMap<Vec<u8>, u64>, String> {
    let mut started = BTreeMap::new();
    for event in events {
        let Event::Leased { items, .. } = event else { continue };
        for item in items {
            for scope in image::scopes(&image::key_of(item)?) {
                *started.entry(scope).or_default() += 1;
            }
        }
    }
    Ok(started)
}
