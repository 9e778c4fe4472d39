//! The body of a push.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use kvqueue_queue::NewItem;
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

use crate::{
    http::error::ApiError,
    operations::push::{ItemFields, MOST_ATTRIBUTES, MOST_ITEMS, Object, given},
};

/// The body of a push.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PushBody {
    #[serde(deserialize_with = "entries")]
    items: Vec<Object<ItemFields>>,
    #[serde(default, deserialize_with = "given")]
    idempotency_key: Option<String>,
}

/// Reads items, and stops at the first that is too many: `{}` takes a hundred times as much memory as text.
fn entries<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Object<ItemFields>>, D::Error> {
    input.deserialize_seq(Entries)
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<Object<ItemFields>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut attributes) = (Vec::new(), 0);
        while let Some(entry) = input.next_element::<Object<ItemFields>>()? {
            if entries.len() == MOST_ITEMS {
                return Err(too_many("items", MOST_ITEMS));
            }
            attributes += entry.0.attributes.len();
            if attributes > MOST_ATTRIBUTES {
                return Err(too_many("attributes", MOST_ATTRIBUTES));
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

fn too_many<E: Error>(what: &str, most: usize) -> E {
    E::custom(format_args!("there are more than {most} {what}; push in several requests"))
}

impl PushBody {
    /// The items, as of `now`, and the idempotency key. `ttl` is for items that say nothing of it.
    pub(super) fn items(
        self,
        now: SystemTime,
        ttl: Option<Duration>,
    ) -> Result<(Vec<NewItem>, Option<Vec<u8>>), ApiError> {
        let count = self.items.len();
        if count == 0 {
            return Err(ApiError::Bad(format!("there are no items; push 1 to {MOST_ITEMS} at a time")));
        }
        let items = self.items.into_iter().enumerate().map(|(index, Object(fields))| {
            fields.item(now, ttl).map_err(|problem| ApiError::Bad(format!("items[{index}]: {problem}")))
        });
        Ok((items.collect::<Result<_, _>>()?, self.idempotency_key.map(String::into_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use kvqueue_queue::from_millis;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::http::body::parse;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn items(body: &Value) -> Result<Vec<NewItem>, String> {
        let pushed: PushBody = parse(body.to_string().as_bytes()).map_err(|error| error.to_string())?;
        pushed.items(from_millis(1_000), None).map(|(items, _)| items).map_err(|error| error.to_string())
    }

    fn item(entry: &Value) -> Result<NewItem, String> {
        items(&json!({ "items": [entry] })).map(|mut items| items.remove(0))
    }

    #[test]
    fn an_item_without_a_ttl_has_that_of_its_queue() {
        let of = |text: &str| {
            let pushed: PushBody = parse(text.as_bytes()).unwrap();
            let items = pushed.items(from_millis(1_000), Some(Duration::from_secs(1)));
            items.map(|(items, _)| items[0].expires).map_err(|error| error.to_string())
        };
        assert_eq!(of(r#"{"items": [{"payload": ""}]}"#), Ok(Some(from_millis(2_000))));
        assert_eq!(of(r#"{"items": [{"payload": "", "ttl_ms": 7}]}"#), Ok(Some(from_millis(1_007))));
        assert!(of(r#"{"items": [{"payload": "", "ttl_ms": 0}]}"#).unwrap_err().contains("ttl_ms is 0"));
        assert!(of(r#"{"items": [{"payload": "", "ttl_ms": 315360000001}]}"#).is_err());
    }

    #[test]
    fn an_attribute_that_is_given_twice_is_refused() {
        let text = r#"{"items": [{"payload": "", "attributes": {"a": "1", "b": "2", "a": "3"}}]}"#;
        let refused = parse::<PushBody>(text.as_bytes()).map(drop).unwrap_err().to_string();
        assert!(refused.contains(r#"the attribute "a" is there twice"#), "{refused}");
    }

    #[test]
    fn push_body_items_are_parsed_with_all_fields() {
        assert_eq!(item(&json!({"payload": "a"})).unwrap(), NewItem::new("a"));
        assert_eq!(item(&json!({"payload_base64": "/w=="})).unwrap(), NewItem::new(b"\xff".to_vec()));
        for value in [json!({"a": [1, null]}), json!("text"), json!(17), json!(false), json!(null)] {
            assert_eq!(item(&json!({"payload_json": value})).unwrap(), NewItem::new(value.to_string()));
        }
        let whole = item(&json!({
            "payload": "", "attributes": {"k": "v"}, "content_type": "text/plain", "trace_parent": TRACE,
            "unique": "u", "delay_ms": 5, "ttl_ms": 9, "priority": -3, "key": "tenant-7",
        }));
        let expected = NewItem::new("")
            .with_attribute("k", "v")
            .with_content_type("text/plain".to_owned())
            .with_trace_parent(TRACE.to_owned())
            .with_enqueued_at(from_millis(1_000))
            .with_unique(b"u".to_vec())
            .with_due(from_millis(1_005))
            .with_expiry(from_millis(1_009))
            .with_priority(-3)
            .with_key("tenant-7");
        assert_eq!(whole.unwrap(), expected);
        assert_eq!(item(&json!({"payload": "", "delay_ms": 2.0, "priority": 3.0})).unwrap().priority, 3);
        assert_eq!(item(&json!({"payload": "", "priority": i64::MIN})).unwrap().priority, i64::MIN);
        assert!(item(&json!({"payload": "", "priority": 0.5})).is_err());
        // Without serde_json's float_roundtrip this is read as 4058496967675878.5.
        assert_eq!(
            item(&json!({"payload": "", "priority": 4_058_496_967_675_878.0_f64})).unwrap().priority,
            4_058_496_967_675_878
        );
        assert_eq!(
            item(&json!({"payload": "", "at": "1970-01-01T00:00:02Z"})).unwrap().due,
            Some(from_millis(2_000))
        );
        assert_eq!(item(&json!({"payload": "", "at": "1969-01-01T00:00:00Z"})).unwrap().due, None);
    }

    #[test]
    fn errors_of_a_push_body_name_the_field() {
        let wrong = |entry: Value| item(&entry).unwrap_err();
        insta::assert_snapshot!(wrong(json!({})), @"items[0]: it has no payload; give one of payload, payload_base64 and payload_json");
        insta::assert_snapshot!(wrong(json!({"payload": "", "payload_base64": ""})), @"items[0]: it has more than one payload; give one of payload, payload_base64 and payload_json");
        insta::assert_snapshot!(wrong(json!({"payload_base64": "?"})), @"items[0]: payload_base64 is not base 64: Invalid symbol 63, offset 0.");
        insta::assert_snapshot!(wrong(json!({"payload": null})), @"the body at items[0].payload: invalid type: null, expected a string; the field payload_json takes any JSON at line 1 column 25");
        insta::assert_snapshot!(wrong(json!({"payload": "", "delay_ms": -1})), @"the body at items[0].delay_ms: -1 is not a whole number in the accepted range at line 1 column 24");
        insta::assert_snapshot!(wrong(json!({"payload": "", "delay_ms": 1, "at": "x"})), @"items[0]: it has both delay_ms and at; leave one out");
        insta::assert_snapshot!(wrong(json!({"payload": "", "delay_ms": u64::MAX})), @"items[0]: delay_ms is 18446744073709551615, at most 315360000000 are possible");
        insta::assert_snapshot!(wrong(json!({"payload": "", "at": "tomorrow"})), @r#"items[0]: at is "tomorrow", which is not a time; write it as in "2030-01-31T08:00:00Z""#);
        insta::assert_snapshot!(wrong(json!({"payload": "", "attributes": {"k": 1}})), @"the body at items[0].attributes.k: invalid type: integer `1`, expected a string at line 1 column 30");
        insta::assert_snapshot!(wrong(json!({"payload": {"to": "ann"}})), @"the body at items[0].payload: invalid type: map, expected a string; the field payload_json takes any JSON at line 1 column 21");
        insta::assert_snapshot!(wrong(json!({"playload": ""})), @"the body at items[0].playload: unknown field `playload`, expected one of `payload`, `payload_base64`, `payload_json`, `attributes`, `content_type`, `trace_parent`, `unique`, `unique_base64`, `unique_for_ms`, `replace`, `delay_ms`, `at`, `ttl_ms`, `priority`, `key`, `key_base64`, `batch` at line 1 column 21");
        insta::assert_snapshot!(items(&json!({"items": []})).unwrap_err(), @"there are no items; push 1 to 1000 at a time");
        let many = |entry: &Value, count| items(&json!({ "items": vec![entry; count] }));
        insta::assert_snapshot!(many(&json!({}), 1_001).unwrap_err(), @"the body at items: there are more than 1000 items; push in several requests at line 1 column 3013");
        let attributes = |count: u32| -> Value {
            let all: serde_json::Map<_, _> = (0..count).map(|it| (it.to_string(), json!(""))).collect();
            json!({ "payload": "", "attributes": all })
        };
        insta::assert_snapshot!(item(&attributes(2_049)).unwrap_err(), @"the body at items[0].attributes: an item has more than 2048 attributes; put them into its payload at line 1 column 19405");
        insta::assert_snapshot!(many(&attributes(501), 20).unwrap_err(), @"the body at items: there are more than 10000 attributes; push in several requests at line 1 column 88590");
        assert_eq!(many(&attributes(500), 20).unwrap().len(), 20);
        insta::assert_snapshot!(items(&json!([])).unwrap_err(), @"the body: invalid type: sequence, expected an object at line 1 column 0");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(body: Vec<u8>) {
            if let Ok(pushed) = parse::<PushBody>(&body) {
                drop(pushed.items(from_millis(0), None));
            }
        }

        #[test]
        fn any_payload_passes_through_base64(payload: Vec<u8>) {
            let entry = json!({"payload_base64": BASE64_STANDARD.encode(&payload)});
            prop_assert_eq!(item(&entry).unwrap().payload, payload);
        }
    }
}
