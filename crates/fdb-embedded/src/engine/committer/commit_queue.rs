//! The queue of commits that wait for the next batch.

use std::collections::VecDeque;

use super::CommitRequest;
use crate::limits::{MAX_BATCH_TRANSACTIONS, MAX_QUEUED_COMMIT_BYTES};

/// The queue of commits that wait for the next batch.
#[derive(Default)]
pub(in crate::engine) struct CommitQueue {
    pub(in crate::engine) requests: VecDeque<CommitRequest>,
    /// Bytes of the requests.
    pub(in crate::engine) bytes: usize,
    /// An empty batch should raise the version ceiling.
    pub(in crate::engine) raise_ceiling: bool,
    /// The committer should end when the queue is empty.
    pub(in crate::engine) closing: bool,
    /// The committer has ended.
    pub(in crate::engine) closed: bool,
    /// Tests that ask what the engine holds.
    #[cfg(feature = "testing")]
    pub(in crate::engine) examiners: Vec<baton::mpsc::SyncSender<crate::engine::holdings::Holdings>>,
    /// Called by the committer last, when the directory is unlocked.
    pub(in crate::engine) on_closed: Vec<Box<dyn FnOnce() + Send>>,
}

impl CommitQueue {
    /// Adds a request, or returns it if the queue is full.
    pub(in crate::engine) fn add(&mut self, request: CommitRequest) -> Result<(), CommitRequest> {
        let bytes = self.bytes + request.len();
        if bytes > MAX_QUEUED_COMMIT_BYTES && !self.requests.is_empty() {
            return Err(request);
        }
        self.bytes = bytes;
        self.requests.push_back(request);
        Ok(())
    }

    /// Takes the requests of the next batch. With `asynchronous_first`, asynchronous commits form a
    /// batch of their own before the others, so that they do not wait for a flush. Also returns an
    /// upper bound of their bytes.
    pub(super) fn take(&mut self, asynchronous_first: bool, max_bytes: usize) -> (Vec<CommitRequest>, usize) {
        let mut bytes = 0;
        let mut count = 0;
        for request in self.requests.iter().take(MAX_BATCH_TRANSACTIONS) {
            if count > 0 && bytes >= max_bytes {
                break;
            }
            bytes += request.len();
            count += 1;
        }
        let next = self.requests.drain(..count);
        if !asynchronous_first {
            self.bytes = self.bytes.saturating_sub(bytes);
            return (next.collect(), bytes);
        }
        let (asynchronous, others): (Vec<_>, Vec<_>) = next.partition(CommitRequest::is_asynchronous);
        if asynchronous.is_empty() {
            self.bytes = self.bytes.saturating_sub(bytes);
            return (others, bytes);
        }
        self.bytes = self.bytes.saturating_sub(asynchronous.iter().map(CommitRequest::len).sum());
        others.into_iter().rev().for_each(|request| self.requests.push_front(request));
        (asynchronous, bytes)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.raise_ceiling && !self.closing
    }
}

#[cfg(feature = "testing")]
impl CommitQueue {
    /// Takes the tests that ask what the engine holds.
    pub(in crate::engine::committer) fn take_examiners(
        &mut self,
    ) -> Vec<baton::mpsc::SyncSender<crate::engine::holdings::Holdings>> {
        std::mem::take(&mut self.examiners)
    }
}
