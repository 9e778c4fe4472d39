//! Items, dead letters and pauses as JSON, for commands, HTTP and handlers.

use std::time::SystemTime;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use kvqueue_queue::{
    Counts, DeadLetter, EndedItem, Failure, Item, ItemId, ItemState, ItemView, LeaseView, MAX_RESULT, Meta,
    Pause, Progress, millis,
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

pub(crate) use super::json_bytes::{insert_bytes, insert_payload};
use super::{clock, identity, json_bytes::payload_text, times};

/// The name of a phase or a state, as JSON has it.
pub(crate) fn json_name(value: &impl Serialize) -> Option<String> {
    Some(serde_json::to_value(value).ok()?.as_str()?.to_owned())
}

/// Since when and why a queue is paused.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PauseJson {
    /// In milliseconds since 1970.
    pub(crate) since: u64,
    pub(crate) reason: String,
    /// The sweeper does not change the queue either.
    pub(crate) frozen: bool,
}

impl From<Pause> for PauseJson {
    fn from(Pause { at, reason, frozen }: Pause) -> Self {
        Self { since: millis(at), reason, frozen }
    }
}

/// An item: `id`, `payload`, and what else there is: `attempt` from the second on, and attributes and the like.
pub(crate) fn item(item: &Item) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), json!(item.id.to_string()));
    insert_key(&mut object, &item.id);
    insert_payload(&mut object, "payload", &item.payload);
    if item.attempt > 1 {
        object.insert("attempt".to_owned(), item.attempt.into());
    }
    if let Some(meta) = &item.meta {
        insert_meta(&mut object, meta);
    }
    Value::Object(object)
}

/// An item for a worker: over HTTP, in a batch for a webhook, or on the standard input of a process.
#[derive(Debug)]
pub(crate) struct LeasedItem {
    pub(crate) item: Item,
    /// If it is known, it replaces what the producer wrote.
    pub(crate) enqueued_at: Option<SystemTime>,
    /// If there is one, it replaces what the producer wrote.
    pub(crate) trace_parent: Option<String>,
}

/// Serialized without a [`Value`] in between, because leases have many items. Id and payload come
/// first, so that a shell script can find them.
impl Serialize for LeasedItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { item: Item { id, payload, attempt, meta }, enqueued_at, trace_parent } = self;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &id.to_string())?;
        match payload_text(payload) {
            Some(text) => object.serialize_entry("payload", text)?,
            None => object.serialize_entry("payload_base64", &BASE64_STANDARD.encode(payload))?,
        }
        object.serialize_entry("attempt", attempt)?;
        let mut more = Map::new();
        insert_key(&mut more, id);
        if let Some(at) = enqueued_at {
            object.serialize_entry("enqueued_at", &time(*at))?;
        }
        if let Some(parent) = trace_parent {
            object.serialize_entry("trace_parent", parent)?;
        }
        if let Some(meta) = meta {
            insert_meta(&mut more, meta);
            if enqueued_at.is_some() {
                more.remove("enqueued_at");
            }
            if trace_parent.is_some() {
                more.remove("trace_parent");
            }
        }
        for (key, value) in &more {
            object.serialize_entry(key, value)?;
        }
        object.end()
    }
}

/// Adds the key of an item, if it is in a keyed queue.
fn insert_key(object: &mut Map<String, Value>, id: &ItemId) {
    if let Some(key) = id.key() {
        insert_bytes(object, "key", &key);
    }
}

/// Adds what a producer gave an item in addition to its payload.
fn insert_meta(object: &mut Map<String, Value>, meta: &Meta) {
    if !meta.attributes.is_empty() {
        object.insert("attributes".to_owned(), json!(meta.attributes));
    }
    let enqueued_at = meta.enqueued_at.map(time);
    let (expires_at, unique_until) = (meta.expires.map(time), meta.unique_until.map(time));
    let texts = [
        ("content_type", &meta.content_type),
        ("trace_parent", &meta.trace_parent),
        ("enqueued_at", &enqueued_at),
        ("expires_at", &expires_at),
        ("unique_until", &unique_until),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            object.insert(key.to_owned(), json!(text));
        }
    }
    if let Some(key) = &meta.unique {
        insert_bytes(object, "unique", key);
    }
    if !meta.batches.is_empty() {
        let batches: Vec<_> = meta.batches.iter().map(ToString::to_string).collect();
        object.insert("batches".to_owned(), json!(batches));
    }
}

