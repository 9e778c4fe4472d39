//! Writes, conflict ranges and options.

use super::calls::{METADATA_VERSION, SPECIAL_END, cut, is_special, key_limit};
use super::own::{SET, STAMPED_KEY, STAMPED_VALUE, Write};
use super::transaction::{Held, Transaction};
use super::{Range, Seen, atomic, conflict};
use crate::program::{Bytes, Call};
use fdb_embedded::testing::Reply;

const VALUE_LIMIT: usize = 100_000;

fn len(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap()
}

/// Where a versionstamp goes in a template.
fn stamp_place(template: &[u8]) -> Result<usize, i32> {
    let (rest, place) = template.split_last_chunk::<4>().ok_or(2000)?;
    let place = usize::try_from(i32::from_le_bytes(*place)).map_err(|_| 2000)?;
    if place + 10 <= rest.len() { Ok(place) } else { Err(2000) }
}

impl Transaction {
    pub fn key_limit(&self, key: &[u8]) -> usize {
        key_limit(key) - if self.options.raw { 0 } else { 8 }
    }

    /// Runs a call that cannot report an error: it is kept, and with one kept nothing more is done.
    pub fn apply(&mut self, call: impl FnOnce(&mut Transaction) -> Result<(), i32>) {
        if self.deferred.is_none() {
            self.deferred = call(self).err();
        }
    }

    pub fn write(&mut self, call: &Call) -> Seen {
        match call {
            Call::Set { key, value } => self.apply(|t| t.set(key, value)),
            Call::Clear { key } => self.apply(|t| t.clear(key)),
            Call::ClearRange { begin, end } => self.apply(|t| t.clear_range(begin, end)),
            Call::Atomic { code, key, operand } => self.apply(|t| t.atomic(*code, key, operand)),
            Call::AddConflict { kind, begin, end } => {
                if begin > end {
                    return Seen::Status(2005);
                }
                if *kind > 1 {
                    return Seen::Status(2000);
                }
                self.apply(|t| t.add_conflict(*kind == 1, begin, end));
                return Seen::Status(0);
            }
            Call::SetOption { code: 9999, .. } => return Seen::Status(2007),
            Call::SetOption { code, value } => {
                self.apply(|t| t.set_option(*code, value.as_deref()));
                return Seen::Status(0);
            }
            _ => unreachable!("no other call is a write"),
        }
        Seen::Nothing
    }

    fn takes_conflict(&mut self) -> bool {
        !std::mem::take(&mut self.options.next_write_no_conflict)
    }

    fn mutate(&mut self, code: u32, key: &[u8], operand: &[u8], conflict: bool) {
        self.has_written = true;
        let (key, operand) = (key.to_vec(), operand.to_vec());
        self.own.list.push(Write::Op { code, key, operand, conflict });
    }

