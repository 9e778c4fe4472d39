//! Ended items, read by hand, and what must hold of their rows after every commit.

use std::collections::BTreeMap;

use kvqueue_queue::{ItemId, Millis, Stamp};

use super::element::{Ids, split_number, split_stamp};
use super::fields::{fields, number, text};

/// Of a longer result nothing is kept but that there was one.
pub(crate) const MAX_RESULT: u32 = 90_000;

const MINUTE: Millis = 60_000;
/// The minutes of an hour.
const HOUR: u64 = 60;

/// The minute of a time.
pub(crate) fn minute(at: Millis) -> u64 {
    at / MINUTE
}

/// When an item ended: the minute, the transaction's stamp, the first item of its group, and the item.
pub(crate) type Key = (u64, Stamp, ItemId, ItemId);

/// How an item ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) at: Millis,
    /// The version that the transaction read.
    pub(crate) version: u64,
    pub(crate) started: Option<Millis>,
    pub(crate) worker: Option<String>,
    /// The code of its ending.
    pub(crate) code: u8,
    pub(crate) attempts: u32,
    pub(crate) pushed: Option<Millis>,
    pub(crate) reason: Option<String>,
    pub(crate) attributes: BTreeMap<String, String>,
    /// The length of its result.
    pub(crate) result: Option<u32>,
}

/// How long ended items are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) retention: Millis,
    /// What ended in the minutes before this one is cleared.
    pub(crate) cleared: u64,
}

/// A part of a group, by which an item is found by its id.
#[derive(Debug)]
struct Run {
    minute: u64,
    stamp: Stamp,
    /// The first item of the group.
    group: ItemId,
    first: ItemId,
    last: ItemId,
}

/// What is read of ended items until all rows are.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) kept: Option<Kept>,
    ended: BTreeMap<Key, Ended>,
    runs: Vec<Run>,
    results: BTreeMap<(u64, ItemId), usize>,
}

impl Parts {
    /// Reads a row, by the second element of its key.
    pub(super) fn record(&mut self, ids: &mut Ids, name: &[u8], rest: &[u8], value: &[u8]) -> Option<()> {
        match name {
            b"history" => {
                let mut kept = Kept::default();
                for (tag, content) in fields(value)? {
                    match tag {
                        1 => kept.retention = number(content)?,
                        2 => kept.cleared = number(content)?,
                        _ => return None,
                    }
                }
                self.kept = Some(kept);
            }
            b"ended" => {
                let (minute, rest) = split_number(rest)?;
                let (stamp, first) = split_stamp(rest)?;
                let first = ids.get(first)?;
                self.group(ids, (minute, stamp), &first, value)?;
            }
            b"ended-id" => {
                let (hour, rest) = split_number(rest)?;
                let (last, stamp) = rest.split_at_checked(rest.len().checked_sub(13)?)?;
                let (last, (stamp, [])) = (ids.get(last)?, split_stamp(stamp)?) else { return None };
                let (mut of_hour, mut group, mut first) = (0, None, None);
                for (tag, content) in fields(value)? {
                    match (tag, content) {
                        (1, [minute]) => of_hour = u64::from(*minute),
                        (2, id) => group = Some(ids.get(id)?),
                        (3, id) => first = Some(ids.get(id)?),
                        _ => return None,
                    }
                }
                let first = first.unwrap_or_else(|| last.clone());
                let group = group.unwrap_or_else(|| first.clone());
                self.runs.push(Run { minute: hour * HOUR + of_hour, stamp, group, first, last });
            }
            _ => {
                let (minute, id) = split_number(rest)?;
                self.results.insert((minute, ids.get(id)?), value.len());
            }
        }
        Some(())
    }

    fn group(
        &mut self,
        ids: &mut Ids,
        (minute, stamp): (u64, Stamp),
        first: &ItemId,
        value: &[u8],
    ) -> Option<()> {
        let (mut group, mut items) = (Ended::default(), Vec::new());
        for (tag, content) in fields(value)? {
            match tag {
                1 => group.at = number(content)?,
                2 => group.version = number(content)?,
                3 => group.started = Some(number(content)?),
                4 => group.worker = Some(text(content)?),
                5 => items.push(content),
                _ => return None,
            }
        }
        for content in items {
            let (mut id, mut item) = (None, Ended { code: 1, attempts: 1, ..group.clone() });
            for (tag, content) in fields(content)? {
                match tag {
                    1 => id = Some(ids.get(content)?),
                    2 => item.code = *content.first()?,
                    3 => item.attempts = u32::from_le_bytes(content.try_into().ok()?),
                    4 => item.pushed = Some(number(content)?),
                    5 => item.reason = Some(text(content)?),
                    6 => {
                        let (len, rest) = content.split_first_chunk::<4>()?;
                        let (name, value) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
                        item.attributes.insert(text(name)?, text(value)?);
                    }
                    7 => item.result = Some(u32::from_le_bytes(content.try_into().ok()?)),
                    _ => return None,
                }
            }
            let key = (minute, stamp, first.clone(), id?);
            // None is there twice.
            self.ended.insert(key, item).is_none().then_some(())?;
        }
        Some(())
    }

    /// All ended items. Each stands in the minute in which it ended, is found by its id, and has its result, if that is not too long.
    pub(super) fn ended(self) -> Result<BTreeMap<Key, Ended>, String> {
        for (key, ended) in &self.ended {
            let (minute, stamp, group, id) = key;
            if *minute != self::minute(ended.at) {
                return Err(format!("{id} ended at {}, and stands in minute {minute}", ended.at));
            }
            let has = |run: &Run| {
                (run.minute, run.stamp, &run.group) == (*minute, *stamp, group)
                    && (&run.first..=&run.last).contains(&id)
            };
            if !self.runs.iter().any(has) {
                return Err(format!("no run leads to the end of {id} at {}", ended.at));
            }
            let result = self.results.get(&(*minute, id.clone()));
            let kept = ended.result.filter(|len| *len <= MAX_RESULT);
            if kept.is_some() && kept != result.map(|len| *len as u32) {
                return Err(format!("{id} ended with {:?} bytes, and {result:?} are there", ended.result));
            }
        }
        // In one minute, an item may be a dead letter and then be done.
        let has_ended = |key: &&(u64, ItemId)| {
            let mut of_item =
                self.ended.iter().filter(|((minute, .., id), _)| (minute, id) == (&key.0, &key.1));
            of_item.any(|(_, ended)| ended.result.is_some_and(|len| len <= MAX_RESULT))
        };
        match self.results.keys().find(|key| !has_ended(key)) {
            Some((minute, id)) => Err(format!("{id} has a result, and did not end in minute {minute}")),
            None => Ok(self.ended),
        }
    }
}
