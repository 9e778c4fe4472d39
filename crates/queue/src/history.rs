//! The history of a queue: what became of the items that have ended.
//!
//! Off unless a queue's handle has a [`Recorder`]. Then each transaction that ends items adds one record of them all, so that an item costs a part of
//! a row. The records are ordered by time, and are removed by time: the setting of the queue, [`Queue::keep_history`], says when.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use foundationdb::Transaction;

use crate::error::QueueError;
use crate::id::ItemId;
use crate::item::Stamp;
use crate::keys::ended::GroupKey;
use crate::meta::Millis;
use crate::ops::ended;
use crate::queue::Queue;
use crate::schedule::ATTRIBUTES;
use crate::time::millis;

/// The longest time for which ended items are kept. To find one by its id, a key range for each hour of it is read.
pub const MAX_HISTORY: Duration = Duration::from_hours(30 * 24);

/// The most bytes of a worker's name in a record.
pub const MAX_WORKER: usize = 128;

/// The longest result of an item that is kept, in bytes.
pub const MAX_RESULT: usize = 90_000;

/// How an item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Its handler finished it.
    Done,
    /// It became a dead letter. If that is retried, the item ends once more.
    Dead,
    /// An operator cancelled or deleted it.
    Cancelled,
    /// No attempt had begun by the time at which it expired.
    Expired,
    /// It was taken for good: by a fetch with at-most-once delivery, or a pop. Nothing tells what became of it afterwards.
    Taken,
    /// An ending of a later version, by its code.
    Unknown(u8),
}

/// A text is not an ending.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("outcome {text:?} is unknown; use done, dead, cancelled, expired or taken")]
pub struct ParseEndingError {
    text: String,
}

impl Ending {
    /// The endings of this version.
    pub const ALL: [Ending; 5] =
        [Ending::Done, Ending::Dead, Ending::Cancelled, Ending::Expired, Ending::Taken];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::Dead => "dead",
            Ending::Cancelled => "cancelled",
            Ending::Expired => "expired",
            Ending::Taken => "taken",
            Ending::Unknown(_) => "unknown",
        }
    }

    /// As records have it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Ending::Done => 1,
            Ending::Dead => 2,
            Ending::Cancelled => 3,
            Ending::Expired => 4,
            Ending::Taken => 5,
            Ending::Unknown(code) => code,
        }
    }

    pub(crate) fn of(code: u8) -> Ending {
        Ending::ALL.into_iter().find(|ending| ending.code() == code).unwrap_or(Ending::Unknown(code))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Ending {
    type Err = ParseEndingError;

    fn from_str(text: &str) -> Result<Ending, ParseEndingError> {
        let found = Ending::ALL.into_iter().find(|ending| ending.as_str() == text);
        found.ok_or_else(|| ParseEndingError { text: text.to_owned() })
    }
}

/// An item that has ended. Its payload is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedItem {
    /// Which item it was.
    pub id: ItemId,
    /// How it ended.
    pub ending: Ending,
    /// When it was pushed: as the producer says; or by the versions of its push and of its end, which is right to about a second but for jumps of
    /// the versions. `None` if its id tells no version.
    pub pushed: Option<Millis>,
    /// When its last fetch was made, if it ended on the lease of that fetch and the session that fetched it.
    pub started: Option<Millis>,
    /// When it ended, by the clock of the process that ended it.
    pub ended: Millis,
    /// How many attempts it had, the last one included if it ended with an attempt.
    pub attempts: u32,
    /// The worker that ended it, as [`Lease::note_worker`](crate::Lease::note_worker) named it; otherwise the process, as its [`Recorder`] says.
    pub worker: Option<String>,
    /// Why, if it is not done.
    pub reason: Option<String>,
    /// The producer's names and values.
    pub attributes: BTreeMap<String, String>,
    /// How many bytes the result has that its handler gave, if it gave one. [`Queue::result`] reads it. Of a result of more than [`MAX_RESULT`] bytes
    /// nothing is kept but that there was one: this is `MAX_RESULT + 1` then.
    pub result: Option<usize>,
}

