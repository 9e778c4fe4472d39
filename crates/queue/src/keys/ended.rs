//! (q, "ended", minute, stamp, id): a group of items that ended in one transaction, under the id of its first item.
//! (q, "ended-id", hour, id, stamp): a run of such a group, under the id of its last item, to find an item by its id.
//! (q, "result", minute, id): the result of an item that its handler has finished, by the minute of its group.
//! (q, "history"): how long all of them are kept.
//!
//! Next to them stand the rows of [`ended_by`](super::ended_by). Minutes and hours are counted from the start of 1970. Written by the transactions that end items, with a versionstamped key; cleared by the sweeper, whole
//! minutes and hours at a time. The setting is written by the program that has the configuration, and by the sweeper.
//!
//! The items of a group are in the order of their ids. A run is a part of a group whose items were pushed one soon after the other: [`SPAN`]
//! versions at most from the first to the last. So the runs that may have an id lie close behind it.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use crate::keys::fields::{each, number, pair, put, put_pair, take_number, text};
use crate::keys::items;
use crate::model::element::{STAMP, append_number, split_number};
use crate::model::history::{EndedItem, Ending, GroupKey};
use crate::model::id::ItemId;
use crate::model::id_layout::{suffix, suffix_stamp};
use crate::model::meta::Meta;
use crate::model::stamp::Stamp;
use crate::model::time::{Millis, from_millis, millis};

/// Second element of the keys of groups.
pub(crate) const ENDED: &[u8] = b"ended";
/// Second element of the keys of runs.
pub(crate) const ENDED_ID: &[u8] = b"ended-id";
/// Second element of the keys of results.
pub(crate) const RESULT: &[u8] = b"result";
/// Second element of the setting's key.
pub(crate) const HISTORY: &[u8] = b"history";

/// The most versions between the first and the last push of a run: ten milliseconds.
pub(crate) const SPAN: u64 = 10_000;

const MINUTE: Millis = 60_000;
/// The minutes of an hour.
pub(crate) const HOUR: u64 = 60;

// Tags of a group.
const AT: u8 = 1;
const VERSION: u8 = 2;
const STARTED: u8 = 3;
const WORKER: u8 = 4;
const ITEM: u8 = 5;

// Tags of an item.
const ID: u8 = 1;
const ENDING: u8 = 2;
const ATTEMPTS: u8 = 3;
const PUSHED: u8 = 4;
const REASON: u8 = 5;
const ATTRIBUTE: u8 = 6;
const RESULT_LEN: u8 = 7;

// Tags of a run.
const MINUTE_OF_HOUR: u8 = 1;
const GROUP: u8 = 2;
const FIRST: u8 = 3;

// Tags of the setting.
const RETENTION: u8 = 1;
const CLEARED: u8 = 2;
const INDEXED: u8 = 3;

/// The minute of a time.
pub(crate) fn minute(at: Millis) -> u64 {
    at / MINUTE
}

/// The hour of a minute.
pub(crate) fn hour(minute: u64) -> u64 {
    minute / HOUR
}

/// How long the records are kept, and by which attributes they are indexed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    /// In milliseconds. 0: no longer, and they are to be cleared.
    pub(crate) retention: Millis,
    /// The minutes before this one are cleared.
    pub(crate) cleared: u64,
    /// The names of the attributes that have an index, each with the minute from which on it has all items.
    pub(crate) indexed: BTreeMap<String, u64>,
    /// Fields of a later version, which are kept.
    pub(crate) unknown: Vec<(u8, Vec<u8>)>,
}

