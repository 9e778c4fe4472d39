//! Items for tests.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use foundationdb::tuple::{self, Versionstamp, pack};
use kvqueue_queue::{Item, ItemId, Meta, Stamp};

/// An item to be handled in a test: a payload and, where that matters, what else is known of it.
///
/// A text or bytes alone are a sample, too, wherever one is asked for.
#[derive(Clone, Debug)]
#[must_use = "a sample is handled by a kit"]
pub struct Sample {
    payload: Bytes,
    attempt: u32,
    place: Option<u16>,
    key: Option<Vec<u8>>,
    meta: Meta,
}

impl Sample {
    /// An item with this payload, at its first attempt.
    pub fn new(payload: impl AsRef<[u8]>) -> Self {
        let payload = Bytes::copy_from_slice(payload.as_ref());
        Self { payload, attempt: 1, place: None, key: None, meta: Meta::default() }
    }

    /// Which attempt it is, from 1.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self.meta.attempts = attempt.saturating_sub(1);
        self
    }

    /// Its place in the queue, from which its id is made. Without one it is its place in the call,
    /// from 0.
    pub fn place(mut self, place: u16) -> Self {
        self.place = Some(place);
        self
    }

    /// Its key in a keyed queue. Without one it is an item of a queue of another kind.
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds one of the producer's attributes.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta.attributes.insert(name.into(), value.into());
        self
    }

    /// The payload's media type.
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.meta.content_type = Some(media_type.into());
        self
    }

    /// The W3C `traceparent` of what it was pushed for.
    pub fn trace_parent(mut self, trace_parent: impl Into<String>) -> Self {
        self.meta.trace_parent = Some(trace_parent.into());
        self
    }

    /// When it was pushed.
    pub fn enqueued_at(mut self, time: SystemTime) -> Self {
        self.meta.enqueued_at = Some(time);
        self
    }

    /// The item, as a fetch would return it.
    pub fn build(self) -> Item {
        self.build_at(0)
    }

    /// The item of a call that has others before it.
    pub(super) fn build_at(self, index: u16) -> Item {
        let mut stamp = [0; Stamp::LEN];
        stamp[Stamp::LEN - 2..].copy_from_slice(&self.place.unwrap_or(index).to_be_bytes());
        let meta = (!self.meta.is_empty()).then(|| Arc::new(self.meta));
        let id = match &self.key {
            Some(key) => keyed_id(key, stamp),
            None => Stamp::from(stamp).into(),
        };
        Item { id, payload: self.payload, attempt: self.attempt, meta }
    }
}

/// The id of an item in a keyed queue.
fn keyed_id(key: &[u8], stamp: [u8; Stamp::LEN]) -> ItemId {
    let packed = pack(&(tuple::Bytes::from(key), Versionstamp::from(stamp)));
    let digits: String = packed.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("x{digits}").parse().expect("an x and an even number of digits are an id")
}

impl<P: AsRef<[u8]> + ?Sized> From<&P> for Sample {
    fn from(payload: &P) -> Self {
        Self::new(payload)
    }
}