impl EndedItem {
    /// The schedule that pushed it, if one did.
    pub fn schedule(&self) -> Option<&str> {
        self.attributes.get(ATTRIBUTES[0]).map(String::as_str)
    }
}

/// Which ended items are meant: items that match everything given here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Items that ended so.
    pub ending: Option<Ending>,
    /// Items that have these attributes, by their names, with these values.
    pub attributes: Vec<(String, String)>,
    /// Items of this schedule.
    pub schedule: Option<String>,
    /// Items that ended at this time or later.
    pub since: Option<Millis>,
    /// Items that ended before this time.
    pub until: Option<Millis>,
}

impl HistoryFilter {
    pub(crate) fn matches(&self, item: &EndedItem) -> bool {
        let has = |(name, value): &(String, String)| item.attributes.get(name) == Some(value);
        self.ending.is_none_or(|ending| ending == item.ending)
            && self.attributes.iter().all(has)
            && self.schedule.as_deref().is_none_or(|schedule| item.schedule() == Some(schedule))
            && self.since.is_none_or(|since| item.ended >= since)
            && self.until.is_none_or(|until| item.ended < until)
    }
}

/// A page of ended items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryPage {
    /// The items, the newest first.
    pub items: Vec<EndedItem>,
    /// Where the next page begins; `None` if there are no older items. A page may be short, or even empty, and have a next one.
    pub next: Option<HistoryCursor>,
    /// Groups of items that cannot be read: they are damaged, or a later version of kvqueue wrote them.
    pub unreadable: usize,
}

/// A place among the ended items: before one of them, by time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryCursor {
    pub(crate) group: GroupKey,
    /// The number of the item in its group.
    pub(crate) index: u32,
}

/// A text is not a place among ended items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a place in a history; use the `next` of the page before")]
pub struct ParseHistoryCursorError {
    text: String,
}

impl fmt::Display for HistoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupKey { minute, stamp, first } = &self.group;
        write!(f, "{minute}.{stamp}.{first}.{}", self.index)
    }
}

impl FromStr for HistoryCursor {
    type Err = ParseHistoryCursorError;

    fn from_str(text: &str) -> Result<HistoryCursor, ParseHistoryCursorError> {
        let parsed = || {
            let mut parts = text.split('.');
            let minute = parts.next()?.parse().ok()?;
            let (stamp, first) = (parts.next()?.parse::<Stamp>().ok()?, parts.next()?.parse().ok()?);
            let index = parts.next()?.parse().ok()?;
            let group = GroupKey { minute, stamp, first };
            parts.next().is_none().then_some(HistoryCursor { group, index })
        };
        parsed().ok_or_else(|| ParseHistoryCursorError { text: text.to_owned() })
    }
}

/// When a [`Recorder`] records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Never.
    Off,
    /// Always. For a program that knows the queue's setting.
    On,
    /// If the queue has a setting that says so, which each transaction that ends items reads.
    AsStored,
}

/// Records the ends of items, for the handle of a queue ([`Queue::with_recorder`]) and all that is made from it.
///
/// It can be turned on and off while sessions and leases use it.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    mode: AtomicU8,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    worker: Option<String>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("mode", &self.mode)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder with this clock, whose records name this process, with at most [`MAX_WORKER`] bytes.
    pub fn new(
        recording: Recording,
        worker: Option<String>,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Recorder {
        let (mode, worker) = (AtomicU8::new(recording as u8), worker.map(cut));
        Recorder(Arc::new(Inner { mode, clock: Box::new(clock), worker }))
    }

    /// Sets when it records, from the next transaction on.
    pub fn set(&self, recording: Recording) {
        self.0.mode.store(recording as u8, Ordering::Relaxed);
    }

    pub(crate) fn recording(&self) -> Recording {
        match self.0.mode.load(Ordering::Relaxed) {
            mode if mode == Recording::On as u8 => Recording::On,
            mode if mode == Recording::AsStored as u8 => Recording::AsStored,
            _ => Recording::Off,
        }
    }

    /// Whether anything is recorded, if the queue's setting says so.
    pub(crate) fn may_record(&self) -> bool {
        self.recording() != Recording::Off
    }

    pub(crate) fn now(&self) -> Millis {
        millis((self.0.clock)())
    }

    pub(crate) fn worker(&self) -> Option<&str> {
        self.0.worker.as_deref()
    }
}

