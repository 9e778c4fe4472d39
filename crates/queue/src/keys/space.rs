//! The key space of one queue: its records' keys, packed once.

use crate::error::NameError;
use crate::keys::append_bytes;
use crate::keys::counters::{NPOP, NPUSH};
use crate::keys::items::VAL;
use crate::keys::tokens::TOKEN;
use crate::{MAX_NAME, MAX_PREFIX};

/// The packed keys of one queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// The queue's name, as given.
    pub(crate) name: Vec<u8>,
    /// Prefix and (q): what every key of the queue begins with.
    pub(crate) queue: Vec<u8>,
    /// (q, "npush").
    pub(crate) npush: Vec<u8>,
    /// (q, "npop").
    pub(crate) npop: Vec<u8>,
    /// (q, "val"): what every item's key begins with.
    pub(crate) items: Vec<u8>,
    /// (q, "token"): what every token slot's key begins with.
    pub(crate) tokens: Vec<u8>,
}

impl Space {
    /// Packs the keys of the queue `name` behind the raw bytes `prefix`.
    pub(crate) fn new(prefix: &[u8], name: &[u8]) -> Result<Space, NameError> {
        check_prefix(prefix)?;
        match name.len() {
            0 => return Err(NameError::Empty),
            len if len > MAX_NAME => return Err(NameError::TooLong { len }),
            _ => {}
        }
        let mut queue = prefix.to_vec();
        append_bytes(&mut queue, name);
        let record = |kind: &[u8]| {
            let mut key = queue.clone();
            append_bytes(&mut key, kind);
            key
        };
        Ok(Space {
            name: name.to_vec(),
            npush: record(NPUSH),
            npop: record(NPOP),
            items: record(VAL),
            tokens: record(TOKEN),
            queue,
        })
    }

    /// All keys of the queue, as the tuple layer's range of (q).
    pub(crate) fn queue_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.queue)
    }

    /// All items.
    pub(crate) fn item_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.items)
    }

    /// All token slots.
    pub(crate) fn token_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.tokens)
    }
}

/// Whether queues can lie behind this prefix.
fn check_prefix(prefix: &[u8]) -> Result<(), NameError> {
    if prefix.len() > MAX_PREFIX {
        return Err(NameError::PrefixTooLong { len: prefix.len() });
    }
    if prefix.first() == Some(&0xff) {
        return Err(NameError::PrefixReserved);
    }
    Ok(())
}

/// The tuple layer's range of a packed tuple: every key with further elements behind it.
fn range(tuple: &[u8]) -> (Vec<u8>, Vec<u8>) {
    ([tuple, &[0x00]].concat(), [tuple, &[0xff]].concat())
}

#[cfg(test)]
mod tests;
