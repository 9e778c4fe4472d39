//! What a push has: the fields of its items, and its answer. A push is no [`Operation`](super::Operation), since many items go through it; commands
//! and requests share this.

use std::{
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use kvqueue_queue::{IfTaken, NewItem, PushEffect, PushedItem, item_batch::ParseBatchIdError};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

use super::{
    names::one_of,
    times::{LONGEST, due},
};
use crate::{
    base::{json_bytes::payload_text, times::after},
    handlers::whole,
    telemetry::{NO_TRACE_PARENT, is_trace_parent},
};

/// The most items of one push over HTTP.
pub(crate) const MOST_ITEMS: usize = 1_000;

/// The most attributes of all items of one push over HTTP.
pub(crate) const MOST_ATTRIBUTES: usize = 10_000;

/// The most attributes of one item. No more than this fit into [`kvqueue_queue::MAX_ATTRIBUTES`].
const MOST_OF_ITEM: usize = 2_048;

/// An item as a producer gives it. Of the payloads it has one, and of a key and the same in base 64.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ItemFields {
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) payload_base64: Option<String>,
    /// Any value; its text is the payload. As text, since a parsed value can take a hundred times as much memory.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) payload_json: Option<Box<RawValue>>,
    #[serde(deserialize_with = "attributes", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) trace_parent: Option<String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) unique: Option<String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) unique_base64: Option<String>,
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub(crate) unique_for_ms: Option<u64>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) replace: Option<bool>,
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<i64>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) key_base64: Option<String>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<String>,
}

/// A key that is there has a value: `null` is none.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// A payload that is text. Who gives an object means the field for JSON.
fn text<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    input.deserialize_string(Text).map(Some)
}

struct Text;

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string; the field payload_json takes any JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<String, E> {
        Ok(text)
    }
}

/// Reads the attributes of an item, and stops at the first that is too many.
fn attributes<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeMap<String, String>, D::Error> {
    input.deserialize_map(Attributes)
}

struct Attributes;

impl<'de> Visitor<'de> for Attributes {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Self::Value, A::Error> {
        let mut attributes = BTreeMap::new();
        while let Some((name, value)) = input.next_entry::<String, String>()? {
            if attributes.len() == MOST_OF_ITEM {
                return Err(A::Error::custom(format_args!(
                    "an item has more than {MOST_OF_ITEM} attributes; put them into its payload"
                )));
            }
            if let Some((name, _)) = attributes.get_key_value(&name) {
                return Err(A::Error::custom(format_args!(
                    "the attribute {name:?} is there twice; give each name once"
                )));
            }
            attributes.insert(name, value);
        }
        Ok(attributes)
    }
}

impl ItemFields {
    /// The item, as of `now`. `ttl` is for one that says nothing of it.
    pub(crate) fn item(mut self, now: SystemTime, ttl: Option<Duration>) -> Result<NewItem, String> {
        let payload = self.take_payload()?;
        let mut item = self.template(now, ttl)?;
        item.payload = payload;
        Ok(item)
    }

    /// The same with this payload.
    pub(crate) fn with_payload(self, payload: &[u8]) -> Self {
        let (payload, payload_base64) = match payload_text(payload) {
            Some(text) => (Some(text.to_owned()), None),
            None => (None, Some(BASE64_STANDARD.encode(payload))),
        };
        Self { payload, payload_base64, payload_json: None, ..self }
    }

    /// Whether it is for a later time.
    pub(crate) fn is_delayed(&self) -> bool {
        self.delay_ms.is_some() || self.at.is_some()
    }

    /// Whether it has a unique key.
    pub(crate) fn is_unique(&self) -> bool {
        self.unique.is_some() || self.unique_base64.is_some()
    }

    fn take_payload(&mut self) -> Result<Bytes, String> {
        const NAMES: &str = "give one of payload, payload_base64 and payload_json";
        match (self.payload.take(), self.payload_base64.take(), self.payload_json.take()) {
            (Some(text), None, None) => Ok(text.into()),
            (None, None, Some(value)) => Ok(Box::<str>::from(value).into_string().into()),
            (None, None, None) => Err(format!("it has no payload; {NAMES}")),
            (None, text, None) => {
                let bytes = one_of(["payload", "payload_base64"], (None, text))?;
                Ok(bytes.unwrap_or_default().into())
            }
            _ => Err(format!("it has more than one payload; {NAMES}")),
        }
    }

