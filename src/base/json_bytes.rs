//! Bytes in JSON: as text, or in base 64.

use base64::{Engine, prelude::BASE64_STANDARD};
#[cfg(any(feature = "http", test))]
use kvqueue_queue::Item;
use serde_json::{Map, Value, json};

/// A payload that is longer than this many times its bytes as an escaped text is given in base 64.
pub(crate) const MOST_ESCAPED: usize = 2;

/// Adds a name or a key under `key` if it is UTF-8, in base 64 under `key_base64` if not.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    insert(object, key, bytes, std::str::from_utf8(bytes).ok());
}

/// The same for a payload or a result, which may be long: it is also in base 64 if it were more than twice as long as text.
pub(crate) fn insert_payload(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    insert(object, key, bytes, payload_text(bytes));
}

fn insert(object: &mut Map<String, Value>, key: &str, bytes: &[u8], text: Option<&str>) {
    match text {
        Some(text) => object.insert(key.to_owned(), json!(text)),
        None => object.insert(format!("{key}_base64"), json!(BASE64_STANDARD.encode(bytes))),
    };
}

/// The text that a payload is given as. None: it is given in base 64.
pub(crate) fn payload_text(payload: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(payload).ok()?;
    // Nothing else takes more than two bytes. Most payloads have none, and this reads many bytes at once.
    if !payload.iter().fold(false, |found, byte| found | (*byte < b' ')) {
        return Some(text);
    }
    let escaped = payload.iter().map(|byte| match byte {
        b'"' | b'\\' | b'\x08' | b'\t' | b'\n' | b'\x0c' | b'\r' => 2,
        ..b' ' => 6,
        _ => 1,
    });
    (escaped.sum::<usize>() <= MOST_ESCAPED * payload.len()).then_some(text)
}

/// How many bytes an item for a worker has as JSON, about: not much more than this.
#[cfg(feature = "http")]
pub(crate) fn length_of(item: &Item) -> usize {
    let attributes = item.meta.iter().flat_map(|meta| &meta.attributes);
    let attributes: usize = attributes.map(|(name, value)| name.len() + value.len()).sum();
    // Attributes are always texts, and a control character of theirs takes six bytes.
    MOST_ESCAPED * item.payload.len() + 6 * attributes + 1_024
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::json::LeasedItem;

    proptest! {
        #[test]
        fn a_payload_is_text_if_that_is_at_most_twice_as_long_and_base64_otherwise(
            text in "[a\"\\\\\n\t\u{1}\u{1b}\u{7f}é]{0,20}",
        ) {
            let escaped = serde_json::to_string(&text).unwrap().len() - 2;
            let mut object = Map::new();
            insert_payload(&mut object, "payload", text.as_bytes());
            match escaped <= 2 * text.len() {
                true => assert_eq!(object["payload"], text),
                false => assert_eq!(object["payload_base64"], BASE64_STANDARD.encode(&text)),
            }
            let id = "x01".parse().unwrap();
            let item = Item { id, payload: text.into_bytes().into(), attempt: 1, meta: None };
            let leased = LeasedItem { item, enqueued_at: None, trace_parent: None };
            let leased = serde_json::to_value(&leased).unwrap();
            object.iter().for_each(|(key, value)| assert_eq!(leased[key], *value));
        }
    }
}