/// A time in RFC 3339, to the millisecond; or the number of milliseconds since 1970 if it is beyond the calendar.
pub(crate) fn time(at: SystemTime) -> String {
    times::timestamp(at).map_or_else(|| millis(at).to_string(), |time| format!("{time:.3}"))
}

/// A value with a payload.
pub(crate) trait Payload: Clone {
    /// The payload, if it is known.
    fn payload(&mut self) -> Option<&mut Bytes>;
}

impl Payload for Item {
    fn payload(&mut self) -> Option<&mut Bytes> {
        Some(&mut self.payload)
    }
}

impl Payload for ItemView {
    fn payload(&mut self) -> Option<&mut Bytes> {
        Some(&mut self.item.as_mut().ok()?.payload)
    }
}

impl Payload for DeadLetter {
    fn payload(&mut self) -> Option<&mut Bytes> {
        self.payload.as_mut()
    }
}

/// The same with the beginning of its payload only, and with `bytes`, the payload's size, and `cut`, whether some are missing. A text
/// is cut between its characters.
pub(crate) fn beginning<T: Payload>(shape: fn(&T) -> Value, of: &T, most: usize) -> Value {
    let mut of = of.clone();
    let Some(payload) = of.payload() else { return shape(&of) };
    let bytes = payload.len();
    if bytes > most {
        let part = &payload[..most];
        let end = match std::str::from_utf8(part) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => most,
        };
        payload.truncate(end);
    }
    let mut value = shape(&of);
    value["bytes"] = bytes.into();
    value["cut"] = (bytes > most).into();
    value
}

/// A dead letter: all that is known of it; what a letter does not have is left out.
pub(crate) fn letter(letter: &DeadLetter) -> Value {
    let meta = &letter.meta;
    let known = json!({
        "id": letter.id.to_string(),
        "died_at": time(letter.died_at),
        "reason": letter.reason,
        "attempts": meta.attempts,
        "crashes": meta.crashes,
        "failures": failures(meta).map(failure).collect::<Vec<_>>(),
    });
    let Value::Object(mut object) = known else { return known };
    insert_key(&mut object, &letter.id);
    insert_meta(&mut object, meta);
    if let Some(payload) = &letter.payload {
        insert_payload(&mut object, "payload", payload);
    }
    if let Some(why) = &letter.unreadable {
        object.insert("unreadable".to_owned(), why.as_str().into());
    }
    Value::Object(object)
}

/// An item in its state: what [`item`] has of it, and when it is due, how its attempts ended, why it died, who has its lease. What it does not
/// have is left out.
pub(crate) fn view(view: &ItemView) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), json!(view.id.to_string()));
    object.insert("state".to_owned(), json!(view.state.as_str()));
    insert_key(&mut object, &view.id);
    if let Some(due) = view.due {
        object.insert("due".to_owned(), json!(time(due)));
    }
    match &view.item {
        Ok(item) => {
            insert_item(&mut object, view.state, item);
            if let Some(at) = enqueued_at(view) {
                object.insert("enqueued_at".to_owned(), json!(time(at)));
            }
        }
        Err(why) => {
            object.insert("unreadable".to_owned(), json!(why));
        }
    }
    if let Some(lease) = &view.lease {
        object.insert("lease".to_owned(), self::lease(lease));
    }
    if let Some(progress) = &view.progress {
        object.insert("progress".to_owned(), self::progress(progress));
    }
    Value::Object(object)
}

/// An item that has ended. What it does not have is left out.
pub(crate) fn ended(item: &EndedItem) -> Value {
    let known = json!({
        "id": item.id.to_string(),
        "state": "finished",
        "outcome": item.ending.as_str(),
        "ended_at": time(item.ended),
        "attempts": item.attempts,
    });
    let Value::Object(mut object) = known else { return known };
    insert_key(&mut object, &item.id);
    let (enqueued_at, started_at) = (item.pushed.map(time), item.started.map(time));
    match item.result {
        Some(len) if len > MAX_RESULT => _ = object.insert("result_too_long".to_owned(), true.into()),
        Some(len) => _ = object.insert("result_bytes".to_owned(), len.into()),
        None => {}
    }
    let texts = [
        ("enqueued_at", enqueued_at.as_deref()),
        ("started_at", started_at.as_deref()),
        ("worker", item.worker.as_deref()),
        ("reason", item.reason.as_deref()),
        ("schedule", item.schedule()),
    ];
    for (key, text) in texts.into_iter().filter_map(|(key, text)| Some((key, text?))) {
        object.insert(key.to_owned(), text.into());
    }
    if !item.attributes.is_empty() {
        object.insert("attributes".to_owned(), json!(item.attributes));
    }
    Value::Object(object)
}

