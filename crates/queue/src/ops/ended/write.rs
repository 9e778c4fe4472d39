//! Recording items that end in a transaction.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use mutant::{bound, mutant};

use super::setting;
use crate::keys::ended::{
    append_item, append_result, encode_group, encode_run, is_one_run, minute, pending_group, pending_run,
    result_key,
};
use crate::keys::{Space, ended_by, meta};
use crate::model::error::QueueError;
use crate::model::history::{Ending, MAX_RESULT};
use crate::model::id::ItemId;
use crate::model::meta::Meta;
use crate::model::recorder::{Holding, Recorder, Recording};
use crate::model::time::Millis;
use crate::ops::batches::ends::BatchEnds;
use crate::ops::scan::Row;
use crate::run::version::now;

/// A group has no more items once it has this many bytes, so that a page does not read much more than it shows.
fn group_bytes() -> usize {
    bound("history-group-bytes", 8_000)
}

/// The items that a transaction ends: their record, if the queue keeps one, and the counts of their batches.
#[derive(Debug)]
pub(crate) struct Endings<'a> {
    space: &'a Space,
    /// Boxed, so that transactions without a record do not carry it along.
    record: Option<Box<Recorded<'a>>>,
    batches: BatchEnds,
}

/// The record of items that a transaction ends.
#[derive(Debug)]
struct Recorded<'a> {
    space: &'a Space,
    recorder: &'a Recorder,
    at: Millis,
    version: u64,
    /// The attributes by which the history is indexed.
    names: Arc<[String]>,
    /// The items, one after the other.
    bytes: Vec<u8>,
    items: Vec<Noted>,
}

/// An item that a transaction ends.
#[derive(Debug)]
struct Noted {
    id: ItemId,
    /// Where it is in the bytes of the record.
    range: Range<usize>,
    /// The values by which it is found, each with the number of its name.
    values: Vec<(usize, String)>,
}

/// Begins to note ends. Without a recorder that is on it reads nothing. The record is boxed, and so is the future that makes it: transactions without a
/// record do not carry them along.
pub(crate) async fn begin<'a>(space: &'a Space, tr: &Transaction) -> Result<Endings<'a>, QueueError> {
    let record = match space.recorder.as_ref().filter(|recorder| recorder.may_record()) {
        Some(recorder) => Box::pin(recorded(space, recorder, tr)).await?,
        None => None,
    };
    Ok(Endings { space, record, batches: BatchEnds::default() })
}

async fn recorded<'a>(
    space: &'a Space,
    recorder: &'a Recorder,
    tr: &Transaction,
) -> Result<Option<Box<Recorded<'a>>>, QueueError> {
    let (at, version) = (recorder.now(), now(tr).await?);
    let is_on = recorder.recording() == Recording::On;
    let seen = recorder.fresh_index(&space.queue, version, at).filter(|_| is_on);
    let names = match seen {
        Some(names) => names,
        None => {
            // A setting that is damaged must not prevent a change of an item.
            let setting = QueueError::if_readable(setting(space, tr, true).await)?.ok().flatten();
            let setting = setting.unwrap_or_default();
            if !is_on && setting.retention == 0 {
                return Ok(None);
            }
            let names: Arc<[String]> = setting.indexed.into_keys().collect();
            recorder.remember_index(&space.queue, version, at, names.clone());
            names
        }
    };
    let (bytes, items) = (Vec::new(), Vec::new());
    Ok(Some(Box::new(Recorded { space, recorder, at, version, names, bytes, items })))
}

/// Notes items that a fetch or a pop has taken for good. That is an attempt.
pub(crate) async fn taken<'r>(
    space: &Space,
    tr: &Transaction,
    rows: impl IntoIterator<Item = &'r Row>,
) -> Result<(), QueueError> {
    let mut endings = begin(space, tr).await?;
    for row in rows {
        endings.add_record(&row.id, &row.meta, Ending::Taken, None, 1);
    }
    endings.write(tr, None).await
}

impl Endings<'_> {
    /// Adds an item that its handler has finished.
    #[inline]
    pub(crate) fn add_done(&mut self, id: &ItemId, record: &[u8]) {
        self.add_record(id, record, Ending::Done, None, 1);
    }

    /// Adds an item that no attempt ended, with as many attempts as it has had.
    pub(crate) fn add(&mut self, id: &ItemId, record: &[u8], ending: Ending, reason: Option<&str>) {
        self.add_record(id, record, ending, reason, 0);
    }

    /// Adds an item with this many attempts more than its side record has.
    #[inline]
    fn add_record(&mut self, id: &ItemId, record: &[u8], ending: Ending, reason: Option<&str>, more: u32) {
        if !record.is_empty() {
            self.batches.add_record(record, ending);
        }
        if let Some(recorded) = &mut self.record {
            recorded.add_record(id, record, ending, reason, more);
        }
    }

    /// The same with the result that the handler gave.
    pub(crate) fn add_done_with(&mut self, tr: &Transaction, id: &ItemId, record: &[u8], result: &[u8]) {
        if !record.is_empty() {
            self.batches.add_record(record, Ending::Done);
        }
        if let Some(recorded) = &mut self.record {
            recorded.add_done_with(tr, id, record, result);
        }
    }

    /// Adds a dead letter.
    pub(crate) fn add_dead(&mut self, id: &ItemId, meta: &Meta) {
        for batch in &meta.batches {
            self.batches.add(batch, Ending::Dead);
        }
        if let Some(record) = &mut self.record {
            let reason = meta.death.as_ref().map(|death| death.reason.as_str());
            record.add(id, Ending::Dead, meta.attempts, reason, Some(meta));
        }
    }

    /// Writes the record, and counts the members of batches. `holding`: of the lease that they ended on.
    ///
    /// # Errors
    /// [`QueueError::Frozen`], if the home of a batch is being moved to another database, and the database's. Without members of batches nothing is read.
    pub(crate) async fn write(self, tr: &Transaction, holding: Option<&Holding>) -> Result<(), QueueError> {
        let Endings { space, record, batches } = self;
        if let Some(record) = record {
            record.write(tr, holding);
        }
        if batches.is_empty() {
            return Ok(());
        }
        // Boxed, so that transactions without members do not carry it along.
        let counted = Box::pin(batches.read(space, tr)).await?;
        counted.write(tr);
        Ok(())
    }
}

