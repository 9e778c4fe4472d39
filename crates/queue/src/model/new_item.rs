//! Items to push.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;

use crate::model::error::PushError;
use crate::model::item_batch::BatchId;
use crate::model::kind::Kind;
use crate::model::meta::Meta;
use crate::model::sizes::{
    MAX_ATTRIBUTES, MAX_ITEM_KEY, MAX_KEY, MAX_PAYLOAD, MAX_TEXT, MAX_VALUE, PAYLOAD_CEILING,
};
use crate::model::time::millis;

/// The bytes that an attribute counts in addition to its name and value.
const ATTRIBUTE_OVERHEAD: usize = 8;

/// The bytes that a record costs in a transaction in addition to its value: its key in the write and in the conflict range, and what is
/// around both. An upper bound for names and prefixes of ordinary length, in bytes.
const RECORD_OVERHEAD: usize = 256;

/// An item to be pushed: its payload, and what may go with it.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use kvqueue_queue::NewItem;
///
/// let reminder = NewItem::new("pay")
///     .with_due(SystemTime::now() + Duration::from_secs(3_600))
///     .with_unique("order 17")
///     .with_attribute("customer", "ann");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewItem {
    /// The payload for the handler: any bytes.
    pub payload: Bytes,
    /// Names and values of the producer's own; [`MAX_ATTRIBUTES`] bytes together.
    pub attributes: BTreeMap<String, String>,
    /// The payload's media type; up to [`MAX_TEXT`] bytes.
    pub content_type: Option<String>,
    /// The W3C `traceparent` of what the item is pushed for; up to [`MAX_TEXT`] bytes.
    pub trace_parent: Option<String>,
    /// When it was pushed, by the producer's clock. Stored to the millisecond.
    pub enqueued_at: Option<SystemTime>,
    /// The unique key, of 1 to [`MAX_KEY`] bytes. Of all items that are not ended at most one has it: if
    /// there is one, the push does nothing. The key is free again when the item is finished or a dead
    /// letter.
    pub unique: Option<Vec<u8>>,
    /// Until when the unique key is taken, whatever becomes of the item meanwhile; but a dead letter frees it at once. A
    /// [`Sweeper`](crate::Sweeper) frees it then, by its clock, also if the item has not ended. To the millisecond. `None`: until the item ends.
    pub unique_until: Option<SystemTime>,
    /// What a push does if its unique key is taken.
    pub if_taken: IfTaken,
    /// When a [`Sweeper`](crate::Sweeper) makes the item ready, by its clock and to the millisecond;
    /// `None`: the item is ready at once. If no sweeper runs, the item stays scheduled.
    pub due: Option<SystemTime>,
    /// When the item expires, to the millisecond, and in a later millisecond than [`due`](NewItem::due): if no attempt has begun by then, none begins any more.
    /// A [`Sweeper`](crate::Sweeper) ends the item then, by its clock, within the length of a lease; and a program that calls handlers asks
    /// [`Meta::has_expired`] before the first attempt. `None`: it never expires.
    pub expires: Option<SystemTime>,
    /// Its priority in a priority queue; 0 in any other.
    pub priority: i64,
    /// Its key in a keyed queue, of up to [`MAX_ITEM_KEY`] bytes; `None` in any other. An item of a keyed
    /// queue without a key has the empty one.
    pub key: Option<Vec<u8>>,
    /// The [batch](crate::model::item_batch) that it becomes a member of, which has to be open. A push that does nothing, because the queue
    /// has an item of the unique key, adds no member.
    pub batch: Option<BatchId>,
}

impl NewItem {
    /// An item of this payload and nothing else.
    pub fn new(payload: impl Into<Bytes>) -> NewItem {
        NewItem { payload: payload.into(), ..NewItem::default() }
    }

    /// The same item with one more attribute.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> NewItem {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// The same item with the media type of its payload.
    #[must_use]
    pub fn with_content_type(self, content_type: impl Into<String>) -> NewItem {
        NewItem { content_type: Some(content_type.into()), ..self }
    }

