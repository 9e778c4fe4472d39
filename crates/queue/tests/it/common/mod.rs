//! What every test needs: a database, short ways to use it, and reproducible randomness.

mod database;
mod raw;
mod rng;
mod sweeping;

pub(crate) use database::{TestDb, on_database};
pub(crate) use raw::{id, record};
pub(crate) use rng::{Rng, seeds};
pub(crate) use sweeping::{LONG, SHORT, later, rules, sweeper};

use std::num::NonZeroUsize;

use kvqueue_queue::{Item, SessionId};

/// A number of items that is known not to be 0.
pub(crate) fn k(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

/// A session id that nothing else has.
pub(crate) fn session_id() -> SessionId {
    SessionId(uuid::Uuid::now_v7().into_bytes())
}

/// The payloads of items, as text.
pub(crate) fn payloads(items: &[Item]) -> Vec<String> {
    items.iter().map(|item| String::from_utf8(item.payload.to_vec()).unwrap()).collect()
}