impl Recorded<'_> {
    fn add_record(&mut self, id: &ItemId, record: &[u8], ending: Ending, reason: Option<&str>, more: u32) {
        if record.is_empty() {
            return self.add(id, ending, more, reason, None);
        }
        let meta = meta::decode(record).unwrap_or_default();
        self.add(id, ending, meta.attempts.saturating_add(more), reason, Some(&meta));
    }

    /// Adds an item. An item that failed has the reason.
    fn add(&mut self, id: &ItemId, ending: Ending, attempts: u32, reason: Option<&str>, meta: Option<&Meta>) {
        let from = self.bytes.len();
        append_item(&mut self.bytes, id, ending, attempts, reason, meta);
        let values = meta.map(|meta| self.values(meta)).unwrap_or_default();
        self.items.push(Noted { id: id.clone(), range: from..self.bytes.len(), values });
    }

    /// The values by which an item is found.
    fn values(&self, meta: &Meta) -> Vec<(usize, String)> {
        let names = self.names.iter().enumerate();
        names.filter_map(|(n, name)| Some((n, meta.attributes.get(name)?.clone()))).collect()
    }

    /// Adds an item that its handler has finished with a result, which is written now.
    fn add_done_with(&mut self, tr: &Transaction, id: &ItemId, record: &[u8], result: &[u8]) {
        self.add_record(id, record, Ending::Done, None, 1);
        let Some(Noted { id, range, .. }) = self.items.last_mut() else { return };
        append_result(&mut self.bytes, range.start, result.len().min(MAX_RESULT + 1));
        range.end = self.bytes.len();
        if result.len() <= MAX_RESULT && !mutant("result-without-its-row") {
            tr.set(&result_key(&self.space.results, minute(self.at), id), result);
        }
    }

    /// Writes it: a row for each group, one for each run of it, and one for each value by which its items are found. `holding`: of the lease that they ended on.
    fn write(mut self, tr: &Transaction, holding: Option<&Holding>) {
        if mutant("ends-unrecorded") {
            return;
        }
        self.items.sort_by(|a, b| a.id.cmp(&b.id));
        let started = holding.and_then(|holding| holding.started);
        let worker = holding.and_then(|holding| holding.worker.as_deref()).or(self.recorder.worker());
        let header = encode_group(self.at, self.version, started, worker);
        let mut rest = self.items.as_slice();
        while !rest.is_empty() {
            let mut value = header.clone();
            let mut len = 0;
            for item in rest {
                value.extend_from_slice(&self.bytes[item.range.clone()]);
                len += 1;
                if value.len() >= group_bytes() {
                    break;
                }
            }
            let (group, more) = rest.split_at(len);
            self.write_group(tr, group, &value);
            rest = more;
        }
    }

    fn write_group(&self, tr: &Transaction, group: &[Noted], value: &[u8]) {
        let (space, minute, group_first) = (self.space, minute(self.at), &group[0].id);
        let stamped = MutationType::SetVersionstampedKey;
        tr.atomic_op(&pending_group(&space.ended, minute, group_first), value, stamped);
        for run in runs(group) {
            let (first, last) = (&run[0].id, &run[run.len() - 1].id);
            let value = encode_run(minute, group_first, first, last);
            tr.atomic_op(&pending_run(&space.ended_ids, minute, last), &value, stamped);
        }
        let values: BTreeSet<&(usize, String)> = group.iter().flat_map(|item| &item.values).collect();
        for (name, value) in values {
            let pair = (self.names[*name].as_str(), value.as_str());
            if !mutant("index-without-rows") {
                tr.atomic_op(&ended_by::pending(&space.ended_by, minute, pair, group_first), &[], stamped);
            }
        }
    }
}

/// The runs of a group.
fn runs(group: &[Noted]) -> impl Iterator<Item = &[Noted]> {
    let mut rest = group;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let len = 1 + rest[1..].iter().take_while(|next| is_one_run(&first.id, &next.id)).count();
        let (run, more) = rest.split_at(len);
        rest = more;
        Some(run)
    })
}