    /// The same item with a W3C `traceparent`.
    #[must_use]
    pub fn with_trace_parent(self, trace_parent: impl Into<String>) -> NewItem {
        NewItem { trace_parent: Some(trace_parent.into()), ..self }
    }

    /// The same item, pushed at this time by the producer's clock.
    #[must_use]
    pub fn with_enqueued_at(self, at: SystemTime) -> NewItem {
        NewItem { enqueued_at: Some(at), ..self }
    }

    /// The same item with a [unique key](NewItem::unique).
    #[must_use]
    pub fn with_unique(self, key: impl Into<Vec<u8>>) -> NewItem {
        NewItem { unique: Some(key.into()), ..self }
    }

    /// The same item, whose unique key is taken until this time; see [`unique_until`](NewItem::unique_until).
    #[must_use]
    pub fn with_unique_until(self, until: SystemTime) -> NewItem {
        NewItem { unique_until: Some(until), ..self }
    }

    /// The same item, which replaces the one that waits under its unique key; see [`IfTaken::Replace`].
    #[must_use]
    pub fn replacing(self) -> NewItem {
        NewItem { if_taken: IfTaken::Replace, ..self }
    }

    /// The same item, scheduled for this time; see [`due`](NewItem::due).
    #[must_use]
    pub fn with_due(self, due: SystemTime) -> NewItem {
        NewItem { due: Some(due), ..self }
    }

    /// The same item, which expires at this time; see [`expires`](NewItem::expires).
    #[must_use]
    pub fn with_expiry(self, expires: SystemTime) -> NewItem {
        NewItem { expires: Some(expires), ..self }
    }

    /// The same item with a priority, for a priority queue.
    #[must_use]
    pub fn with_priority(self, priority: i64) -> NewItem {
        NewItem { priority, ..self }
    }

    /// The same item with a [key](NewItem::key), for a keyed queue.
    #[must_use]
    pub fn with_key(self, key: impl Into<Vec<u8>>) -> NewItem {
        NewItem { key: Some(key.into()), ..self }
    }

    /// The same item as a member of a [batch](NewItem::batch).
    #[must_use]
    pub fn with_batch(self, batch: BatchId) -> NewItem {
        NewItem { batch: Some(batch), ..self }
    }

    /// About how many bytes of a transaction it takes; see [`batches_by`](crate::batches_by).
    pub fn weight(&self) -> usize {
        let texts = self.content_type.iter().chain(&self.trace_parent).map(String::len).sum::<usize>();
        let keys = self.unique.as_ref().map_or(0, |key| 2 * key.len() + RECORD_OVERHEAD)
            + self.key.as_ref().map_or(0, |key| 8 * key.len() + 2 * RECORD_OVERHEAD)
            + self.expires.map_or(0, |_| RECORD_OVERHEAD)
            + self.unique_until.map_or(0, |_| RECORD_OVERHEAD);
        // In its side record, and in keys of the batch.
        let batch = self.batch.as_ref().map_or(0, |batch| 8 * batch.as_bytes().len() + RECORD_OVERHEAD);
        weight(self.payload.len()) + RECORD_OVERHEAD + attributes_len(&self.attributes) + texts + keys + batch
    }

    /// Whether it can be added to a queue of this kind. What was stored by an earlier version may be refused here.
    pub(crate) fn check_new(&self, kind: Kind, max_payload: usize) -> Result<(), PushError> {
        self.check_content_type()?;
        self.check(kind, max_payload)
    }

    /// Refuses what no program can be given: neither an environment variable nor a header of HTTP can have NUL.
    pub(crate) fn check_content_type(&self) -> Result<(), PushError> {
        match self.content_type.as_deref().is_some_and(|text| text.contains('\0')) {
            true => Err(PushError::NulInContentType),
            false => Ok(()),
        }
    }