    /// Fires the transaction's own watches of a range that gets `value`; without one it may be any.
    fn fire(&mut self, range: &Range, value: Option<Option<&[u8]>>) {
        for held in &mut self.held {
            if let Held::Waiting { watch: Some((key, baseline)) } = held
                && range.contains(key)
                && value != Some(baseline.as_deref())
            {
                *held = Held::Ended(Reply::Void);
            }
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), i32> {
        if key == METADATA_VERSION {
            return Err(2000);
        }
        if is_special(key) {
            return Err(2114);
        }
        let conflict = self.takes_conflict();
        self.check_used()?;
        if key >= self.max_write() {
            return Err(2004);
        }
        self.size += len(key) + len(value) + 44 + if conflict { 25 + 2 * len(key) } else { 0 };
        if key.len() > self.key_limit(key) {
            return Err(2102);
        }
        if value.len() > VALUE_LIMIT {
            return Err(2103);
        }
        self.mutate(SET, key, value, conflict);
        self.fire(&Range::key(key), Some(Some(value)));
        Ok(())
    }

    fn atomic(&mut self, code: u32, key: &[u8], operand: &[u8]) -> Result<(), i32> {
        let mut conflict = self.takes_conflict();
        self.check_used()?;
        if key == METADATA_VERSION {
            return Err(2000);
        }
        if key >= self.max_write() {
            return Err(2004);
        }
        if !atomic::CODES.contains(&code) {
            return Err(2018);
        }
        if key.len() > self.key_limit(key) {
            return Err(2102);
        }
        if operand.len() > VALUE_LIMIT {
            return Err(2103);
        }
        let mut key: Bytes = key.to_vec();
        if code == STAMPED_KEY {
            self.reserve(&mut key)?;
            conflict = false;
        }
        if code == STAMPED_VALUE {
            stamp_place(operand)?;
        }
        self.size += len(&key) + len(operand) + 44 + if conflict { 25 + 2 * len(&key) } else { 0 };
        self.mutate(code, &key, operand, conflict);
        if !self.options.ryw_disabled {
            self.fire(&Range::key(&key), None);
        }
        Ok(())
    }

    /// Makes unreadable where a stamped key may come to lie, and puts the lowest possible stamp into the template.
    fn reserve(&mut self, template: &mut Bytes) -> Result<(), i32> {
        let place = stamp_place(template)?;
        let key = template.len() - 4;
        let lowest = [&self.real_version.unwrap_or(0).to_be_bytes()[..], &[0, 0]].concat();
        template[place..place + 10].copy_from_slice(&lowest);
        let mut highest = template[..key].to_vec();
        highest[place..place + 10].fill(0xff);
        highest.push(0);
        let range = Range::new(&template[..key], highest.as_slice().min(self.max_read()));
        if !self.options.ryw_disabled {
            let mut sent = self.own.changes(&range);
            self.early.append(&mut sent);
            self.own.list.push(Write::Unreadable(range));
        }
        Ok(())
    }

    fn clear(&mut self, key: &[u8]) -> Result<(), i32> {
        let conflict = self.takes_conflict();
        self.check_used()?;
        if is_special(key) {
            return Err(2114);
        }
        if key >= self.max_write() {
            return Err(2004);
        }
        if key.len() > key_limit(key) {
            return Ok(());
        }
        let range = Range::key(key);
        if !self.options.ryw_disabled {
            self.size += range.size() + 24 + if conflict { 24 + range.size() } else { 0 };
        }
        self.erase(range, conflict);
        Ok(())
    }

    fn clear_range(&mut self, begin: &[u8], end: &[u8]) -> Result<(), i32> {
        if begin > end {
            return Err(2005);
        }
        let conflict = self.takes_conflict();
        self.check_used()?;
        if is_special(begin) && end <= SPECIAL_END {
            return Err(2114);
        }
        if begin > self.max_write() || end > self.max_write() {
            return Err(2004);
        }
        let range = Range::new(begin, end);
        self.size += range.size() + 44 + if conflict { 24 + range.size() } else { 0 };
        let range = Range::new(&cut(begin), &cut(end));
        if !range.is_empty() {
            self.erase(range, conflict);
        }
        Ok(())
    }

    fn erase(&mut self, range: Range, conflict: bool) {
        self.has_written = true;
        self.fire(&range, Some(None));
        self.own.list.push(Write::Clear { range, conflict });
    }

    fn add_conflict(&mut self, write: bool, begin: &[u8], end: &[u8]) -> Result<(), i32> {
        self.check_used()?;
        let max = if write { self.max_write() } else { self.max_read() };
        let is_metadata = begin == METADATA_VERSION && end == [METADATA_VERSION, &[0]].concat();
        if (begin > max || end > max) && (write || !is_metadata) {
            return Err(2004);
        }
        let range = Range::new(&cut(begin), &cut(end));
        if range.is_empty() {
            return Ok(());
        }
        if !write {
            if self.options.ryw_disabled {
                self.size += range.size() + 24;
                self.plain_reads.push(range.clone());
            }
            self.read(&range);
            return Ok(());
        }
        self.size += range.size() + 24;
        self.has_written = true;
        self.own.list.push(Write::Conflict(range));
        Ok(())
    }

    /// Adds a read conflict range, less what the transaction has itself overwritten.
    pub fn read(&mut self, range: &Range) {
        if self.options.ryw_disabled {
            return self.read_plain(range.clone());
        }
        if range.is_empty() {
            return;
        }
        // FoundationDB's map keeps some bounds of conflict ranges that lie in each other, and counts a part more.
        let by_hand = self.own.list.iter().filter(|write| matches!(write, Write::Conflict(_))).count();
        self.vague_size |= by_hand > 1;
        for part in conflict::spoilable(&self.own, range) {
            self.size += range.size() + 24;
            self.reads.push(part);
        }
    }

    /// Adds a read conflict range that is one of these.
    pub fn read_one_of(&mut self, ranges: &[Range]) {
        if ranges.iter().all(|range| *range == ranges[0]) {
            return self.read(&ranges[0]);
        }
        self.vague_size = true;
        let certain = self.reads.len();
        ranges.iter().for_each(|range| self.read(range));
        self.maybe_reads.extend(self.reads.drain(certain..));
        let begin = ranges.iter().map(|range| &range.begin).max().unwrap();
        let end = ranges.iter().map(|range| &range.end).min().unwrap();
        self.read(&Range::new(begin, end));
    }

    pub fn read_plain(&mut self, range: Range) {
        if !range.is_empty() {
            self.reads.push(range);
        }
    }

    fn set_option(&mut self, code: u32, value: Option<&[u8]>) -> Result<(), i32> {
        let int = |min: i64, max: i64| {
            let bytes: [u8; 8] = value.and_then(|value| value.try_into().ok()).ok_or(2006)?;
            let value = i64::from_le_bytes(bytes);
            if (min..=max).contains(&value) { Ok(value) } else { Err(2006) }
        };
        match code {
            500 | 502 => return int(0, i32::MAX.into()).map(drop),
            501 => return int(-1, i32::MAX.into()).map(|limit| self.options.retry_limit = limit),
            503 => return int(32, 10_000_000).map(|limit| self.options.size_limit = limit),
            _ => {}
        }
        if value.is_some_and(|value| !value.is_empty()) {
            return Err(2006);
        }
        match code {
            30 => self.options.next_write_no_conflict = true,
            51 if self.failed_read.is_some() || self.has_read => return Err(2000),
            51 if self.has_written && !self.options.ryw_disabled => return Err(2000),
            51 => self.options.ryw_disabled = true,
            301 | 302 => {
                self.options.read_system = true;
                self.options.write_system |= code == 301;
                // Access to system keys implies raw access.
                self.options.raw = true;
            }
            303 => self.options.raw = true,
            600 => self.options.snapshot_ryw += 1,
            601 => self.options.snapshot_ryw -= 1,
            700 => (self.options.lock_aware, self.options.read_only) = (true, false),
            701 => self.options.protection_disabled = true,
            702 if !self.options.lock_aware => {
                (self.options.lock_aware, self.options.read_only) = (true, true);
            }
            702 => {}
            712 => self.options.report_conflicts = true,
            1100 => self.options.bypass_unreadable = true,
            _ => unreachable!("the generator makes no other option"),
        }
        Ok(())
    }
}
