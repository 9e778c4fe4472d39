//! The history of a run, told without versions and stamps: of one seed it is always the same.

use std::collections::BTreeMap;

use kvqueue_queue::schedule::ByHand;
use kvqueue_queue::{Item, ItemId, LeaseId, NewItem, SessionId};

use crate::claims::{Claim, ScheduleClaim};
use crate::image::schedules::Record;
use crate::intent::Operation;
use crate::model::Event;
use crate::model::schedules::{Change, Firing};

/// What happened, line by line, and what was committed.
#[derive(Debug, Default)]
pub(crate) struct History {
    lines: Vec<String>,
    /// The operations that committed, in order.
    pub(crate) commits: Vec<String>,
    items: BTreeMap<ItemId, usize>,
    sessions: BTreeMap<SessionId, usize>,
}

impl History {
    /// Something happened that is no commit.
    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    pub(crate) fn committed(&mut self, operation: &Operation, events: &[Event]) {
        let what: Vec<String> = events.iter().map(|event| self.event(event)).collect();
        self.commits.push(operation.to_string());
        self.lines.push(format!("{operation}: {}", what.join("; ")));
    }

    /// The same transaction did this in another queue.
    pub(crate) fn committed_elsewhere(&mut self, event: &Event) {
        let what = self.event(event);
        self.lines.push(format!("and in another queue: {what}"));
    }

    pub(crate) fn told(&mut self, operation: &Operation, claim: &Claim) {
        let what = match claim {
            Claim::Pushed { items, .. } => {
                let item =
                    |item: &kvqueue_queue::PushedItem| format!("{:?} {}", item.effect, self.names(&item.id));
                items.iter().map(item).collect::<Vec<_>>().join(", ")
            }
            Claim::Leased(lease, items) => format!("has {} on {}", self.handed(items), self.lease(*lease)),
            Claim::Took { items, .. } => format!("has {}", self.handed(items)),
            Claim::Swept { moved, occurrences, batches, .. }
                if moved.is_nothing() && occurrences.is_empty() && batches.is_empty() =>
            {
                "there was nothing to do".to_owned()
            }
            Claim::Schedule(ScheduleClaim::ByHand(ByHand::Fired { id })) => {
                format!("fired {}", self.names(id))
            }
            other => format!("{other:?}"),
        };
        self.lines.push(format!("{operation}: told {what}"));
    }

