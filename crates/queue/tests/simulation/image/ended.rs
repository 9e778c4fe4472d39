//! Ended items, read by hand, and what must hold of their rows after every commit.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::{ItemId, Stamp};

use super::element::{Ids, split_bytes, split_number, split_stamp};
use super::fields::{fields, number, text};
use crate::world::Millis;

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
    /// The names of its attributes by which it is found.
    pub(crate) found_by: BTreeSet<String>,
}

/// How long ended items are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) retention: Millis,
    /// What ended in the minutes before this one is cleared.
    pub(crate) cleared: u64,
    /// The attributes by which they are indexed, each with the minute from which on the index has all items.
    pub(crate) indexed: BTreeMap<String, u64>,
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

/// A row by which the items of a group are found that have an attribute.
#[derive(Debug)]
struct ByAttribute {
    minute: u64,
    stamp: Stamp,
    /// The first item of the group.
    group: ItemId,
    name: String,
    /// Its first 128 bytes.
    value: Vec<u8>,
}

/// What is read of ended items until all rows are.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) kept: Option<Kept>,
    ended: BTreeMap<Key, Ended>,
    runs: Vec<Run>,
    by_attribute: Vec<ByAttribute>,
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
                        3 => {
                            let (from, name) = content.split_at_checked(8)?;
                            kept.indexed.insert(text(name)?, number(from)?);
                        }
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
            b"ended-by" => {
                let (hour, rest) = split_number(rest)?;
                let (name, rest) = split_bytes(rest)?;
                let (value, rest) = split_bytes(rest)?;
                let (minute, rest) = split_number(rest)?;
                let (stamp, group) = split_stamp(rest)?;
                let group = ids.get(group)?;
                (hour == minute / HOUR && value.len() <= 128).then_some(())?;
                self.by_attribute.push(ByAttribute { minute, stamp, group, name: text(&name)?, value });
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

    /// Notes by which attributes items are found. Each row leads to an item that has its value, or to a group that is cleared already: an hour's rows are cleared
    /// together.
    fn find_by_attributes(&mut self) -> Result<(), String> {
        for ByAttribute { minute, stamp, group, name, value } in &self.by_attribute {
            let of_group = |key: &Key| (key.0, key.1, &key.2) == (*minute, *stamp, group);
            let (mut is_there, mut is_found) = (false, false);
            for (_, item) in self.ended.iter_mut().filter(|(key, _)| of_group(key)) {
                is_there = true;
                let of_item = item.attributes.get(name).map(String::as_bytes);
                if of_item.is_some_and(|of_item| of_item[..of_item.len().min(128)] == *value) {
                    item.found_by.insert(name.clone());
                    is_found = true;
                }
            }
            if is_there && !is_found {
                return Err(format!(
                    "no item that ended at {stamp} in minute {minute} has {name} = {value:?}"
                ));
            }
        }
        Ok(())
    }

    /// All ended items. Each stands in the minute in which it ended, is found by its id, and has its result, if that is not too long.
    pub(super) fn ended(mut self) -> Result<BTreeMap<Key, Ended>, String> {
        self.find_by_attributes()?;
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
