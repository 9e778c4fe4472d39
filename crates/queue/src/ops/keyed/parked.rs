//! A key that waits for a slot, or for a process that has no suspects.

use foundationdb::Transaction;

use super::activate;
use crate::keys::keyed::{Cause, KeyedSpace, ParkedRow};

/// A parked key.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) cause: Cause,
    pub(crate) row: Vec<u8>,
    pub(crate) position: u64,
    pub(crate) key: Vec<u8>,
}

impl Parked {
    /// Reads a row of parked keys.
    pub(crate) fn decode(keyed: &KeyedSpace, row: &[u8]) -> Option<(Vec<u8>, Parked)> {
        let ParkedRow { cause, scope, position, key } = keyed.decode_parked(row)?;
        Some((scope, Parked { cause, row: row.to_vec(), position, key }))
    }

    /// Makes the key active.
    pub(crate) fn unpark(&self, keyed: &KeyedSpace, tr: &Transaction) {
        tr.clear(&self.row);
        if self.cause.is_suspect() {
            tr.set(&keyed.listed_key(&self.key), &[]);
        }
        activate(keyed, tr, self.position, &self.key);
    }
}