impl Setting {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, RETENTION, &[&self.retention.to_le_bytes()]);
        put(&mut out, CLEARED, &[&self.cleared.to_le_bytes()]);
        for (name, from) in &self.indexed {
            put(&mut out, INDEXED, &[&from.to_le_bytes(), name.as_bytes()]);
        }
        for (tag, content) in &self.unknown {
            put(&mut out, *tag, &[content]);
        }
        out
    }

    /// `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<Setting> {
        let mut setting = Setting::default();
        for field in each(value) {
            match field? {
                (RETENTION, content) => setting.retention = number(content)?,
                (CLEARED, content) => setting.cleared = number(content)?,
                (INDEXED, content) => {
                    let (from, name) = take_number(content)?;
                    setting.indexed.insert(text(name)?, from);
                }
                (tag, content) => setting.unknown.push((tag, content.to_vec())),
            }
        }
        Some(setting)
    }

    /// The minute before which records are too old at a time.
    pub(crate) fn old_before(&self, now: Millis) -> u64 {
        minute(now.saturating_sub(self.retention))
    }

    /// Whether so many minutes are too old that they are to be cleared: a 24th of all, an hour at most.
    pub(crate) fn is_due(&self, now: Millis) -> bool {
        let step = (minute(self.retention) / 24).clamp(1, HOUR);
        self.retention == 0
            || self.is_cleared_ahead(now)
            || self.old_before(now) >= self.cleared.saturating_add(step)
    }

    /// Whether minutes are cleared that are to come in more than an hour: by a sweeper whose clock was ahead.
    pub(crate) fn is_cleared_ahead(&self, now: Millis) -> bool {
        self.cleared > minute(now).saturating_add(HOUR)
    }
}

impl GroupKey {
    /// The key; `subspace` is the packed (q, "ended").
    pub(crate) fn encode(&self, subspace: &[u8]) -> Vec<u8> {
        let mut key = from_minute(subspace, self.minute);
        key.extend_from_slice(&suffix(self.stamp));
        key.extend_from_slice(self.first.as_bytes());
        key
    }

    /// `None` if the key is of another layout.
    pub(crate) fn decode(subspace: &[u8], key: &[u8]) -> Option<GroupKey> {
        let (minute, rest) = split_number(key.strip_prefix(subspace)?)?;
        let (stamp, first) = rest.split_at_checked(1 + Stamp::LEN)?;
        let first = ItemId::new(Bytes::copy_from_slice(first));
        Some(GroupKey { minute, stamp: suffix_stamp(stamp)?, first })
    }
}

/// Where the keys of a minute, or an hour, begin.
pub(crate) fn from_minute(subspace: &[u8], minute: u64) -> Vec<u8> {
    let mut key = subspace.to_vec();
    append_number(&mut key, minute);
    key
}

/// The key of an item's result; `subspace` is the packed (q, "result").
pub(crate) fn result_key(subspace: &[u8], minute: u64, id: &ItemId) -> Vec<u8> {
    let mut key = from_minute(subspace, minute);
    key.extend_from_slice(id.as_bytes());
    key
}

/// The parameter of SET_VERSIONSTAMPED_KEY for a group.
pub(crate) fn pending_group(subspace: &[u8], minute: u64, first: &ItemId) -> Vec<u8> {
    items::pending_record(&from_minute(subspace, minute), 0, first.as_bytes())
}

/// The parameter of SET_VERSIONSTAMPED_KEY for a run; `subspace` is the packed (q, "ended-id").
pub(crate) fn pending_run(subspace: &[u8], minute: u64, last: &ItemId) -> Vec<u8> {
    let mut before = from_minute(subspace, hour(minute));
    before.extend_from_slice(last.as_bytes());
    items::pending_record(&before, 0, &[])
}

/// The value of a run, of a group with this first item.
pub(crate) fn encode_run(minute: u64, group: &ItemId, first: &ItemId, last: &ItemId) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, MINUTE_OF_HOUR, &[&[u8::try_from(minute % HOUR).unwrap_or(0)]]);
    if group != first {
        put(&mut out, GROUP, &[group.as_bytes()]);
    }
    if first != last {
        put(&mut out, FIRST, &[first.as_bytes()]);
    }
    out
}

/// A part of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) group: GroupKey,
    pub(crate) first: ItemId,
    pub(crate) last: ItemId,
}

