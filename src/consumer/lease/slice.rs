//! The slices of a lease: each consumer that a fetch was for has one.

use std::{collections::BTreeSet, ops::Range, sync::Weak};

use kvqueue_queue::{Item, ItemOutcome};
use tokio::sync::oneshot;

use super::handle::LeaseHandle;
use crate::status::Heartbeat;

/// A consumer's part of a lease.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) items: Vec<Item>,
    pub(crate) handle: LeaseHandle,
    /// The keeper's sign of life, dropped when the keeper ends.
    pub(crate) heartbeat: Weak<Heartbeat>,
    /// Resolves when all items are acknowledged or the keeper has ended; to an error if the keeper
    /// panicked.
    pub(crate) acknowledged: oneshot::Receiver<()>,
}

impl Slice {
    /// Returns the items to their places in the queue. The receiver resolves when they are there.
    pub(crate) fn release(self) -> oneshot::Receiver<()> {
        (0..self.items.len()).for_each(|index| self.handle.acknowledge(index, ItemOutcome::Release));
        self.acknowledged
    }
}

/// The keeper's record of the slices of its lease.
#[derive(Debug)]
pub(super) struct Slices {
    /// In the order of the lease's items.
    parts: Vec<Part>,
    /// Items without an acknowledgement for which their consumer does not wait.
    left: BTreeSet<usize>,
}

#[derive(Debug)]
struct Part {
    /// The index in the lease after the slice's last item.
    end: usize,
    /// Items without an acknowledgement.
    open: usize,
    acknowledged: Option<oneshot::Sender<()>>,
}

impl Slices {
    /// One slice for each range. The ranges are in order and cover all items of the lease. The
    /// receivers belong to [`Slice::acknowledged`].
    pub(super) fn new(ranges: &[Range<usize>]) -> (Self, Vec<oneshot::Receiver<()>>) {
        let parts = ranges.iter().map(|range| {
            let (sender, acknowledged) = oneshot::channel();
            (Part { end: range.end, open: range.len(), acknowledged: Some(sender) }, acknowledged)
        });
        let (parts, receivers) = parts.unzip();
        (Self { parts, left: BTreeSet::new() }, receivers)
    }

    /// An item is acknowledged.
    pub(super) fn acknowledged(&mut self, index: usize) {
        if !self.left.remove(&index) {
            self.close(index);
        }
    }

    /// The consumer of these items does not wait for them any more.
    pub(super) fn leave(&mut self, items: Range<usize>) {
        for index in items {
            if self.left.insert(index) {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        let at = self.parts.partition_point(|part| part.end <= index);
        let Some(part) = self.parts.get_mut(at) else { return };
        part.open = part.open.saturating_sub(1);
        if part.open == 0 {
            part.notify();
        }
    }

    /// The keeper ends.
    pub(super) fn close_all(&mut self) {
        self.parts.iter_mut().for_each(Part::notify);
    }
}

impl Part {
    fn notify(&mut self) {
        if let Some(acknowledged) = self.acknowledged.take() {
            // A consumer that has ended does not wait.
            let _ = acknowledged.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slice_is_notified_of_the_acknowledgement_of_its_last_item() {
        let (mut slices, mut receivers) = Slices::new(&[0..2, 2..3]);
        slices.acknowledged(1);
        slices.acknowledged(2);
        assert!(receivers[0].try_recv().is_err());
        assert!(receivers[1].try_recv().is_ok());
        slices.acknowledged(0);
        assert!(receivers[0].try_recv().is_ok());
    }

    #[test]
    fn an_item_that_was_left_counts_once() {
        let (mut slices, mut receivers) = Slices::new(std::slice::from_ref(&(0..3)));
        slices.leave(0..1);
        slices.acknowledged(0);
        slices.acknowledged(1);
        assert!(receivers[0].try_recv().is_err());
        slices.leave(2..3);
        assert!(receivers[0].try_recv().is_ok());
    }

    #[test]
    fn all_slices_are_notified_when_the_keeper_ends() {
        let (mut slices, mut receivers) = Slices::new(std::slice::from_ref(&(0..9)));
        slices.close_all();
        assert!(receivers[0].try_recv().is_ok());
    }
}
