//! The records in the database.

use std::{collections::HashSet, fmt, str::FromStr};

use foundationdb::{
    RangeOption, Transaction,
    options::{MutationType, StreamingMode},
    tuple::{Subspace, Versionstamp, pack},
};
use kvqueue_queue::{Millis, QueueError};

use super::Record;

/// The most records that are kept: the sweeper removes the oldest beyond them.
pub(crate) const MAX_RECORDS: u64 = 100_000;

/// The most records that one transaction reads.
const ROWS: usize = 1_000;

/// The most that clocks of machines differ. A list of records since a time reads older records, too, as far back as this.
const CLOCKS_DIFFER: Millis = 3_600_000;

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
    pub(crate) since: Option<Millis>,
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
        tr.set(&self.last, &record.at.to_le_bytes());
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
            if filter.since.is_some_and(|since| record.at.saturating_add(CLOCKS_DIFFER) < since) {
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

    /// Removes some of the oldest records: those from before `oldest`, and those beyond `most`. Returns their number, and
    /// whether there may be more.
    pub(crate) async fn sweep(
        &self,
        tr: &Transaction,
        oldest: Millis,
        most: u64,
    ) -> Result<(u64, bool), QueueError> {
        let count = tr.get(&self.count, true).await?;
        let count = count.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_le_bytes);
        let rows = self.rows(tr, self.records.range(), false).await?;
        let mut old = usize::try_from(count.saturating_sub(most)).unwrap_or(usize::MAX).min(rows.len());
        for (index, (_, value)) in rows.iter().enumerate() {
            // The time of a record that cannot be read is between those of its neighbours.
            let Ok(record) = serde_json::from_slice::<Record>(value) else { continue };
            if record.at >= oldest {
                break;
            }
            old = old.max(index + 1);
        }
        let Some((last, _)) = old.checked_sub(1).and_then(|index| rows.get(index)) else {
            return Ok((0, false));
        };
        tr.clear_range(&self.records.range().0, &[last.as_slice(), &[0]].concat());
        let removed = u64::try_from(old).unwrap_or(u64::MAX);
        tr.atomic_op(&self.count, &removed.wrapping_neg().to_le_bytes(), MutationType::Add);
        Ok((removed, old == rows.len()))
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

#[cfg(test)]
mod tests;