impl Run {
    /// `None` if the row is of another layout.
    pub(crate) fn decode(subspace: &[u8], key: &[u8], value: &[u8]) -> Option<Run> {
        let (hour, rest) = split_number(key.strip_prefix(subspace)?)?;
        let (last, stamp) = rest.split_at_checked(rest.len().checked_sub(1 + Stamp::LEN)?)?;
        let (stamp, last) = (suffix_stamp(stamp)?, id(last));
        let (mut of_hour, mut group, mut first) = (0, None, None);
        for field in each(value) {
            match field? {
                (MINUTE_OF_HOUR, content) => of_hour = u64::from(*content.first()?),
                (GROUP, content) => group = Some(id(content)),
                (FIRST, content) => first = Some(id(content)),
                _ => {}
            }
        }
        let first = first.unwrap_or_else(|| last.clone());
        let minute = hour.checked_mul(HOUR)?.checked_add(of_hour)?;
        let group = GroupKey { minute, stamp, first: group.unwrap_or_else(|| first.clone()) };
        Some(Run { group, first, last })
    }
}

/// The keys of all runs of an hour that may have an item, and of no run of another one if there is nothing close behind the item.
pub(crate) fn runs_of(subspace: &[u8], hour: u64, id: &ItemId) -> (Vec<u8>, Vec<u8>) {
    let mut begin = from_minute(subspace, hour);
    let mut end = begin.clone();
    begin.extend_from_slice(id.as_bytes());
    match split_push(id) {
        Some((before, version)) => {
            end.extend_from_slice(before);
            end.extend_from_slice(&version.saturating_add(SPAN + 1).to_be_bytes());
        }
        None => {
            end.extend_from_slice(id.as_bytes());
            end.push(STAMP + 1);
        }
    }
    (begin, end)
}

/// Whether an item may be in one run with an earlier one that begins the run.
pub(crate) fn is_one_run(first: &ItemId, next: &ItemId) -> bool {
    let (Some((before, from)), Some((also_before, to))) = (split_push(first), split_push(next)) else {
        return false;
    };
    before == also_before && to.saturating_sub(from) <= SPAN
}

/// What stands before the stamp that ends an id, and the version of the push; `None` for the id of a recipe's item.
fn split_push(id: &ItemId) -> Option<(&[u8], u64)> {
    let version = id.pushed_at()?;
    Some((&id.as_bytes()[..id.as_bytes().len() - Stamp::LEN], version))
}

/// The beginning of a group's value: all but the items.
pub(crate) fn encode_group(
    at: Millis,
    version: u64,
    started: Option<Millis>,
    worker: Option<&str>,
) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, AT, &[&at.to_le_bytes()]);
    put(&mut out, VERSION, &[&version.to_le_bytes()]);
    if let Some(started) = started {
        put(&mut out, STARTED, &[&started.to_le_bytes()]);
    }
    if let Some(worker) = worker {
        put(&mut out, WORKER, &[worker.as_bytes()]);
    }
    out
}

/// Appends an item to a group's value. What goes without saying is left out: that it is done, at the first attempt.
pub(crate) fn append_item(
    out: &mut Vec<u8>,
    id: &ItemId,
    ending: Ending,
    attempts: u32,
    reason: Option<&str>,
    meta: Option<&Meta>,
) {
    out.push(ITEM);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out, ID, &[id.as_bytes()]);
    if ending != Ending::Done {
        put(out, ENDING, &[&[ending.code()]]);
    }
    if attempts != 1 {
        put(out, ATTEMPTS, &[&attempts.to_le_bytes()]);
    }
    if let Some(pushed) = meta.and_then(|meta| meta.enqueued_at) {
        put(out, PUSHED, &[&millis(pushed).to_le_bytes()]);
    }
    if let Some(reason) = reason {
        put(out, REASON, &[reason.as_bytes()]);
    }
    for (name, value) in meta.into_iter().flat_map(|meta| &meta.attributes) {
        put_pair(out, ATTRIBUTE, name, value);
    }
    end_item(out, at);
}

/// Adds the length of its result to the item that begins at `from` and is the last one.
pub(crate) fn append_result(out: &mut Vec<u8>, from: usize, len: usize) {
    let len = u32::try_from(len).expect("results are bounded far below 2^32 bytes");
    put(out, RESULT_LEN, &[&len.to_le_bytes()]);
    end_item(out, from + 1);
}

