//! Lines that go in together. Where they begin and end depends on the lines alone, so a repeated import makes the same groups.

use std::io::BufRead;

use kvqueue_queue::{Kind, Queue, StoredItem};
use twox_hash::xxhash3_128::Hasher;
use uuid::Uuid;

use crate::cli::ndjson::{Damage, Reader, Record};

/// The most items of a group.
const MAX_ITEMS: usize = 200;
/// The most bytes of a group's lines, but for a single item. What they store is less, so it fits into a transaction.
const MAX_BYTES: usize = 1 << 20;

/// Some lines.
pub(super) struct Group {
    pub(super) items: Vec<StoredItem>,
    /// Of their lines, with newlines.
    pub(super) bytes: usize,
    /// The idempotency key: of the header, the group's number, and its lines.
    pub(super) idempotency_key: Vec<u8>,
}

/// The groups of an export.
pub(super) struct Groups<'a, R> {
    reader: Reader<R>,
    queue: &'a Queue,
    max_payload: usize,
    partial: bool,
    /// The part of the groups' names that all groups share.
    salt: Vec<u8>,
    number: u64,
    /// The item that did not fit into the last group.
    next: Option<Record>,
    /// The error that ended it early.
    damage: Option<Damage>,
}

/// Makes sure that a queue can hold an item. The error is the reason why it cannot.
pub(super) fn fit(record: Record, queue: &Queue, max_payload: usize) -> Result<Record, String> {
    let mut record = record;
    if !matches!(queue.kind(), Kind::Priority(..)) {
        record.item.priority = 0;
    }
    if queue.kind() != Kind::Keyed {
        record.item.key = None;
    }
    record.item.check(queue.kind(), max_payload).map_err(|error| error.to_string())?;
    Ok(record)
}

impl<'a, R: BufRead> Groups<'a, R> {
    pub(super) fn new(
        reader: Reader<R>,
        queue: &'a Queue,
        max_payload: usize,
        partial: bool,
        again: bool,
    ) -> Self {
        let salt = if again { Uuid::now_v7().into_bytes().to_vec() } else { Vec::new() };
        Self { reader, queue, max_payload, partial, salt, number: 0, next: None, damage: None }
    }

    /// The next group. Of lines before damage it is none, unless they are wanted: whole, the group may have more.
    pub(super) fn next(&mut self) -> Result<Option<Group>, Damage> {
        if self.damage.is_some() {
            return Ok(None);
        }
        let (mut items, mut bytes) = (Vec::new(), 0);
        let mut hash = Hasher::new();
        hash.write(&self.reader.header_text);
        hash.write(&self.salt);
        hash.write(&self.number.to_le_bytes());
        while items.len() < MAX_ITEMS {
            let record = match self.record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(damage) if self.partial => {
                    self.damage = Some(damage);
                    break;
                }
                Err(damage) => return Err(damage),
            };
            let size = record.text.len() + 1;
            if !items.is_empty() && bytes + size > MAX_BYTES {
                self.next = Some(record);
                break;
            }
            hash.write(&record.text);
            hash.write(b"\n");
            bytes += size;
            items.push(record.item);
        }
        if items.is_empty() {
            return Ok(None);
        }
        let idempotency_key = format!("import-{}-{:032x}", self.number, hash.finish_128()).into_bytes();
        self.number += 1;
        Ok(Some(Group { items, bytes, idempotency_key }))
    }

    /// The error that ended it early, if the groups before it are to be imported.
    pub(super) fn end(self) -> Option<Damage> {
        self.damage
    }

    fn record(&mut self) -> Result<Option<Record>, Damage> {
        if let Some(record) = self.next.take() {
            return Ok(Some(record));
        }
        let Some(record) = self.reader.next()? else { return Ok(None) };
        let fitting = fit(record, self.queue, self.max_payload);
        fitting.map(Some).map_err(|problem| self.reader.wrong(problem))
    }
}