    /// Whether a queue of this kind can hold it.
    pub(crate) fn check(&self, kind: Kind, max_payload: usize) -> Result<(), PushError> {
        check_payload(self.payload.len(), max_payload)?;
        let len = attributes_len(&self.attributes);
        if len > MAX_ATTRIBUTES {
            return Err(PushError::AttributesTooLarge { len, limit: MAX_ATTRIBUTES });
        }
        check_text("content type", self.content_type.as_deref())?;
        check_text("trace parent", self.trace_parent.as_deref())?;
        check_key("unique key", self.unique.as_deref())?;
        let needs_key = self.unique_until.is_some() || self.if_taken == IfTaken::Replace;
        if needs_key && self.unique.is_none() {
            return Err(PushError::NoUniqueKey);
        }
        if self.unique_until.is_some() && self.if_taken == IfTaken::Replace {
            return Err(PushError::ReplacesForATime);
        }
        if self.batch.is_some() && self.if_taken == IfTaken::Replace {
            return Err(PushError::ReplacesInBatch);
        }
        if let (Some(due), Some(expires)) = (self.due, self.expires)
            && millis(expires) <= millis(due)
        {
            return Err(PushError::ExpiresBeforeDue { due, expires });
        }
        if self.priority != 0 && !matches!(kind, Kind::Priority(..)) {
            return Err(PushError::NoPriorities { priority: self.priority });
        }
        check_item_key(self.key.as_deref(), kind)
    }

    /// Its side record.
    pub(crate) fn meta(&self) -> Meta {
        Meta {
            attributes: self.attributes.clone(),
            content_type: self.content_type.clone(),
            trace_parent: self.trace_parent.clone(),
            enqueued_at: self.enqueued_at,
            expires: self.expires,
            unique: self.unique.clone(),
            unique_until: self.unique_until,
            batches: self.batch.iter().cloned().collect(),
            ..Meta::default()
        }
    }
}

/// What a push does if its unique key is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfTaken {
    /// Nothing: [`PushEffect::Duplicate`](crate::PushEffect::Duplicate).
    #[default]
    Skip,
    /// If the item that has the key is ready, scheduled or retrying, it gets the payload, the attributes, the texts and the expiry of the new one,
    /// and its time, if it has one: [`PushEffect::Replaced`](crate::PushEffect::Replaced). Its id, its place, its priority, its key in a keyed queue,
    /// and its attempts stay. With a delay this is a debounce: the newest payload is handled, once the pushes have stopped for that time.
    ///
    /// If that item is running or has ended, the new one is added, and the key is its own from then on.
    Replace,
}

/// How items are pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushOptions {
    /// The idempotency key of this push, of 1 to [`MAX_KEY`] bytes. A push with a key that the queue
    /// knows does nothing, so a push with an unknown outcome can be repeated, by another process too, as
    /// long as the queue keeps keys ([`SweepRules`](crate::SweepRules)). The items have to be the same,
    /// or the push is refused: [`QueueError::IdempotencyKeyReused`]. Due times, times of the push and
    /// trace parents may differ.
    ///
    /// [`QueueError::IdempotencyKeyReused`]: crate::QueueError::IdempotencyKeyReused
    pub idempotency_key: Option<Vec<u8>>,
    /// The longest payload that is accepted; at most [`PAYLOAD_CEILING`].
    pub max_payload: usize,
}

impl Default for PushOptions {
    fn default() -> PushOptions {
        PushOptions { idempotency_key: None, max_payload: MAX_PAYLOAD }
    }
}

impl PushOptions {
    /// The same with an [idempotency key](PushOptions::idempotency_key).
    #[must_use]
    pub fn with_idempotency_key(self, key: impl Into<Vec<u8>>) -> PushOptions {
        PushOptions { idempotency_key: Some(key.into()), ..self }
    }

