//! Records as other programs, or other versions, write and clear them.

use foundationdb::options::MutationType;
use kvqueue_queue::{ItemId, Queue, Stamp};

use super::TestDb;

/// The key of a record of a queue: `kind` as the tuple's second element, and what follows it.
pub(crate) fn record(queue: &Queue, kind: &str, rest: &[u8]) -> Vec<u8> {
    let begin = queue.range().0;
    [&begin[..begin.len() - 1], b"\x01", kind.as_bytes(), b"\0", rest].concat()
}

/// One of the numbers that make ids for items which were never pushed: older than any that was.
pub(crate) fn id(number: u8) -> ItemId {
    let mut stamp = [0; Stamp::LEN];
    stamp[7..].fill(number);
    ItemId::from(Stamp::from(stamp))
}

impl TestDb {
    /// Stores an item that has a unique key and a payload in two parts, `payload` being the second and 100,000 `x` the first.
    pub(crate) async fn store(&self, queue: &Queue, id: &ItemId, payload: &str, unique: &str) {
        let len = 100_000 + payload.len() as u64;
        let field = |tag: u8, content: &[u8]| {
            [&[tag], (content.len() as u32).to_le_bytes().as_slice(), content].concat()
        };
        let meta = [field(8, &len.to_le_bytes()), field(9, unique.as_bytes())].concat();
        let chunk = [id.as_bytes(), b"\x15\x01"].concat();
        let unique = [b"\x01", unique.as_bytes(), b"\0"].concat();
        self.run(async |tr| {
            tr.set(&record(queue, "val", id.as_bytes()), &[b'x'; 100_000]);
            tr.set(&record(queue, "meta", id.as_bytes()), &meta);
            tr.set(&record(queue, "chunk", &chunk), payload.as_bytes());
            tr.set(&record(queue, "unique", &unique), id.as_bytes());
            tr.atomic_op(&record(queue, "npush", b""), &1_u64.to_le_bytes(), MutationType::Add);
            Ok(())
        })
        .await;
    }

    /// Pops an item as a program does that knows of values and counters only.
    pub(crate) async fn foreign_pop(&self, queue: &Queue, id: &ItemId) {
        self.run(async |tr| {
            tr.clear(&record(queue, "val", id.as_bytes()));
            tr.atomic_op(&record(queue, "npop", b""), &1_u64.to_le_bytes(), MutationType::Add);
            Ok(())
        })
        .await;
    }
}
