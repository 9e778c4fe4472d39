//! What a ready item waits for.

use std::time::Duration;

use crate::model::holds::HeldBy;

/// Why a ready item has not been fetched yet. It is true of one moment; reading it conflicts with nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// What the next fetches do with it, or with those before it.
    pub on: WaitsOn,
    /// How many items come before it: of its key in a keyed queue, of its partition in a divided one, of the queue otherwise.
    pub items_before: AtLeast,
    /// How many keys come before its key among the keys that wait for the same. `None`: the queue has no keys, or the key
    /// has no place among them yet.
    pub keys_before: Option<AtLeast>,
}

/// What keeps fetches from an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsOn {
    /// Nothing: a fetch takes it when its turn comes.
    Turn,
    /// A slot: as many items of a scope run as its limit allows.
    Slot {
        /// The key or tenant; empty for the whole queue.
        scope: Vec<u8>,
        /// How many items of it run.
        running: u64,
        /// How many may.
        most: u32,
    },
    /// A process that has no suspect. The first item of its key is one: its lease has expired before.
    Suspects,
    /// Another item of its ordered key, which is scheduled again or a dead letter.
    Hold(HeldBy),
    /// The rate of a scope, or a throttle.
    Start {
        /// The key or tenant; empty for the whole queue.
        scope: Vec<u8>,
        /// After which time further items of it start.
        wait: Duration,
        /// Whether a handler has throttled it.
        throttled: bool,
    },
}

/// A number that was counted up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtLeast {
    /// How many were counted.
    pub counted: usize,
    /// Whether these are all.
    pub is_all: bool,
}