    /// The same with another limit of payloads, at most [`PAYLOAD_CEILING`].
    #[must_use]
    pub fn with_max_payload(self, max_payload: usize) -> PushOptions {
        PushOptions { max_payload, ..self }
    }

    /// Checks the options against the limits.
    pub(crate) fn check(&self) -> Result<(), PushError> {
        if self.max_payload > PAYLOAD_CEILING {
            return Err(PushError::LimitTooHigh { limit: self.max_payload, most: PAYLOAD_CEILING });
        }
        check_key("idempotency key", self.idempotency_key.as_deref())
    }
}

/// About how many bytes of a transaction a payload takes.
pub(crate) fn weight(payload_len: usize) -> usize {
    payload_len + payload_len.div_ceil(MAX_VALUE).max(1) * RECORD_OVERHEAD
}

/// Whether a payload can be stored.
pub(crate) fn check_payload(len: usize, limit: usize) -> Result<(), PushError> {
    if len > limit { Err(PushError::PayloadTooLarge { len, limit }) } else { Ok(()) }
}

/// Whether a queue of this kind can have an item of this key.
fn check_item_key(key: Option<&[u8]>, kind: Kind) -> Result<(), PushError> {
    match key {
        None => Ok(()),
        Some(_) if kind != Kind::Keyed => Err(PushError::NoKeys { kind }),
        Some(key) if key.len() > MAX_ITEM_KEY => {
            Err(PushError::ItemKeyTooLong { len: key.len(), limit: MAX_ITEM_KEY })
        }
        Some(_) => Ok(()),
    }
}

fn check_text(what: &'static str, text: Option<&str>) -> Result<(), PushError> {
    match text.map_or(0, str::len) {
        len if len > MAX_TEXT => Err(PushError::TextTooLong { what, len, limit: MAX_TEXT }),
        _ => Ok(()),
    }
}

fn check_key(what: &'static str, key: Option<&[u8]>) -> Result<(), PushError> {
    match key.map(<[u8]>::len) {
        Some(len) if !(1..=MAX_KEY).contains(&len) => Err(PushError::KeyLength { what, len, limit: MAX_KEY }),
        _ => Ok(()),
    }
}