/// Sets the length of an item whose length is at `at`.
fn end_item(out: &mut [u8], at: usize) {
    let len = u32::try_from(out.len() - at - 4).expect("an item's record is bounded far below 2^32 bytes");
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// The items of a group, in the order of their ids; `None` if the value is of another layout.
pub(crate) fn decode_group(value: &[u8]) -> Option<Vec<EndedItem>> {
    let (mut ended, mut version, mut started, mut worker) = (None, None, None, None);
    let mut items = Vec::new();
    for field in each(value) {
        match field? {
            (AT, content) => ended = Some(number(content)?),
            (VERSION, content) => version = Some(number(content)?),
            (STARTED, content) => started = Some(from_millis(number(content)?)),
            (WORKER, content) => worker = Some(text(content)?),
            (ITEM, content) => items.push(decode_item(content)?),
            _ => {}
        }
    }
    let ended = ended?;
    for item in &mut items {
        item.ended = from_millis(ended);
        item.started = started;
        item.worker.clone_from(&worker);
        if item.pushed.is_none() {
            item.pushed = pushed_about(&item.id, ended, version).map(from_millis);
        }
    }
    Some(items)
}

/// When an item was pushed, by the versions of its push and of its end.
fn pushed_about(id: &ItemId, ended: Millis, version: Option<u64>) -> Option<Millis> {
    let age = version?.checked_sub(id.pushed_at()?)?;
    ended.checked_sub(age / 1_000)
}

fn decode_item(value: &[u8]) -> Option<EndedItem> {
    let mut item = EndedItem {
        id: id(&[]),
        ending: Ending::Done,
        pushed: None,
        started: None,
        ended: UNIX_EPOCH,
        attempts: 1,
        worker: None,
        reason: None,
        attributes: BTreeMap::new(),
        result: None,
    };
    for field in each(value) {
        match field? {
            (ID, content) => item.id = id(content),
            (ENDING, content) => item.ending = Ending::of(*content.first()?),
            (ATTEMPTS, content) => item.attempts = u32::from_le_bytes(content.try_into().ok()?),
            (PUSHED, content) => item.pushed = Some(from_millis(take_number(content)?.0)),
            (REASON, content) => item.reason = Some(text(content)?),
            (ATTRIBUTE, content) => item.attributes.extend([pair(content)?]),
            (RESULT_LEN, content) => {
                item.result = Some(u32::from_le_bytes(content.try_into().ok()?) as usize);
            }
            _ => {}
        }
    }
    (!item.id.as_bytes().is_empty()).then_some(item)
}

fn id(bytes: &[u8]) -> ItemId {
    ItemId::new(Bytes::copy_from_slice(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::id_layout::split_partition;
    use crate::testing::stamped;

    fn fifo(version: u64, user: u16) -> ItemId {
        let [a, b, c, d, e, f, g, h] = version.to_be_bytes();
        ItemId::from(Stamp::new([a, b, c, d, e, f, g, h, 0, 0], user))
    }

    #[test]
    fn items_of_pushes_within_ten_milliseconds_make_one_run() {
        assert!(is_one_run(&fifo(5, 1), &fifo(5, 2)));
        assert!(is_one_run(&fifo(5, 1), &fifo(5 + SPAN, 0)));
        assert!(!is_one_run(&fifo(5, 1), &fifo(6 + SPAN, 0)));
        let [Some((_, stamp)), ..] = [split_partition(fifo(5, 2).as_bytes())] else { panic!() };
        assert!(!is_one_run(&fifo(5, 1), &ItemId::in_partition(1, stamp)));
        let recipe = ItemId::new(vec![0x15, 1, 1, 2, 0].into());
        assert!(!is_one_run(&recipe, &recipe));
    }

    #[test]
    fn old_minutes_are_cleared_together() {
        let day = Setting { retention: 24 * 60 * MINUTE, cleared: 1_000, ..Setting::default() };
        let at = |minute: u64| minute * MINUTE + day.retention;
        assert!(!day.is_due(at(1_059)) && day.is_due(at(1_060)));
        assert_eq!(day.old_before(at(1_060) + 59_999), 1_060);
        let short = Setting { retention: 2 * MINUTE, cleared: 10, ..Setting::default() };
        assert!(!short.is_due(12 * MINUTE) && short.is_due(13 * MINUTE));
        assert!(Setting::default().is_due(0));
        // A sweeper with a clock that was ahead must not keep all others from clearing until then.
        let ahead = Setting { cleared: 1_000, ..day };
        assert!(ahead.is_due(939 * MINUTE) && !ahead.is_due(940 * MINUTE));
    }

    proptest! {
        #[test]
        fn settings_round_trip(
            retention: u64, cleared: u64, indexed: BTreeMap<String, u64>, unknown in prop::collection::vec((4..=u8::MAX, any::<Vec<u8>>()), 0..3),
        ) {
            let setting = Setting { retention, cleared, indexed, unknown };
            prop_assert_eq!(Setting::decode(&setting.encode()), Some(setting));
        }

        #[test]
        fn groups_round_trip(
            (at, minute, transaction) in any::<(u64, u64, [u8; 10])>(),
            (version, started, pushed) in any::<(u64, Option<u64>, Option<u64>)>(),
            worker in prop::option::of(".{0,9}"), reason in prop::option::of(".{0,9}"),
            (code, attempts, stamp) in any::<(u8, u32, [u8; 12])>(),
            attributes in prop::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
            result in prop::option::of(0..100_000_usize),
        ) {
            let id = ItemId::from(Stamp::from(stamp));
            let key = stamped(pending_group(b"p", minute, &id), transaction);
            let stamp = Stamp::new(transaction, 0);
            let group = GroupKey { minute, stamp, first: id.clone() };
            prop_assert_eq!(&group.encode(b"p"), &key);
            prop_assert_eq!(GroupKey::decode(b"p", &key), Some(group));
            let meta = Meta { enqueued_at: pushed.map(from_millis), attributes: attributes.clone(), ..Meta::default() };
            let mut value = encode_group(at, version, started, worker.as_deref());
            append_item(&mut value, &id, Ending::of(code), attempts, reason.as_deref(), Some(&meta));
            let from = value.len();
            append_item(&mut value, &id, Ending::Done, 1, None, None);
            if let Some(len) = result {
                append_result(&mut value, from, len);
            }
            let items = decode_group(&value).unwrap();
            let about = pushed_about(&id, at, Some(version));
            let second = EndedItem {
                id: id.clone(), ending: Ending::Done, attempts: 1, worker, reason: None, attributes: BTreeMap::new(), result,
                pushed: about.map(from_millis), started: started.map(from_millis), ended: from_millis(at),
            };
            let pushed = pushed.or(about).map(from_millis);
            let first = EndedItem {
                ending: Ending::of(code), pushed, attempts, reason, attributes, result: None, ..second.clone()
            };
            prop_assert_eq!(items, [first, second]);
        }

        #[test]
        fn runs_round_trip(
            minute in 0..u64::MAX / 2, transaction: [u8; 10], group: [u8; 12], first: [u8; 12], last: [u8; 12],
        ) {
            let [group, first, last] = [group, first, last].map(|stamp| ItemId::from(Stamp::from(stamp)));
            let key = stamped(pending_run(b"p", minute, &last), transaction);
            let value = encode_run(minute, &group, &first, &last);
            let group = GroupKey { minute, stamp: Stamp::new(transaction, 0), first: group };
            prop_assert_eq!(Run::decode(b"p", &key, &value), Some(Run { group, first, last }));
        }

        #[test]
        fn the_run_of_an_item_is_in_the_range_that_is_searched(
            hour in 0..1_000_000_u64, version in 0..u64::MAX / 2, transaction: [u8; 10], user: u16, ahead in 0..=SPAN,
        ) {
            let (id, last) = (fifo(version, user), fifo(version + ahead, u16::MAX));
            let key = stamped(pending_run(b"p", hour * HOUR, &last), transaction);
            let (begin, end) = runs_of(b"p", hour, &id);
            prop_assert!(begin <= key && key < end);
            let beyond = stamped(pending_run(b"p", hour * HOUR, &fifo(version + SPAN + 1, 0)), transaction);
            prop_assert!(end <= beyond);
        }

        #[test]
        fn any_bytes_are_read_without_panic(key: Vec<u8>, value: Vec<u8>) {
            let _ = (Setting::decode(&value), decode_group(&value), GroupKey::decode(b"", &key));
            let _ = Run::decode(b"", &key, &value);
        }
    }
}