/// The same with its result, if it is kept.
pub(crate) fn ended_with(item: &EndedItem, result: Option<&[u8]>) -> Value {
    let mut value = ended(item);
    if let (Some(object), Some(result)) = (value.as_object_mut(), result) {
        insert_payload(object, "result", result);
    }
    value
}

/// An item that has left its queue, of which no more is known.
pub(crate) fn left(id: &ItemId) -> Value {
    json!({ "id": id.to_string(), "state": "finished" })
}

/// When an item was pushed: from its side record, or from its id, to about a second.
pub(crate) fn enqueued_at(view: &ItemView) -> Option<SystemTime> {
    let said = view.item.as_ref().ok().and_then(|item| item.meta.as_ref()?.enqueued_at);
    let told = || Some(times::whole_seconds(times::before(clock::now(), view.age?)));
    said.or_else(told)
}

fn insert_item(object: &mut Map<String, Value>, state: ItemState, item: &Item) {
    insert_payload(object, "payload", &item.payload);
    // A dead letter has no attempt before it.
    if state != ItemState::Dead {
        object.insert("attempt".to_owned(), item.attempt.into());
    }
    let attempts = item.meta.as_ref().map_or(0, |meta| meta.attempts);
    object.insert("attempts".to_owned(), attempts.into());
    let Some(meta) = &item.meta else { return };
    if meta.crashes > 0 {
        object.insert("crashes".to_owned(), meta.crashes.into());
    }
    if !meta.failures.is_empty() {
        let failures: Vec<_> = failures(meta).map(failure).collect();
        object.insert("failures".to_owned(), failures.into());
    }
    if let Some(last) = last_failure(meta) {
        object.insert("reason".to_owned(), json!(last.reason));
    }
    if let Some(death) = &meta.death {
        object.insert("died_at".to_owned(), json!(time(death.at)));
    }
    insert_meta(object, meta);
}

/// Why an item is a dead letter; of any other, how its last attempt ended that failed.
pub(crate) fn last_failure(meta: &Meta) -> Option<&Failure> {
    meta.death.as_ref().or(meta.failures.last())
}

/// A lease. Its times are spans in seconds, by the database's versions.
fn lease(lease: &LeaseView) -> Value {
    let maker = identity::maker(lease.id.session);
    json!({
        "session": format!("{:?}", lease.id.session),
        "number": lease.id.number,
        "process": maker.map(|maker| maker.pid),
        "extended_age": lease.extended.as_secs_f64(),
        "expires_in": lease.left.map(|left| left.as_secs_f64()),
    })
}

/// How far an item is; what its handler has not said is left out.
fn progress(Progress { at, percent, message }: &Progress) -> Value {
    let mut object = json!({ "at": time(*at) });
    if let Some(percent) = percent {
        object["percent"] = (*percent).into();
    }
    if !message.is_empty() {
        object["message"] = message.as_str().into();
    }
    object
}

/// How attempts ended, and of each whether that was before a dead letter was made ready again: its attempts begin at 1 then.
pub(crate) fn failures(meta: &Meta) -> impl Iterator<Item = (&Failure, bool)> {
    let mut above = meta.attempts.saturating_add(1);
    let of_now = meta.failures.iter().rev().take_while(|it| {
        let is_of_now = it.attempt < above;
        above = it.attempt;
        is_of_now
    });
    let before = meta.failures.len() - of_now.count();
    meta.failures.iter().enumerate().map(move |(index, it)| (it, index < before))
}

fn failure((it, before_retry): (&Failure, bool)) -> Value {
    let mut told = json!({ "at": time(it.at), "attempt": it.attempt, "reason": it.reason });
    if before_retry {
        told["before_retry"] = true.into();
    }
    told
}

/// An object that begins with the queue's name.
pub(crate) fn about(queue: &[u8], key: &str, value: impl Into<Value>) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "queue", queue);
    object.insert(key.to_owned(), value.into());
    Value::Object(object)
}