fn attributes_len(attributes: &BTreeMap<String, String>) -> usize {
    attributes.iter().map(|(name, value)| name.len() + value.len() + ATTRIBUTE_OVERHEAD).sum()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::keys::meta::encode;
    use crate::model::kind::{End, Packing};
    use crate::model::meta::Failure;
    use crate::model::time::from_millis;
    use crate::{MAX_FAILURES, MAX_REASON};

    fn refused(item: &NewItem) -> String {
        item.check(Kind::Fifo, MAX_PAYLOAD).expect_err("it is over a limit").to_string()
    }

    #[test]
    fn an_item_over_a_limit_is_refused_naming_the_field() {
        let text = |len: usize| Some("x".repeat(len));
        let longest = NewItem {
            payload: vec![0; MAX_PAYLOAD].into(),
            content_type: text(MAX_TEXT),
            trace_parent: text(MAX_TEXT),
            unique: Some(vec![0; MAX_KEY]),
            ..NewItem::new("").with_attribute("k", "x".repeat(MAX_ATTRIBUTES - 1 - ATTRIBUTE_OVERHEAD))
        };
        longest.check(Kind::Fifo, MAX_PAYLOAD).unwrap();
        let texts = [
            refused(&NewItem::new(vec![0; MAX_PAYLOAD + 1])),
            refused(&longest.with_attribute("", "")),
            refused(&NewItem { content_type: text(MAX_TEXT + 1), ..NewItem::default() }),
            refused(&NewItem { trace_parent: text(MAX_TEXT + 1), ..NewItem::default() }),
            refused(&NewItem { unique: Some(Vec::new()), ..NewItem::default() }),
            refused(&NewItem { unique: Some(vec![0; MAX_KEY + 1]), ..NewItem::default() }),
            refused(&NewItem { priority: 3, ..NewItem::default() }),
            refused(&NewItem::new("").with_due(from_millis(7)).with_expiry(from_millis(7))),
        ];
        assert_eq!(
            texts,
            [
                "payload has 8388609 bytes, at most 8388608 are possible; store it elsewhere and push where it is",
                "attributes have 16392 bytes with 8 added for each, at most 16384 are possible; put what is long into the payload",
                "content type has 1025 bytes, at most 1024 are possible; shorten it",
                "trace parent has 1025 bytes, at most 1024 are possible; shorten it",
                "unique key has 0 bytes, 1 to 1024 are possible; give it another",
                "unique key has 1025 bytes, 1 to 1024 are possible; give it another",
                "priority 3 is for priority queues, this queue has none; leave it at 0",
                "item would expire at 7 and become ready at 7, in milliseconds since 1970; let it expire later",
            ]
        );
        let priority = NewItem { priority: 3, ..NewItem::default() };
        priority.check(Kind::Priority(End::Min, Packing::Raw), MAX_PAYLOAD).unwrap();
    }

    #[test]
    fn an_item_expires_in_a_later_millisecond_than_it_is_due() {
        let of = |due: u64, expires: u64| {
            let at = |micros| UNIX_EPOCH + Duration::from_micros(micros);
            NewItem::new("").with_due(at(due)).with_expiry(at(expires)).check(Kind::Fifo, MAX_PAYLOAD)
        };
        assert!(matches!(of(7_100, 7_900), Err(PushError::ExpiresBeforeDue { .. })));
        of(7_999, 8_000).unwrap();
    }

    #[test]
    fn a_content_type_with_nul_is_refused_in_new_items_only() {
        let item = NewItem { content_type: Some("text/plain\0".to_owned()), ..NewItem::default() };
        let error = item.check_new(Kind::Fifo, MAX_PAYLOAD).expect_err("no program can be given it");
        assert_eq!(
            error.to_string(),
            "content type has a NUL character, which no command or webhook can be given; remove it"
        );
        item.check(Kind::Fifo, MAX_PAYLOAD).unwrap();
    }

    #[test]
    fn push_options_over_a_limit_are_refused_naming_the_option() {
        let refused = |options: PushOptions| options.check().expect_err("it is over a limit").to_string();
        let texts = [
            refused(PushOptions { max_payload: PAYLOAD_CEILING + 1, ..PushOptions::default() }),
            refused(PushOptions { idempotency_key: Some(Vec::new()), ..PushOptions::default() }),
            refused(PushOptions { idempotency_key: Some(vec![0; MAX_KEY + 1]), ..PushOptions::default() }),
        ];
        assert_eq!(
            texts,
            [
                "limit of 9000001 bytes for a payload is more than fits into a transaction; lower it to 9000000 or less",
                "idempotency key has 0 bytes, 1 to 1024 are possible; give it another",
                "idempotency key has 1025 bytes, 1 to 1024 are possible; give it another",
            ]
        );
    }

    #[test]
    fn the_longest_side_record_fits_into_a_value() {
        let mut item = NewItem {
            content_type: Some("x".repeat(MAX_TEXT)),
            trace_parent: Some("x".repeat(MAX_TEXT)),
            unique: Some(vec![0; MAX_KEY]),
            ..NewItem::default()
        };
        // As many attributes as there can be.
        for number in 0.. {
            let more =
                item.clone().with_attribute(char::from_u32(number).map(String::from).unwrap_or_default(), "");
            if more.check(Kind::Fifo, MAX_PAYLOAD).is_err() {
                break;
            }
            item = more;
        }
        assert!(item.attributes.len() > 1_000);
        let failure = Failure::new(from_millis(0), 1, &"x".repeat(MAX_REASON));
        let meta =
            Meta { failures: vec![failure.clone(); MAX_FAILURES], death: Some(failure), ..item.meta() };
        assert!(encode(&meta).len() < MAX_VALUE / 2);
    }
}
