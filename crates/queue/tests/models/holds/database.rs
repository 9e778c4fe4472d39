//! What is committed of a key and its items, and what transactions conflict on.

use std::collections::BTreeSet;

/// Items are numbered in the order of their pushes.
pub(crate) type Item = usize;
pub(crate) const MAX_ITEMS: usize = 3;

/// Where an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    Ready,
    Running,
    Scheduled,
    Dead,
    Gone,
}

/// Where the key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Active,
    Parked,
    OnHold,
}

/// The rule of the key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Rule {
    pub(crate) ordered: bool,
    pub(crate) blocks: bool,
}

impl Rule {
    /// Whether the key waits for an item that is there.
    pub(crate) fn holds_for(self, at: At) -> bool {
        self.ordered && (at == At::Scheduled || at == At::Dead && self.blocks)
    }
}

/// A row that transactions conflict on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Row {
    Rules,
    /// The records of an item.
    Item(Item),
    /// The range of the key's ready items.
    Ready,
    Listed,
    Place(Place),
    Hold(Item),
    /// Never written: an end that finds no parked key conflicts with a fetch that parks one.
    Free,
    Gate,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    Move(Item, At),
    List(bool),
    Put(Place),
    Clear(Place),
    Hold(Item),
    EndHold(Item),
    Rule(Rule),
    /// Whether holds and a parked key are to be looked at again.
    Pending(bool),
    Gate,
    Free,
}

/// What is committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Database {
    pub(crate) items: Vec<At>,
    pub(crate) listed: bool,
    pub(crate) places: BTreeSet<Place>,
    pub(crate) holds: BTreeSet<Item>,
    pub(crate) rule: Rule,
    pub(crate) pending: bool,
}

impl Database {
    pub(crate) fn those(&self, at: At) -> impl Iterator<Item = Item> {
        self.items.iter().enumerate().filter(move |(_, is)| **is == at).map(|(item, _)| item)
    }

    /// How many more items may run.
    pub(crate) fn free(&self) -> usize {
        if self.rule.ordered { 1_usize.saturating_sub(self.those(At::Running).count()) } else { MAX_ITEMS }
    }

    pub(crate) fn apply(&mut self, write: &Write) {
        match *write {
            Write::Move(item, at) if item == self.items.len() => self.items.push(at),
            Write::Move(item, at) => self.items[item] = at,
            Write::List(listed) => self.listed = listed,
            Write::Put(place) => drop(self.places.insert(place)),
            Write::Clear(place) => drop(self.places.remove(&place)),
            Write::Hold(item) => drop(self.holds.insert(item)),
            Write::EndHold(item) => drop(self.holds.remove(&item)),
            Write::Rule(rule) => self.rule = rule,
            Write::Pending(pending) => self.pending = pending,
            Write::Gate | Write::Free => {}
        }
    }

    /// Whether an item is the next one of an ordered key, apart from these items before it.
    pub(crate) fn is_next(&self, item: Item, apart: &BTreeSet<Item>) -> bool {
        let mut before = self.items[..item].iter().enumerate().filter(|(item, _)| !apart.contains(item));
        before.all(|(_, at)| *at == At::Gone || *at == At::Dead && !self.rule.blocks)
    }
}

/// The rows that a write changes.
pub(crate) fn rows(write: &Write) -> Vec<Row> {
    match *write {
        Write::Move(item, At::Ready) => vec![Row::Item(item), Row::Ready],
        Write::Move(item, _) => vec![Row::Item(item)],
        Write::List(_) => vec![Row::Listed],
        Write::Put(place) | Write::Clear(place) => vec![Row::Place(place)],
        Write::Hold(item) | Write::EndHold(item) => vec![Row::Hold(item)],
        Write::Rule(_) | Write::Pending(_) => vec![Row::Rules],
        Write::Gate => vec![Row::Gate],
        Write::Free => vec![Row::Free],
    }
}

/// A transaction that has read and not yet committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Open {
    pub(crate) reads: BTreeSet<Row>,
    pub(crate) writes: Vec<Write>,
    /// Dead letters that a fetch has passed over. An operator may make one ready before the fetch commits: neither transaction has seen the other.
    pub(crate) passed: BTreeSet<Item>,
    pub(crate) conflicted: bool,
}