/// What the records of a lease's items have of the lease.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// When it was fetched, by the recorder's clock.
    pub(crate) started: Option<Millis>,
    /// The worker of another program that has it.
    pub(crate) worker: Option<String>,
}

impl Holding {
    /// Of a lease that is fetched now; `None` if nothing is recorded. Boxed, so that other leases are not longer for it.
    pub(crate) fn begun(recorder: Option<&Recorder>) -> Option<Box<Holding>> {
        let recorder = recorder.filter(|recorder| recorder.may_record())?;
        Some(Box::new(Holding { started: Some(recorder.now()), worker: None }))
    }
}

/// A worker's name, not longer than records have it.
pub(crate) fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_WORKER));
    name
}

/// Handles of a queue are equal whatever they record.
impl PartialEq for Recorder {
    fn eq(&self, _: &Recorder) -> bool {
        true
    }
}

impl Eq for Recorder {}

impl Queue {
    /// How long ended items are kept; `None`: they are not. One key, a snapshot read.
    pub async fn history_kept(&self, tr: &Transaction) -> Result<Option<Duration>, QueueError> {
        let setting = ended::setting(self.space(), tr, true).await?;
        Ok(setting.map(|setting| Duration::from_millis(setting.retention)).filter(|kept| !kept.is_zero()))
    }

    /// Sets how long ended items are kept: at most [`MAX_HISTORY`], a longer time counts as that. With a time of zero, a [`Sweeper`](crate::Sweeper) removes them all. Returns whether that is
    /// a change. The setting makes no queue.
    pub async fn keep_history(&self, tr: &Transaction, kept: Duration) -> Result<bool, QueueError> {
        ended::keep(self.space(), tr, kept.min(MAX_HISTORY)).await
    }

    /// Ended items that match, the newest first: those before a place, or the last ones; up to `k`, and fewer where about a megabyte of records was
    /// read. A snapshot read: it conflicts with nothing. The order is that of the clocks of the processes that ended the items, to a minute,
    /// and within a minute that of the commits.
    pub async fn history(
        &self,
        tr: &Transaction,
        filter: &HistoryFilter,
        before: Option<&HistoryCursor>,
        k: NonZeroUsize,
    ) -> Result<HistoryPage, QueueError> {
        ended::read::page(self.space(), tr, filter, before, k).await
    }

    /// The result of an ended item, as [`Queue::history`] or [`Queue::ended_item`] has read it. `None` if its handler gave none, if it was too long
    /// to be kept ([`EndedItem::result`]), or if it has been removed since. A snapshot read of one key.
    pub async fn result(&self, tr: &Transaction, item: &EndedItem) -> Result<Option<Bytes>, QueueError> {
        ended::read::result(self.space(), tr, item).await
    }

    /// The last end of the item of this id, if it is kept. Reads a few rows of each hour that is kept, the newest first. Snapshot reads.
    pub async fn ended_item(&self, tr: &Transaction, id: &ItemId) -> Result<Option<EndedItem>, QueueError> {
        ended::read::one(self.space(), tr, id).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_ending_parses_from_its_name() {
        for ending in Ending::ALL {
            assert_eq!(ending.to_string().parse(), Ok(ending));
            assert_eq!(Ending::of(ending.code()), ending);
        }
        let error = "finished".parse::<Ending>().unwrap_err().to_string();
        assert_eq!(error, "outcome \"finished\" is unknown; use done, dead, cancelled, expired or taken");
    }

    proptest! {
        #[test]
        fn places_round_trip(minute: u64, stamp: [u8; 12], id in prop::collection::vec(any::<u8>(), 1..40), index: u32) {
            let group = GroupKey { minute, stamp: Stamp::from(stamp), first: ItemId::new(id.into()) };
            let cursor = HistoryCursor { group, index };
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }

        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = text.parse::<HistoryCursor>();
        }
    }
}
