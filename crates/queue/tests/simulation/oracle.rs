//! The judge of a run: sees every commit, in order, and every result that a worker gets.

use std::collections::BTreeMap;

use kvqueue_queue::item_batch::Join;
use kvqueue_queue::{ItemId, Kind, RowCounter};

use crate::claims::{Claim, Claims};
use crate::desk::Counter;
use crate::history::History;
use crate::image::{self, Ids, Image, Index, Rows};
use crate::intent::{Intent, Operation};
use crate::model::{At, Event, Model, Verdict, promise};

/// The judge of one run.
pub(crate) struct Oracle {
    sides: Vec<Side>,
    pub(crate) history: History,
    /// The version of the last commit.
    pub(crate) version: u64,
    /// What the last commit made of items that were to join a batch.
    pub(crate) joins: BTreeMap<ItemId, Join>,
}

/// One queue of it.
struct Side {
    kind: Kind,
    ids: Ids,
    model: Model,
    claims: Claims,
    /// The queue as the last commit has left it.
    image: Image,
    /// The index of keys, as the last commit has left it.
    index: Index,
}

impl Oracle {
    pub(crate) fn new(kinds: &[Kind]) -> Oracle {
        let sides = kinds.iter().map(|kind| Side::new(*kind)).collect();
        Oracle { sides, history: History::default(), version: 0, joins: BTreeMap::new() }
    }

    /// An operation committed, and left these rows of each queue. Returns what it did.
    pub(crate) fn committed(
        &mut self,
        operation: &Operation,
        at: At,
        rows: &[Rows],
    ) -> Result<Vec<Event>, String> {
        let mut after = Vec::new();
        for (side, rows) in self.sides.iter_mut().zip(rows) {
            after.push(image::read(side.kind, &mut side.ids, rows)?);
        }
        let own = operation.at;
        let events = operation.intent.events(&self.sides[own].image, &after[own])?;
        self.history.committed(operation, &events);
        for number in (0..self.sides.len()).filter(|number| *number != own) {
            if let Some(event) = operation.intent.event_elsewhere(number) {
                self.history.committed_elsewhere(&event);
                self.sides[number].model.on(&[event], at)?;
            }
        }
        let side = &mut self.sides[own];
        side.model.on(&events, at)?;
        let known = &side.image.ended;
        let new = after[own].ended.iter().filter(|(key, _)| !known.contains_key(*key));
        let new = new.map(|(key, ended)| (key.clone(), ended.clone())).collect();
        side.model.check_ends(operation, new, at)?;
        // The batches are in the first queue, their members in any.
        let mut joins = BTreeMap::new();
        for number in 0..self.sides.len() {
            let members = self.sides[number].model.take_members();
            self.sides[0].model.members_changed(&members, &after[0], at)?;
            joins.append(&mut self.sides[number].model.take_joins());
        }
        for (side, after) in self.sides.iter_mut().zip(&after) {
            side.check(after)?;
        }
        for (number, (side, after)) in self.sides.iter_mut().zip(after).enumerate() {
            if number == own {
                side.check_index(operation, &events, (&after, &rows[number]), at)?;
                side.claims.committed(operation, &events, &side.model, at.commit)?;
                side.claims.joined(operation, &joins);
            }
            side.image = after;
        }
        self.version = at.commit;
        self.joins = joins;
        Ok(events)
    }

    /// A worker got a result.
    pub(crate) fn told(&mut self, operation: &Operation, claim: &Claim) -> Verdict {
        self.history.told(operation, claim);
        let side = &mut self.sides[operation.at];
        side.claims.check(operation, claim, &side.model)
    }

    /// The model of the queue of this number.
    pub(crate) fn model(&self, at: usize) -> &Model {
        &self.sides[at].model
    }

    pub(crate) fn model_mut(&mut self, at: usize) -> &mut Model {
        &mut self.sides[at].model
    }

    /// The models of all queues.
    pub(crate) fn models(&self) -> impl Iterator<Item = &Model> {
        self.sides.iter().map(|side| &side.model)
    }

    /// The index of keys of a queue, as the last commit has left it.
    pub(crate) fn index(&self, at: usize) -> &Index {
        &self.sides[at].index
    }

    /// When the next lease ends, by its holder's clock.
    pub(crate) fn next_end(&self, now: u64) -> Option<u64> {
        self.models().filter_map(|model| model.next_end(now)).min()
    }

    /// How many takes passed items over.
    pub(crate) fn jumps(&self) -> u64 {
        self.models().map(|model| model.jumps).sum()
    }

    /// What a counter of a queue says.
    pub(crate) fn counted(&self, at: usize, counter: Counter) -> u64 {
        let side = &self.sides[at];
        match counter {
            Counter::Ready if side.kind == Kind::Keyed => side.index.nactive,
            Counter::Ready => side.image.counters.npush,
            Counter::Slots => side.index.nfreed,
            Counter::Later => side.image.counters.nlater,
        }
    }
}

impl Side {
    fn new(kind: Kind) -> Side {
        Side {
            kind,
            ids: Ids::default(),
            model: Model::new(kind),
            claims: Claims::default(),
            image: Image::default(),
            index: Index::default(),
        }
    }

    /// What a commit has left is what the model makes of it.
    fn check(&self, after: &Image) -> Verdict {
        let expected = self.model.image();
        promise!(expected == *after, "the queue is not what it should be:\n  {}", expected.difference(after));
        let counted = after.counters.npush.wrapping_sub(after.counters.npop);
        promise!(
            counted == after.ready.len() as u64,
            "{counted} items are counted, {} are ready",
            after.ready.len()
        );
        Ok(())
    }

    fn check_index(
        &mut self,
        operation: &Operation,
        events: &[Event],
        (after, rows): (&Image, &Rows),
        at: At,
    ) -> Verdict {
        if self.kind != Kind::Keyed {
            return Ok(());
        }
        let index = Index::read(&mut self.ids, &rows.records)?;
        let unblocked = match &operation.intent {
            Intent::Unblock(key) => Some(key.as_slice()),
            _ => None,
        };
        index.check(after, (&self.index, &self.image), unblocked)?;
        check_recount(rows)?;
        image::check_started(&self.index, &index, &started(events)?, at.commit)?;
        for event in events {
            if let Event::Leased { items, .. } | Event::Taken { items, .. } = event {
                image::check_fetched(&self.index, items)?;
            }
        }
        self.index = index;
        Ok(())
    }
}

/// A recount finds nothing to correct.
fn check_recount(rows: &Rows) -> Verdict {
    let mut counter = RowCounter::new(b"");
    for (key, value) in &rows.records {
        counter.show(&[b"\x01q\0", key.as_slice()].concat(), value);
    }
    for (_, found) in counter.queues() {
        promise!(found.is_right(), "a recount finds {found:?}");
    }
    Ok(())
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
