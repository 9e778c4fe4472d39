//! Moving a queue to another database: its rows as they are stored, and a record of the progress.
//!
//! Each function is a part of a transaction of the caller's, and may run several times for one commit. `docs/MIGRATE.md` says how
//! they make a migration.

use foundationdb::Transaction;

pub use crate::keys::migration::{Marks, Phase, Record, RunId};
pub use crate::model::tally::Tally;
pub use crate::ops::rows::{PAGE_BYTES, PAGE_ROWS, Page, Row};

use crate::client::queue::Queue;
use crate::model::error::QueueError;
use crate::ops::{migrate, rows};
use crate::run::version::now;

impl Tally {
    /// Counts a row of the queue.
    pub fn add(&mut self, queue: &Queue, key: &[u8], value: &[u8]) {
        migrate::tally(queue.space(), key, value, self);
    }
}

/// The record at this end, if there is one. Conflicts with a transaction that changes it.
///
/// # Errors
/// [`QueueError::Unreadable`] if a later version wrote it.
pub async fn record(queue: &Queue, tr: &Transaction) -> Result<Option<Record>, QueueError> {
    migrate::record(queue.space(), tr).await
}

/// Writes the record.
pub fn put_record(queue: &Queue, tr: &Transaction, record: &Record) {
    migrate::put_record(queue.space(), tr, record);
}

/// The rows behind the key `behind` (empty: from the first), as many as are a page. A snapshot read.
///
/// Among them are neither the counters, which [`add_counters`] brings along at the end, nor what is of this database alone.
pub async fn page(queue: &Queue, tr: &Transaction, behind: &[u8]) -> Result<Page, QueueError> {
    rows::page(queue.space(), tr, behind).await
}

/// The counters. With `snapshot` this conflicts with nobody who counts.
pub async fn counters(queue: &Queue, tr: &Transaction, snapshot: bool) -> Result<[u64; 6], QueueError> {
    migrate::counters(queue.space(), tr, snapshot).await
}

/// Adds to the counters.
pub fn add_counters(queue: &Queue, tr: &Transaction, counters: &[u64; 6]) {
    migrate::add_counters(queue.space(), tr, counters);
}

/// Shows `visit` keys and values that tell, with the counters, whether the queue has changed. With `snapshot` this conflicts with nobody.
pub async fn visit_marks(
    queue: &Queue,
    tr: &Transaction,
    snapshot: bool,
    visit: &mut (dyn FnMut(&[u8], &[u8]) + Send),
) -> Result<(), QueueError> {
    migrate::visit_marks(queue.space(), tr, snapshot, visit).await
}

/// How many leases have not run out. A snapshot read.
pub async fn live_leases(queue: &Queue, tr: &Transaction) -> Result<usize, QueueError> {
    migrate::live_leases(queue.space(), tr).await
}

/// The version that a transaction reads at.
pub async fn version(tr: &Transaction) -> Result<u64, QueueError> {
    now(tr).await
}

/// Takes all leases away, with what is in them: their holders can acknowledge nothing any more. Pushes to a frozen queue are refused from here on,
/// and changes that are under way fail.
///
/// `frozen_by` is a [`version`] that was read after the queue was frozen. For a tenth of a second after the freeze a [`Session`](crate::Session) may
/// still push, since it knows the queue as not frozen. Returns `false` within that time, and writes nothing then.
pub async fn fence(queue: &Queue, tr: &Transaction, frozen_by: u64) -> Result<bool, QueueError> {
    migrate::fence(queue.space(), tr, frozen_by).await
}

/// The pause as it is stored, for [`put_pause`] elsewhere. Conflicts with a transaction that changes it.
pub async fn stored_pause(queue: &Queue, tr: &Transaction) -> Result<Option<Vec<u8>>, QueueError> {
    Ok(tr.get(&queue.space().pause, false).await?.map(|value| value.to_vec()))
}

/// Stores a pause as it was stored elsewhere.
pub fn put_pause(queue: &Queue, tr: &Transaction, stored: &[u8]) {
    tr.set(&queue.space().pause, stored);
}