    /// Everything that happened.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    fn event(&mut self, event: &Event) -> String {
        match event {
            Event::Pushed { items, replaced, .. } => {
                items.iter().for_each(|(id, _)| self.number(id));
                let names = |items: &[(ItemId, NewItem)]| self.names(items.iter().map(|(id, _)| id));
                format!("pushed {}, replaced {}", names(items), names(replaced))
            }
            Event::Leased { lease, items, .. } => {
                format!("took {} on {}", self.names(items), self.lease(*lease))
            }
            Event::Taken { items, .. } => format!("took {} for good", self.names(items)),
            Event::Asked(_, want) => format!("asked for {}", self.lease(want.lease)),
            Event::Left(_) => "took a request back".to_owned(),
            Event::Overdue(_) => "cleared a request that nobody had served".to_owned(),
            Event::TakenUp(lease) => format!("took {} up", self.lease(*lease)),
            Event::PickedUp(lease) => format!("picked {} up", self.lease(*lease)),
            Event::Settled { lease, settlements, .. } => {
                format!("settled {}: {settlements:?}", self.lease(*lease))
            }
            Event::Progressed { lease, news } => format!("said of {}: {news:?}", self.lease(*lease)),
            Event::Expired { lease, .. } => format!("took {} away", self.lease(*lease)),
            Event::Promoted { items, .. } => {
                format!("made {} ready", self.names(items.iter().map(|(_, id)| id)))
            }
            Event::ItemsExpired { rows, gone, dead, .. } => {
                let rows = self.names(rows.iter().map(|(_, id)| id));
                format!("cleared rows of {rows}: {} expired, {} are dead", self.names(gone), self.names(dead))
            }
            Event::LettersRemoved { items, .. } => format!("removed {}", self.names(items)),
            Event::Forgotten { operations, .. } => format!("forgot {} operations", operations.len()),
            Event::Revived(items) => format!("revived {}", self.names(items)),
            Event::Deleted(id) => format!("deleted {}", self.names(std::slice::from_ref(id))),
            Event::Purged(items) => format!("purged {}", self.names(items)),
            Event::CancelledAll(items) => {
                format!("cancelled {}", self.names(items.iter().map(|(id, _)| id)))
            }
            Event::ItemChanged { id, from, what } => {
                format!("changed {}, which was {from:?}: {what:?}", self.names([id]))
            }
            Event::CancelledForgotten { lease, .. } => {
                format!("forgot what was cancelled on {}", self.lease(*lease))
            }
            Event::BatchMade { id, new, now } => format!("made {id} at {now}, until {:?}", new.deadline),
            Event::BatchCommitted { id, now } => format!("committed {id} at {now}"),
            Event::BatchCancelled(id) => format!("cancelled {id}"),
            Event::Joined { id, items } => format!("let {} join {id}", self.names(items)),
            Event::BatchesSeen { closed, unmarked, .. } => {
                closed.iter().for_each(|(_, item)| self.number(item));
                let closed = closed.iter().map(|(id, item)| format!("{id} with {}", self.names([item])));
                format!("called back {:?}, unmarked {unmarked:?}", closed.collect::<Vec<_>>())
            }
            Event::HistorySet { rule, .. } => {
                format!("keeps ended items for {}, by {:?}", rule.kept, rule.names)
            }
            Event::HistoryCleared { to, .. } => format!("cleared ended items until {to:?}"),
            Event::Froze(true) => "froze the queue".to_owned(),
            Event::Froze(false) => "let the queue go on".to_owned(),
            Event::Divided(division) => format!("divided the queue: {division:?}"),
            Event::Schedule { name, now, change: Change::ByHand(id), records } => {
                self.number(id);
                format!(
                    "pushed {} of {name} by hand at {now}, number {:?}",
                    self.names([id]),
                    records[0].occurrence
                )
            }
            Event::Schedule { name, now, change, records } => {
                format!("{name} at {now}: {change:?}, {}", records.iter().map(told).collect::<String>())
            }
            Event::Fired(sweep) => {
                let mut lines = Vec::new();
                for Firing { name, ids, records, waits, .. } in &sweep.firings {
                    ids.iter().for_each(|id| self.number(id));
                    let records: String = records.iter().map(told).collect();
                    lines.push(format!("{name} fired {}:{records} waits: {waits:?}", self.names(ids)));
                }
                format!("at {:?}: {}", sweep.now, lines.join(", "))
            }
        }
    }

    /// Gives a new item its number.
    fn number(&mut self, id: &ItemId) {
        let number = self.items.len() + 1;
        self.items.entry(id.clone()).or_insert(number);
    }

    fn names<'i>(&self, ids: impl IntoIterator<Item = &'i ItemId>) -> String {
        let name = |id| self.items.get(id).map_or_else(|| "?".to_owned(), |number| format!("i{number}"));
        ids.into_iter().map(name).collect::<Vec<_>>().join(" ")
    }

    fn handed(&self, items: &[Item]) -> String {
        let name = |item: &Item| format!("{}(attempt {})", self.names([&item.id]), item.attempt);
        items.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    fn lease(&mut self, lease: LeaseId) -> String {
        let next = self.sessions.len() + 1;
        format!("s{}/{}", self.sessions.entry(lease.session).or_insert(next), lease.number)
    }
}

/// A record without its id.
fn told(record: &Record) -> String {
    let Record { from, to, count, fate, .. } = record;
    format!(" {fate:?} {count} {from}..={to}")
}
