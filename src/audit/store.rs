//! The records in the database.

use std::{
    collections::HashSet,
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use foundationdb::{
    RangeOption, Transaction,
    options::{MutationType, StreamingMode},
    tuple::{Subspace, Versionstamp, pack},
};
use kvqueue_queue::{QueueError, from_millis, millis};

use super::{Excess, Record};
use crate::base::times::{self, before};

/// The most records that are kept: of more, the sweeper removes the oldest of the actor that has the most.
pub(crate) const MAX_RECORDS: u64 = 100_000;

/// The most records that one transaction reads.
const ROWS: usize = 1_000;

/// The most that clocks of machines differ. A list of records since a time reads older records, too, as far back as this.
const CLOCKS_DIFFER: Duration = Duration::from_hours(1);

/// The records behind a prefix.
#[derive(Clone, Debug)]
pub(crate) struct AuditStore {
    /// `(0, "kvqueue", "audit", stamp)`: a record, in the order of commits.
    records: Subspace,
    /// `(0, "kvqueue", "audit-count")`: the number of records.
    count: Vec<u8>,
    /// `(0, "kvqueue", "audit-last")`: the time of the last record.
    last: Vec<u8>,
}

/// Which records a list has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Those about this queue.
    pub(crate) queue: Option<Vec<u8>>,
    /// Those from this time on.
    pub(crate) since: Option<SystemTime>,
}

/// A part of the records, the newest first.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) records: Vec<Record>,
    /// Where the next page begins. A page may have few records, or none, and a next one.
    pub(crate) next: Option<Cursor>,
}

/// The position of a record: its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor([u8; 12]);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not a cursor; use `next` of the previous page");
        if text.len() != 24 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut stamp = [0; 12];
        for (index, byte) in stamp.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(stamp))
    }
}

impl AuditStore {
    pub(crate) fn new(prefix: &[u8]) -> Self {
        let below = |name: &str| [prefix, &pack(&(0, "kvqueue", name))].concat();
        Self {
            records: Subspace::from_bytes(below("audit")),
            count: below("audit-count"),
            last: below("audit-last"),
        }
    }

    /// Makes sure that [`Self::write`] replaces something. A database whose disk is full accepts this small change, and then
    /// changes that replace something; changes that make space are among them.
    pub(crate) async fn prepare(&self, tr: &Transaction) -> Result<(), QueueError> {
        if tr.get(&self.last, true).await?.is_none() {
            tr.set(&self.last, &0_u64.to_le_bytes());
        }
        Ok(())
    }

    /// Adds a record to a transaction. It conflicts with nothing.
    pub(crate) fn write(&self, tr: &Transaction, record: &Record) {
        let value = serde_json::to_vec(record).expect("a record has texts and numbers only");
        let key = self.records.pack_with_versionstamp(&Versionstamp::incomplete(0));
        tr.atomic_op(&key, &value, MutationType::SetVersionstampedKey);
        tr.atomic_op(&self.count, &1_u64.to_le_bytes(), MutationType::Add);
        tr.set(&self.last, &millis(record.at).to_le_bytes());
    }

    /// Up to `limit` records before a place, the newest first. Records of a newer version that cannot be read are
    /// left out.
    pub(crate) async fn page(
        &self,
        tr: &Transaction,
        after: Option<Cursor>,
        filter: &Filter,
        limit: usize,
    ) -> Result<Page, QueueError> {
        let (begin, mut end) = self.records.range();
        if let Some(Cursor(stamp)) = after {
            end = self.records.pack(&(Versionstamp::from(stamp),));
        }
        let rows = self.rows(tr, (begin, end), true).await?;
        let (mut records, mut ids) = (Vec::new(), HashSet::new());
        let is_whole = rows.len() < ROWS;
        for (key, value) in rows.iter() {
            let next = self.cursor(key);
            let Ok(record) = serde_json::from_slice::<Record>(value) else { continue };
            if filter.since.is_some_and(|since| times::after(record.at, CLOCKS_DIFFER) < since) {
                return Ok(Page { records, next: None });
            }
            let is_wanted = filter.since.is_none_or(|since| record.at >= since)
                && filter.queue.as_ref().is_none_or(|queue| record.concerns(queue));
            if is_wanted && ids.insert(record.id.clone()) {
                records.push(record);
            }
            if records.len() >= limit {
                return Ok(Page { records, next });
            }
        }
        let next = rows.last().filter(|_| !is_whole).and_then(|(key, _)| self.cursor(key));
        Ok(Page { records, next })
    }

