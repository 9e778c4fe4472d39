//! What every test needs: a database, short ways to use it, and reproducible randomness.

mod database;
pub(crate) mod gate;
pub(crate) mod keyed;
mod kinds;
pub(crate) mod ordered;
mod raw;
mod rng;
mod run_seed;
pub(crate) mod schedules;
pub(crate) mod states;
mod sweeping;

pub(crate) use database::{TestDb, on_database, on_shared_database};
pub(crate) use kinds::{KINDS, kinds_of_records};
pub(crate) use raw::{id, record};
pub(crate) use rng::{Rng, seeds};
pub(crate) use run_seed::{OF_ONE_STEP, run_seed};
pub(crate) use sweeping::{SHORT, alone, at_most, fetch_options, later, rules, sweeper, sweeper_with_clock};

use std::num::NonZeroUsize;

use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::{Item, Queue, SessionId};

/// A time of a test, in milliseconds since 1970: tests and models reckon with numbers. `from_millis` makes a point in time of it.
pub(crate) type Millis = u64;

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

/// What follows (q, `second`) in the keys of rows that begin so, and their values.
pub(crate) fn records(rows: &[(Vec<u8>, Vec<u8>)], queue: &Queue, second: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let begin = pack(&(Bytes::from(queue.name()), Bytes::from(second.as_bytes())));
    let record = |(key, value): &(Vec<u8>, Vec<u8>)| {
        Some((key.strip_prefix(begin.as_slice())?.to_vec(), value.clone()))
    };
    rows.iter().filter_map(record).collect()
}
