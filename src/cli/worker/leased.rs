//! The answer to a request for items.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use kvqueue_queue::{Item, Meta};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::base::times::parse_written;

/// Leased items.
#[derive(Debug)]
pub(super) struct Leased {
    /// The lease.
    pub(super) id: String,
    /// How long the lease lasts without an extension.
    pub(super) length: Duration,
    /// When its fetch began, or earlier.
    pub(super) fetched_at: Instant,
    pub(super) items: Vec<Item>,
}

#[derive(Deserialize)]
struct Answer {
    lease: Option<String>,
    #[serde(default)]
    expires_in_ms: u64,
    #[serde(default)]
    waited_ms: u64,
    items: Vec<LeasedItem>,
}

#[derive(Deserialize)]
struct LeasedItem {
    id: String,
    attempt: u32,
    payload: Option<String>,
    payload_base64: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    content_type: Option<String>,
    trace_parent: Option<String>,
    enqueued_at: Option<String>,
}

impl Leased {
    /// Reads an answer to a request that was sent at `asked_at`. `None` inside if nothing was
    /// leased; `None` outside if it is not the API's.
    pub(super) fn read(answer: &Value, asked_at: Instant) -> Option<Option<Self>> {
        let Answer { lease, expires_in_ms, waited_ms, items } = Answer::deserialize(answer).ok()?;
        let Some(id) = lease else { return Some(None) };
        let length = Duration::from_millis(expires_in_ms);
        let items = items.into_iter().map(LeasedItem::item).collect::<Option<Vec<_>>>()?;
        let fetched_at = asked_at.checked_add(Duration::from_millis(waited_ms))?.min(Instant::now());
        Some(Some(Self { id, length, fetched_at, items }))
    }
}

impl LeasedItem {
    fn item(self) -> Option<Item> {
        let payload = match (self.payload, self.payload_base64) {
            (Some(text), _) => text.into_bytes(),
            (None, Some(encoded)) => BASE64_STANDARD.decode(encoded).ok()?,
            (None, None) => return None,
        };
        let mut meta = Meta::default();
        meta.attempts = self.attempt.saturating_sub(1);
        meta.attributes = self.attributes;
        meta.content_type = self.content_type;
        meta.trace_parent = self.trace_parent;
        meta.enqueued_at = self.enqueued_at.as_deref().and_then(parse_written);
        Some(Item {
            id: self.id.parse().ok()?,
            payload: Bytes::from(payload),
            attempt: self.attempt,
            meta: Some(Arc::new(meta)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{base::json, testing::Sample};

    #[test]
    fn an_item_is_read_as_the_api_writes_it() {
        let time = std::time::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        let full = Sample::new(b"\xff\0").attempt(3).attribute("to", "ann").content_type("text/plain");
        let full = full.trace_parent("t").enqueued_at(time).build();
        let plain = Sample::new("hello").build();
        for item in [full, plain] {
            let leased = json::LeasedItem { item: item.clone(), enqueued_at: None, trace_parent: None };
            let answer = json!({ "lease": "l", "expires_in_ms": 1_500, "waited_ms": 70, "items": [leased] });
            let now = Instant::now() - Duration::from_secs(1);
            let read = Leased::read(&answer, now).unwrap().unwrap();
            assert_eq!(read.fetched_at, now + Duration::from_millis(70));
            assert_eq!((&*read.id, read.length), ("l", Duration::from_millis(1_500)));
            let [found] = &read.items[..] else { panic!("{read:?}") };
            assert_eq!((&found.id, &found.payload, found.attempt), (&item.id, &item.payload, item.attempt));
            let expected = item.meta.as_deref().cloned().unwrap_or_default();
            assert_eq!(found.meta.as_deref(), Some(&expected));
        }
    }

    #[test]
    fn other_answers_are_not_taken_for_leases() {
        assert!(matches!(Leased::read(&json!({ "lease": null, "items": [] }), Instant::now()), Some(None)));
        for wrong in [
            json!({}),
            json!([]),
            json!({ "lease": "l", "items": [{ "id": "x01", "attempt": 1 }] }),
            json!({ "lease": "l", "items": [{ "id": "?", "attempt": 1, "payload": "" }] }),
        ] {
            assert!(Leased::read(&wrong, Instant::now()).is_none(), "{wrong}");
        }
    }
}