/// A queue's name, how many items there are in each state, and its pause.
pub(crate) fn counts(queue: &[u8], counts: Counts, pause: Option<Pause>) -> Value {
    let Counts { ready, running, waiting, dead, done, pushed } = counts;
    let mut object = about(queue, "ready", ready);
    object["waiting"] = waiting.into();
    object["dead"] = dead.into();
    object["running"] = running.into();
    object["done"] = done.into();
    object["pushed"] = pushed.into();
    object["paused"] = json!(pause.map(PauseJson::from));
    object
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use kvqueue_queue::from_millis;

    use super::*;

    #[test]
    fn item_json_has_only_known_fields() {
        let id: ItemId = "x01".parse().unwrap();
        let item = Item { id, payload: "a".into(), attempt: 1, meta: None };
        assert_eq!(super::item(&item), json!({"id": "x01", "payload": "a"}));
        let mut meta = Meta::default();
        meta.attributes.insert("k".to_owned(), "v".to_owned());
        meta.enqueued_at = Some(from_millis(1_700_000_000_500));
        meta.unique = Some(b"\xff".to_vec());
        let item = Item { payload: b"\xff".as_slice().into(), attempt: 2, meta: Some(meta.into()), ..item };
        let expected = json!({
            "id": "x01",
            "payload_base64": "/w==",
            "attempt": 2,
            "attributes": {"k": "v"},
            "enqueued_at": "2023-11-14T22:13:20.500Z",
            "unique_base64": "/w==",
        });
        assert_eq!(super::item(&item), expected);
        let mut leased = LeasedItem { item, enqueued_at: None, trace_parent: None };
        assert_eq!(serde_json::to_value(&leased).unwrap(), expected);
        (leased.enqueued_at, leased.trace_parent) = (Some(UNIX_EPOCH), Some("t".to_owned()));
        let text = serde_json::to_string(&leased).unwrap();
        let start = r#"{"id":"x01","payload_base64":"/w==","attempt":2,"enqueued_at":"1970-01-01T00:00:00.000Z","trace_parent":"t","#;
        assert!(text.starts_with(start), "{text}");
        assert_eq!(text.matches("enqueued_at").count(), 1, "{text}");
        assert_eq!(time(from_millis(u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn a_text_is_cut_between_characters_and_bytes_anywhere() {
        let cut = |payload: &[u8], most| {
            let id: ItemId = "x01".parse().unwrap();
            let item = Item { id, payload: payload.to_vec().into(), attempt: 1, meta: None };
            beginning(super::item, &item, most)
        };
        let text = "é€".as_bytes();
        assert_eq!(cut(text, 5), json!({"id": "x01", "payload": "é€", "bytes": 5, "cut": false}));
        for (most, part) in [(4, "é"), (2, "é"), (1, ""), (0, "")] {
            assert_eq!(cut(text, most), json!({"id": "x01", "payload": part, "bytes": 5, "cut": true}));
        }
        assert_eq!(
            cut(b"\xffab", 1),
            json!({"id": "x01", "payload_base64": "/w==", "bytes": 3, "cut": true})
        );
    }

    #[test]
    fn json_distinguishes_failures_before_a_retry() {
        let told = |failures: &[u32], attempts| {
            let mut meta = Meta::default();
            meta.attempts = attempts;
            meta.failures = failures.iter().map(|attempt| Failure::new(UNIX_EPOCH, *attempt, "no")).collect();
            super::failures(&meta).map(|(_, before)| before).collect::<Vec<_>>()
        };
        assert_eq!(told(&[1, 2, 3], 3), [false; 3]);
        assert_eq!(told(&[1, 1, 1], 1), [true, true, false]);
        assert_eq!(told(&[1, 2, 3, 1, 2], 2), [true, true, true, false, false]);
        // It was made ready again, and has not failed since.
        assert_eq!(told(&[1, 2], 0), [true; 2]);
        assert_eq!(told(&[], 0), [false; 0]);
    }

    #[test]
    fn bytes_that_are_not_text_are_encoded() {
        assert_eq!(about(b"q", "len", 3), json!({"queue": "q", "len": 3}));
        assert_eq!(about(b"\xff", "len", 3), json!({"queue_base64": "/w==", "len": 3}));
    }
}