    /// Removes some of the records that are older than `kept`, by `now` and by the time of the last record: a clock that is ahead of that removes nothing. Returns
    /// their number, and whether there may be more.
    pub(crate) async fn sweep(
        &self,
        tr: &Transaction,
        now: SystemTime,
        kept: Duration,
    ) -> Result<(u64, bool), QueueError> {
        let last = tr.get(&self.last, true).await?;
        let last = last.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_le_bytes);
        let oldest = before(now.min(from_millis(last)), kept);
        let rows = self.rows(tr, self.records.range(), false).await?;
        let mut old = 0;
        for (index, (_, value)) in rows.iter().enumerate() {
            // The time of a record that cannot be read is between those of its neighbours.
            let Ok(record) = serde_json::from_slice::<Record>(value) else { continue };
            if record.at >= oldest {
                break;
            }
            old = index + 1;
        }
        let Some((last, _)) = old.checked_sub(1).and_then(|index| rows.get(index)) else {
            return Ok((0, false));
        };
        tr.clear_range(&self.records.range().0, &behind(last));
        let removed = u64::try_from(old).unwrap_or(u64::MAX);
        self.count_gone(tr, removed);
        Ok((removed, old == rows.len()))
    }

    /// The number of records.
    pub(crate) async fn count(&self, tr: &Transaction) -> Result<u64, QueueError> {
        let count = tr.get(&self.count, true).await?;
        Ok(count.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_le_bytes))
    }

    /// Some of the records from a key on, the oldest first; none for each that cannot be read. And where they go on.
    pub(crate) async fn oldest(
        &self,
        tr: &Transaction,
        from: Option<&[u8]>,
    ) -> Result<(Vec<Option<Record>>, Option<Vec<u8>>), QueueError> {
        let rows = self.rows(tr, self.from(from), false).await?;
        let records = rows.iter().map(|(_, value)| serde_json::from_slice(value).ok()).collect();
        Ok((records, rows.last().filter(|_| rows.len() == ROWS).map(|(key, _)| behind(key))))
    }

    /// Removes those of some records from a key on that are too many. Returns their number, what is left to remove, and where it goes on.
    pub(crate) async fn remove(
        &self,
        tr: &Transaction,
        from: Option<&[u8]>,
        mut excess: Excess,
    ) -> Result<(u64, Excess, Option<Vec<u8>>), QueueError> {
        let rows = self.rows(tr, self.from(from), false).await?;
        let mut removed = 0_u64;
        for (key, value) in &rows {
            if excess.takes(serde_json::from_slice(value).ok().as_ref()) {
                tr.clear(key);
                removed += 1;
            }
        }
        self.count_gone(tr, removed);
        Ok((removed, excess, rows.last().filter(|_| rows.len() == ROWS).map(|(key, _)| behind(key))))
    }

    fn count_gone(&self, tr: &Transaction, removed: u64) {
        tr.atomic_op(&self.count, &removed.wrapping_neg().to_le_bytes(), MutationType::Add);
    }

    /// The range of the records from a key on.
    fn from(&self, key: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
        let (begin, end) = self.records.range();
        (key.map_or(begin, <[u8]>::to_vec), end)
    }

    fn cursor(&self, key: &[u8]) -> Option<Cursor> {
        let (stamp,) = self.records.unpack::<(Versionstamp,)>(key).ok()?;
        Some(Cursor(*stamp.as_bytes()))
    }

    /// Up to [`ROWS`] rows of a range. Reading from the front conflicts with other sweepers, and with no writer unless all rows
    /// are read.
    async fn rows(
        &self,
        tr: &Transaction,
        (begin, end): (Vec<u8>, Vec<u8>),
        is_newest_first: bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, QueueError> {
        let mut rows = Vec::new();
        let whole = RangeOption {
            mode: StreamingMode::WantAll,
            reverse: is_newest_first,
            limit: Some(ROWS),
            ..RangeOption::from((begin, end))
        };
        let mut rest = Some(whole);
        while let Some(range) = rest {
            let page = tr.get_range(&range, 1, is_newest_first).await?;
            rows.extend(page.iter().map(|row| (row.key().to_vec(), row.value().to_vec())));
            rest = range.next_range(&page);
        }
        Ok(rows)
    }
}

/// The key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests;
