//! The keys of `docs/KEYSPACE.md` that the bench reads and writes by itself: for the Erlang program's algorithm, for counting what
//! is left in a queue, and for seeing items finished.

use foundationdb::tuple::{Bytes, Subspace};
use kvqueue_queue::Queue;

/// Keys of one FIFO queue.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Begin and end of the ready items: `(q, "val", ...)`.
    pub(super) items: (Vec<u8>, Vec<u8>),
    pub(super) npush: Vec<u8>,
    pub(super) npop: Vec<u8>,
    pub(super) ndone: Vec<u8>,
}

impl Keys {
    pub(super) fn new(prefix: &str, queue: &Queue) -> Self {
        let space = Subspace::from_bytes(prefix.as_bytes()).subspace(&Bytes::from(queue.name()));
        let key = |name: &'static [u8]| space.pack(&Bytes::from(name));
        Self {
            items: space.subspace(&Bytes::from(&b"val"[..])).range(),
            npush: key(b"npush"),
            npop: key(b"npop"),
            ndone: key(b"ndone"),
        }
    }
}

/// What a counter holds; absent means 0.
pub(super) fn counter(value: Option<&[u8]>) -> u64 {
    value.unwrap_or_default().iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_equal_those_of_the_key_space() {
        let queue = Queue::new(b"p/", b"a\x00").unwrap();
        let keys = Keys::new("p/", &queue);
        assert_eq!(keys.npush, b"p/\x01a\x00\xff\x00\x01npush\x00");
        assert_eq!(keys.items.0, b"p/\x01a\x00\xff\x00\x01val\x00\x00");
        assert_eq!(counter(Some(&[1, 1, 0, 0, 0, 0, 0, 0])), 257);
        assert_eq!(counter(None), 0);
    }
}