    /// An item without a payload that has all else, as of `now`. `ttl` is for one that says nothing of it.
    pub(crate) fn template(self, now: SystemTime, ttl: Option<Duration>) -> Result<NewItem, String> {
        if self.trace_parent.as_deref().is_some_and(|text| !is_trace_parent(text)) {
            return Err(format!("trace_parent is {NO_TRACE_PARENT}"));
        }
        let key = one_of(["key", "key_base64"], (self.key, self.key_base64))?;
        let unique = one_of(["unique", "unique_base64"], (self.unique, self.unique_base64))?;
        let expires = expires(self.ttl_ms, ttl, now)?;
        let unique_until = unique_until(self.unique_for_ms, now)?;
        let batch = self.batch.map(|text| text.parse().map_err(|error: ParseBatchIdError| error.to_string()));
        let batch = batch.transpose()?;
        let due = due(self.delay_ms, self.at.as_deref(), now)?;
        // An item without options needs no record, and so has no time of its push.
        let says = !self.attributes.is_empty()
            || self.content_type.is_some()
            || self.trace_parent.is_some()
            || unique.is_some()
            || batch.is_some()
            || due.is_some()
            || expires.is_some();
        let mut item = NewItem::default();
        item.attributes = self.attributes;
        item.content_type = self.content_type;
        item.trace_parent = self.trace_parent;
        item.enqueued_at = says.then_some(now);
        item.unique = unique;
        item.unique_until = unique_until;
        item.if_taken = if self.replace == Some(true) { IfTaken::Replace } else { IfTaken::Skip };
        item.due = due.filter(|due| *due > now);
        item.expires = expires;
        item.priority = self.priority.unwrap_or_default();
        item.key = key;
        item.batch = batch;
        Ok(item)
    }
}

/// A struct that must be written as an object: serde would also read it from a list of its values.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(AnObject(PhantomData)).map(Self)
    }
}

struct AnObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for AnObject<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// The answer to a push.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PushAnswer {
    /// How many items were added.
    pub(crate) pushed: usize,
    /// The id of each item; `None` if it is not known any more.
    pub(crate) ids: Vec<Option<String>>,
    /// What became of each item.
    pub(crate) effects: Vec<EffectName>,
    /// Whether a push with the same idempotency key was done before.
    pub(crate) already: bool,
}

/// What became of an item of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EffectName {
    Added,
    Duplicate,
    Replaced,
    Repeated,
}

impl PushAnswer {
    pub(crate) fn new(items: impl IntoIterator<Item = PushedItem>, already: bool) -> Self {
        let mut answer = Self { pushed: 0, ids: Vec::new(), effects: Vec::new(), already };
        for PushedItem { id, effect, .. } in items {
            answer.pushed += usize::from(effect == PushEffect::Added);
            answer.ids.push(id.as_ref().map(ToString::to_string));
            answer.effects.push(match effect {
                PushEffect::Added => EffectName::Added,
                PushEffect::Duplicate => EffectName::Duplicate,
                PushEffect::Replaced => EffectName::Replaced,
                PushEffect::Repeated => EffectName::Repeated,
            });
        }
        answer
    }
}

/// When it expires, if the request or the queue has that.
fn expires(own: Option<u64>, queue: Option<Duration>, now: SystemTime) -> Result<Option<SystemTime>, String> {
    match own {
        Some(0) => Err("ttl_ms is 0, and the item would expire at once; leave it out or raise it".to_owned()),
        Some(ttl) if ttl > LONGEST => Err(format!("ttl_ms is {ttl}, at most {LONGEST} are possible")),
        own => Ok(own.map(Duration::from_millis).or(queue).map(|ttl| after(now, ttl))),
    }
}

/// Until when its unique key is taken, if the request has that.
fn unique_until(time: Option<u64>, now: SystemTime) -> Result<Option<SystemTime>, String> {
    match time {
        Some(0) => {
            Err("unique_for_ms is 0, and the key would be free at once; leave it out or raise it".to_owned())
        }
        Some(time) if time > LONGEST => {
            Err(format!("unique_for_ms is {time}, at most {LONGEST} are possible"))
        }
        time => Ok(time.map(|time| after(now, Duration::from_millis(time)))),
    }
}
