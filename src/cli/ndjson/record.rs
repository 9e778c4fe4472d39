//! A line of an item.

use std::{collections::BTreeMap, time::SystemTime};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use kvqueue_queue::{Failure, ItemId, Meta, State, StoredItem};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::{base::times::parse_written, cli::output::time};

/// An item's line, field by field. What an item does not have is left out.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    state: StateName,
    /// Which item it was. An import gives it another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// Attempts that are spent.
    #[serde(default, skip_serializing_if = "is_default")]
    attempts: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    crashes: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failures: Vec<FailureLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    death: Option<FailureLine>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace_parent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enqueued_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique_until: Option<String>,
    /// The fields that this version does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<FieldLine>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StateName {
    #[default]
    Ready,
    Waiting,
    Dead,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureLine {
    at: String,
    attempt: u32,
    reason: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldLine {
    tag: u8,
    base64: String,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The line of an item, without a newline.
pub(in crate::cli) fn line(id: &ItemId, item: &StoredItem) -> serde_json::Result<String> {
    let meta = &item.meta;
    let (payload, payload_base64) = text_or_base64(&item.payload);
    let (unique, unique_base64) = meta.unique.as_deref().map(text_or_base64).unwrap_or_default();
    let (key, key_base64) = item.key.as_deref().map(text_or_base64).unwrap_or_default();
    let (state, due) = match item.state {
        State::Ready => (StateName::Ready, None),
        State::Later(due) => (StateName::Waiting, Some(time(due))),
        State::Dead => (StateName::Dead, None),
    };
    let field =
        |(tag, content): &(u8, Vec<u8>)| FieldLine { tag: *tag, base64: BASE64_STANDARD.encode(content) };
    serde_json::to_string(&Line {
        state,
        id: Some(id.to_string()),
        due,
        priority: item.priority,
        key,
        key_base64,
        payload,
        payload_base64,
        attempts: meta.attempts,
        crashes: meta.crashes,
        failures: meta.failures.iter().map(FailureLine::from).collect(),
        death: meta.death.as_ref().map(FailureLine::from),
        attributes: meta.attributes.clone(),
        content_type: meta.content_type.clone(),
        trace_parent: meta.trace_parent.clone(),
        enqueued_at: meta.enqueued_at.map(time),
        expires_at: meta.expires.map(time),
        unique,
        unique_base64,
        unique_until: meta.unique_until.map(time),
        fields: meta.unknown_fields().iter().map(field).collect(),
    })
}

/// Reads an item's line. The error is the reason why it cannot be read.
pub(super) fn parse(text: &[u8]) -> Result<StoredItem, String> {
    let line: Line = serde_json::from_slice(text).map_err(|error| explain(text, &error))?;
    let payload = bytes("payload", line.payload, line.payload_base64)?
        .ok_or("it has no payload: give it one as `payload` or `payload_base64`")?;
    let state = match (line.state, line.due) {
        (StateName::Ready, None) => State::Ready,
        (StateName::Dead, None) => State::Dead,
        (StateName::Waiting, Some(due)) => State::Later(read_time("due", &due)?),
        (StateName::Waiting, None) => {
            return Err("an item that is waiting has to be `due` at some time".to_owned());
        }
        (_, Some(_)) => return Err("`due` is for items whose state is \"waiting\"".to_owned()),
    };
    if line.death.is_some() && state != State::Dead {
        return Err("`death` is for items whose state is \"dead\"".to_owned());
    }
    let mut meta = Meta::default();
    meta.attempts = line.attempts;
    meta.crashes = line.crashes;
    meta.failures = line.failures.into_iter().map(FailureLine::read).collect::<Result<_, _>>()?;
    meta.death = line.death.map(FailureLine::read).transpose()?;
    meta.attributes = line.attributes;
    meta.content_type = line.content_type;
    meta.trace_parent = line.trace_parent;
    meta.enqueued_at = line.enqueued_at.map(|at| read_time("enqueued_at", &at)).transpose()?;
    meta.expires = line.expires_at.map(|at| read_time("expires_at", &at)).transpose()?;
    meta.unique = bytes("unique", line.unique, line.unique_base64)?;
    meta.unique_until = line.unique_until.map(|at| read_time("unique_until", &at)).transpose()?;
    for FieldLine { tag, base64 } in line.fields {
        let content = decode("base64", &base64)?;
        if !meta.add_unknown_field(tag, content) {
            return Err(format!("a field of tag {tag} has a name of its own; leave it out of `fields`"));
        }
    }
    let key = bytes("key", line.key, line.key_base64)?;
    Ok(StoredItem { payload: Bytes::from(payload), meta, state, priority: line.priority, key })
}

/// The error without its line number, which is always 1. A line that ends too early is cut off, even
/// if serde has found a wrong field before that.
fn explain(text: &[u8], error: &serde_json::Error) -> String {
    if serde_json::from_slice::<IgnoredAny>(text).is_err_and(|error| error.is_eof()) {
        return "the line is cut off".to_owned();
    }
    let text = error.to_string();
    let (what, place) = text.split_once(" at line 1 column ").unwrap_or((&text, ""));
    if place.is_empty() { what.to_owned() } else { format!("{what} at column {place}") }
}

impl From<&Failure> for FailureLine {
    fn from(failure: &Failure) -> Self {
        Self { at: time(failure.at), attempt: failure.attempt, reason: failure.reason.clone() }
    }
}

impl FailureLine {
    fn read(self) -> Result<Failure, String> {
        Ok(Failure::new(read_time("at", &self.at)?, self.attempt, &self.reason))
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

fn bytes(name: &str, text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(format!("it has both `{name}` and `{name}_base64`; leave one out")),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => decode(&format!("{name}_base64"), &base64).map(Some),
        (None, None) => Ok(None),
    }
}

fn decode(name: &str, base64: &str) -> Result<Vec<u8>, String> {
    BASE64_STANDARD.decode(base64).map_err(|error| format!("`{name}` is no base 64: {error}"))
}

/// Reads what [`time`] writes.
fn read_time(name: &str, text: &str) -> Result<SystemTime, String> {
    parse_written(text).ok_or_else(|| {
        format!("`{name}` is {text:?}, which is no time; write it as in \"2030-01-31T08:00:00Z\"")
    })
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::from_millis;
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    fn failure() -> impl Strategy<Value = Failure> {
        (any::<u64>(), any::<u32>(), "\\PC{0,20}")
            .prop_map(|(at, attempt, reason)| Failure::new(from_millis(at), attempt, &reason))
    }

    prop_compose! {
        fn meta()(
            (attempts, crashes) in any::<(u32, u32)>(),
            failures in vec(failure(), 0..4),
            attributes: BTreeMap<String, String>,
            (content_type, trace_parent, enqueued_at) in any::<(Option<String>, Option<String>, Option<u64>)>(),
            unique in option::of(vec(any::<u8>(), 0..9)),
            expires: Option<u64>,
            unique_until: Option<u64>,
            fields in vec((prop::sample::select(vec![11_u8, 15, u8::MAX]), vec(any::<u8>(), 0..9)), 0..3),
        ) -> Meta {
            let mut meta = Meta::default();
            (meta.attempts, meta.crashes, meta.failures) = (attempts, crashes, failures);
            (meta.attributes, meta.content_type) = (attributes, content_type);
            (meta.trace_parent, meta.enqueued_at, meta.unique) = (trace_parent, enqueued_at.map(from_millis), unique);
            meta.expires = expires.map(from_millis);
            meta.unique_until = unique_until.map(from_millis);
            for (tag, content) in fields {
                // An export names no batch.
                assert!(meta.add_unknown_field(tag, content) || tag == 13);
            }
            meta
        }
    }

    proptest! {
        #[test]
        fn every_item_is_read_as_it_was_written(
            payload: Vec<u8>,
            mut meta in meta(),
            death in option::of(failure()),
            state in prop_oneof![Just(State::Ready), any::<u64>().prop_map(|due| State::Later(from_millis(due))), Just(State::Dead)],
            priority: i64,
            key in option::of(vec(any::<u8>(), 0..9)),
        ) {
            meta.death = death.filter(|_| state == State::Dead);
            let item = StoredItem { payload: payload.into(), meta, state, priority, key };
            let line = line(&"x01".parse().unwrap(), &item).unwrap();
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(parse(line.as_bytes()), Ok(item));
        }

        #[test]
        fn any_bytes_are_read_without_panic(line: Vec<u8>) {
            let _ = parse(&line);
        }

        #[test]
        fn an_item_line_that_is_cut_off_is_refused(payload: String, cut: prop::sample::Index) {
            let item = StoredItem { payload: payload.into(), ..StoredItem::default() };
            let line = line(&"x01".parse().unwrap(), &item).unwrap();
            prop_assert!(parse(&line.as_bytes()[..cut.index(line.len())]).is_err());
        }
    }

    #[test]
    fn a_plain_item_is_a_short_line() {
        let item = StoredItem { payload: "a".into(), ..StoredItem::default() };
        let line = line(&"x01".parse().unwrap(), &item).unwrap();
        assert_eq!(line, r#"{"state":"ready","id":"x01","payload":"a"}"#);
    }

    #[test]
    fn errors_of_an_item_line_name_the_field() {
        let of = |line: &str| parse(line.as_bytes()).expect_err("it is wrong");
        let cases = [
            (r#"{"state":"ready"}"#, "it has no payload: give it one as `payload` or `payload_base64`"),
            (
                r#"{"state":"ready","payload":"a","payload_base64":""}"#,
                "it has both `payload` and `payload_base64`; leave one out",
            ),
            (r#"{"state":"waiting","payload":"a"}"#, "an item that is waiting has to be `due` at some time"),
            (r#"{"state":"ready","payload":"a","due":"7"}"#, "`due` is for items whose state is \"waiting\""),
            (
                r#"{"state":"waiting","payload":"a","due":"soon"}"#,
                "`due` is \"soon\", which is no time; write it as in \"2030-01-31T08:00:00Z\"",
            ),
            (
                r#"{"state":"ready","payload":"a","fields":[{"tag":1,"base64":""}]}"#,
                "a field of tag 1 has a name of its own; leave it out of `fields`",
            ),
            (r#"{"state":"ready","payl"#, "the line is cut off"),
        ];
        for (line, expected) in cases {
            assert_eq!(of(line), expected, "{line}");
        }
        assert!(of(r#"{"state":"gone","payload":"a"}"#).contains("unknown variant `gone`"));
        assert!(of(r#"{"state":"ready","colour":"a"}"#).contains("unknown field `colour`"));
        assert!(
            of(r#"{"state":"ready","payload_base64":"%"}"#).starts_with("`payload_base64` is no base 64")
        );
    }
}
