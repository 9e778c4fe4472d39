//! The slices of a lease: each consumer that a take was for has one.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, Weak, atomic::AtomicUsize},
};

use kvqueue_queue::{Item, ItemOutcome as Settlement, Lease};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::holding::{Asked, Holding, Outbox};
use crate::status::Heartbeat;

/// A consumer's part of a lease.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) items: Vec<Item>,
    /// By which a dispatcher says what becomes of them.
    pub(crate) holding: Holding,
    /// Beats while the lease is held, and goes with its holder.
    pub(crate) holder: Weak<Heartbeat>,
    /// Resolves when all of them are settled, or the lease is held no longer; to an error if its holder panicked.
    pub(crate) settled: oneshot::Receiver<()>,
}

impl Slice {
    /// Nobody handles it: its items go back to their places. What is returned resolves when they have.
    pub(crate) fn give_back(self) -> oneshot::Receiver<()> {
        (0..self.items.len()).for_each(|index| self.holding.settle(index, Settlement::Release));
        self.settled
    }
}

/// The holder's view of the slices of its lease.
#[derive(Debug)]
pub(super) struct Slices {
    parts: Vec<Part>,
    /// Items that are not settled, and that their consumer does not wait for.
    left: BTreeSet<usize>,
}

#[derive(Debug)]
struct Part {
    /// The index in the lease behind its last item.
    end: usize,
    /// Items that are not settled.
    open: usize,
    settled: Option<oneshot::Sender<()>>,
}

/// What all slices of a lease say through.
pub(super) struct Line {
    pub(super) outbox: Arc<Outbox>,
    pub(super) ask: mpsc::UnboundedSender<Asked>,
    pub(super) cancelled: CancellationToken,
    pub(super) holder: Weak<Heartbeat>,
}

/// Cuts a lease into slices: `shares` are in order, and together they are all of its items.
pub(super) fn cut(lease: &Lease, shares: &[Range<usize>], line: &Line) -> (Slices, Vec<Slice>) {
    let cut = shares.iter().map(|share| {
        let (sender, settled) = oneshot::channel();
        let holding = Holding {
            first: share.start,
            unsaid: AtomicUsize::new(share.len()),
            outbox: line.outbox.clone(),
            ask: line.ask.clone(),
            cancelled: line.cancelled.clone(),
        };
        let part = Part { end: share.end, open: share.len(), settled: Some(sender) };
        let items = lease.items()[share.clone()].to_vec();
        (part, Slice { items, holding, holder: line.holder.clone(), settled })
    });
    let (parts, slices) = cut.unzip();
    (Slices { parts, left: BTreeSet::new() }, slices)
}

impl Slices {
    /// An item is settled.
    pub(super) fn settled(&mut self, index: usize) {
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
            part.tell();
        }
    }

    /// The lease is held no longer.
    pub(super) fn ended(&mut self) {
        self.parts.iter_mut().for_each(Part::tell);
    }
}

impl Part {
    fn tell(&mut self) {
        if let Some(settled) = self.settled.take() {
            // A consumer that is gone does not wait.
            let _ = settled.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slice_hears_when_the_last_of_its_items_is_settled() {
        let (senders, mut slices): (Vec<_>, Vec<_>) = (0..2).map(|_| oneshot::channel()).unzip();
        let ends = [(2, 2), (3, 1)].into_iter().zip(senders);
        let parts = ends.map(|((end, open), settled)| Part { end, open, settled: Some(settled) });
        let mut parts = Slices { parts: parts.collect(), left: BTreeSet::new() };
        parts.settled(1);
        parts.settled(2);
        assert!(slices[0].try_recv().is_err());
        assert!(slices[1].try_recv().is_ok());
        parts.settled(0);
        assert!(slices[0].try_recv().is_ok());
    }

    #[test]
    fn an_item_that_its_consumer_does_not_wait_for_counts_once() {
        let (settled, mut slice) = oneshot::channel();
        let parts = vec![Part { end: 3, open: 3, settled: Some(settled) }];
        let mut parts = Slices { parts, left: BTreeSet::new() };
        parts.leave(0..1);
        parts.settled(0);
        parts.settled(1);
        assert!(slice.try_recv().is_err());
        parts.leave(2..3);
        assert!(slice.try_recv().is_ok());
    }

    #[test]
    fn with_the_lease_all_of_them_end() {
        let (settled, mut slice) = oneshot::channel();
        let parts = vec![Part { end: 9, open: 9, settled: Some(settled) }];
        let mut parts = Slices { parts, left: BTreeSet::new() };
        parts.ended();
        assert!(slice.try_recv().is_ok());
    }
}
