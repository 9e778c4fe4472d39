//! A watch of a transaction that has not committed.

use std::sync::Arc;

use bytes::Bytes;

use crate::future::Future;

/// A watch of a transaction that has not committed.
#[derive(Debug)]
pub(super) struct PendingWatch {
    pub(super) key: Vec<u8>,
    pub(super) baseline: Baseline,
    pub(super) future: Arc<Future>,
}

/// The value that the transaction saw, as far as it is known.
#[derive(Debug)]
pub(super) enum Baseline {
    /// The value has not arrived. The last write of the transaction itself to the key meanwhile, if
    /// any.
    Awaited {
        written: Option<Option<Vec<u8>>>,
    },
    Seen(Option<Bytes>),
}

impl PendingWatch {
    /// Records that the transaction writes `value`. True if that certainly changes the value. If
    /// the value has not arrived, the comparison is made later.
    pub(super) fn is_changed_by(&mut self, value: Option<&[u8]>) -> bool {
        match &mut self.baseline {
            Baseline::Seen(seen) => seen.as_deref() != value,
            Baseline::Awaited { written: Some(before) } => before.as_deref() != value,
            Baseline::Awaited { written } => {
                *written = Some(value.map(<[u8]>::to_vec));
                false
            }
        }
    }

    /// Sets the value that the transaction saw. True if it has written another one since.
    pub(super) fn has_changed_from(&mut self, seen: Option<Bytes>) -> bool {
        let written = match &self.baseline {
            Baseline::Awaited { written } => written.as_ref(),
            Baseline::Seen(_) => None,
        };
        let has_changed = written.is_some_and(|written| written.as_deref() != seen.as_deref());
        self.baseline = Baseline::Seen(seen);
        has_changed
    }
}
