//! Batches, read by hand, and what must hold of their rows after every commit.

use std::collections::BTreeMap;

use kvqueue_queue::NewItem;
use kvqueue_queue::item_batch::BatchId;

use super::element::{split_number, split_session};
use super::fields::{fields, number, text};
use crate::world::Millis;

/// The queue in which all batches are.
pub(crate) const HOME: &[u8] = b"q";
/// The number of the counter of members.
pub(crate) const MEMBERS: u8 = 0;

/// A batch that has not called back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) created: Millis,
    pub(crate) committed: Option<Millis>,
    pub(crate) deadline: Option<Millis>,
    /// The time of the row by which a sweeper finds it.
    pub(crate) row: Option<Millis>,
    pub(crate) callback: NewItem,
    /// How many members were pushed, and how many have ended, by the code of their ending.
    pub(crate) counts: BTreeMap<u8, u64>,
    /// The version of the transaction that marked it, so that a sweeper looks at it.
    pub(crate) mark: Option<u64>,
}

impl Batch {
    /// Whether it gets no more members, and all of them have ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.committed.is_some() && have_ended(&self.counts)
    }
}

/// Whether as many members have ended as there are.
pub(crate) fn have_ended(counts: &BTreeMap<u8, u64>) -> bool {
    let count = |of: &u8| counts.get(of).copied().unwrap_or(0);
    counts.keys().filter(|code| **code != MEMBERS).map(count).sum::<u64>() >= count(&MEMBERS)
}

/// What is read of batches until all rows are.
#[derive(Debug, Default)]
pub(super) struct Parts {
    records: BTreeMap<BatchId, Batch>,
    callbacks: BTreeMap<BatchId, NewItem>,
    counts: BTreeMap<(BatchId, u8), u64>,
    marks: BTreeMap<BatchId, u64>,
    due: Vec<(BatchId, Millis)>,
}

impl Parts {
    /// Reads a row, by the second element of its key.
    pub(super) fn record(&mut self, name: &[u8], rest: &[u8], value: &[u8]) -> Option<()> {
        let id = |key| {
            let (id, rest) = split_session(key)?;
            Some((BatchId::with_unique(HOME, id.0), rest))
        };
        match name {
            b"batch" => {
                let (id, []) = id(rest)? else { return None };
                self.records.insert(id, decode(value)?);
            }
            b"batch-item" => {
                let (id, []) = id(rest)? else { return None };
                self.callbacks.insert(id, decode_callback(value)?);
            }
            b"batch-count" => {
                let (id, rest) = id(rest)?;
                let (code, []) = split_number(rest)? else { return None };
                let count = u64::from_le_bytes(value.try_into().ok()?);
                self.counts.insert((id, u8::try_from(code).ok()?), count);
            }
            _ => {
                let (time, rest) = split_number(rest)?;
                let (id, []) = id(rest)? else { return None };
                if time == 0 {
                    // Version and place of the transaction.
                    let (version, [_, _]) = value.split_first_chunk()? else { return None };
                    self.marks.insert(id, u64::from_be_bytes(*version));
                } else {
                    value.is_empty().then(|| self.due.push((id, time)))?;
                }
            }
        }
        Some(())
    }

    /// All batches. Each has the row of its deadline, and one that is complete has a mark, so that a sweeper finds it.
    pub(super) fn batches(mut self) -> Result<BTreeMap<BatchId, Batch>, String> {
        let nobody = |id: &BatchId| format!("a row is of {id}, and that is not there");
        for (id, batch) in &mut self.records {
            batch.callback = self.callbacks.remove(id).ok_or_else(|| format!("{id} has no callback"))?;
        }
        if let Some(id) = self.callbacks.keys().next() {
            return Err(nobody(id));
        }
        for ((id, code), count) in self.counts {
            self.records.get_mut(&id).ok_or_else(|| nobody(&id))?.counts.insert(code, count);
        }
        for (id, version) in self.marks {
            self.records.get_mut(&id).ok_or_else(|| nobody(&id))?.mark = Some(version);
        }
        let mut rows: BTreeMap<BatchId, Vec<Millis>> = BTreeMap::new();
        for (id, time) in self.due {
            self.records.get(&id).ok_or_else(|| nobody(&id))?;
            rows.entry(id).or_default().push(time);
        }
        for (id, batch) in &self.records {
            let rows = rows.remove(id).unwrap_or_default();
            if rows != batch.row.into_iter().collect::<Vec<_>>() {
                return Err(format!("{id} has rows at {rows:?}, and its record says {:?}", batch.row));
            }
            if batch.is_complete() && batch.mark.is_none() {
                return Err(format!("{id} is complete, and no mark says so: {batch:?}"));
            }
        }
        Ok(self.records)
    }
}

fn decode(value: &[u8]) -> Option<Batch> {
    let mut batch = Batch::default();
    for (tag, content) in fields(value)? {
        match tag {
            1 => batch.created = number(content)?,
            2 => batch.committed = Some(number(content)?),
            3 => batch.deadline = Some(number(content)?),
            4 => batch.row = Some(number(content)?),
            _ => return None,
        }
    }
    Some(batch)
}

fn decode_callback(value: &[u8]) -> Option<NewItem> {
    let mut callback = NewItem::default();
    for (tag, content) in fields(value)? {
        match tag {
            5 => callback.payload = content.to_vec().into(),
            6 => {
                let (len, rest) = content.split_first_chunk::<4>()?;
                let (name, value) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
                callback.attributes.insert(text(name)?, text(value)?);
            }
            7 => callback.content_type = Some(text(content)?),
            8 => callback.key = Some(content.to_vec()),
            9 => callback.priority = i64::from_le_bytes(content.try_into().ok()?),
            _ => return None,
        }
    }
    Some(callback)
}
