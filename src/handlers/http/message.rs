//! What is posted: the body and the headers of a request.

use std::fmt::Write;

use bytes::Bytes;
use kvqueue_queue::{Item, millis};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{base::json::LeasedItem, handlers::Context, telemetry::trace_parent};

/// In a header, a queue's name and a key have these characters and all that are not ASCII percent-encoded.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b' ');

/// The most bytes of the attributes in a header. Common servers refuse lines of 8 KiB, some with 400.
const MOST_ATTRIBUTES: usize = 4 << 10;

/// The type of a payload whose producer named none.
const UNKNOWN: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A request's body, its headers, and the id that it keeps when it is sent again.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Message {
    /// One item: its payload is the body.
    pub(super) fn of_item(item: &Item, context: &Context) -> Self {
        let meta = item.meta.as_deref();
        let mut headers = HeaderMap::new();
        let content_type = meta.and_then(|meta| HeaderValue::from_str(meta.content_type.as_deref()?).ok());
        headers.insert(CONTENT_TYPE, content_type.unwrap_or(UNKNOWN));
        insert(&mut headers, "kvqueue-queue", &encoded(&context.queue));
        insert(&mut headers, "kvqueue-item", &item.id.to_string());
        if let Some(key) = item.id.key() {
            insert(&mut headers, "kvqueue-key", &percent_encode(&key, ENCODED).to_string());
        }
        insert(&mut headers, "kvqueue-attempt", &item.attempt.to_string());
        let attributes = ascii(&meta.map_or_else(|| json!({}), |meta| json!(meta.attributes)));
        match attributes.len() {
            ..=MOST_ATTRIBUTES => insert(&mut headers, "kvqueue-attributes", &attributes),
            length => insert(&mut headers, "kvqueue-attributes-omitted", &length.to_string()),
        }
        if let Some(at) = context.enqueued_at(item).map(millis) {
            insert(&mut headers, "kvqueue-enqueued-at", &at.to_string());
        }
        if let Some(parent) = trace_parent(item) {
            insert(&mut headers, "traceparent", &parent);
        }
        Self { id: item.id.to_string(), headers, body: item.payload.clone() }
    }

    /// All items of a fetch: the body is a JSON object.
    pub(super) fn of_batch(items: &[Item], context: &Context) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        insert(&mut headers, "kvqueue-queue", &encoded(&context.queue));
        let items = items.iter().map(|item| context.leased(item)).collect();
        let body = serde_json::to_string(&Batch { queue: &context.queue, items });
        let body = body.expect("texts and numbers are JSON").into();
        // A batch that is retried has other items than before, so its id is a new one.
        Self { id: Uuid::now_v7().to_string(), headers, body }
    }
}

/// The body of a request with all items of a fetch.
#[derive(Serialize)]
struct Batch<'q> {
    queue: &'q str,
    items: Vec<LeasedItem>,
}

/// Adds a header. Its value was made of characters that headers may have.
fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// JSON in ASCII: other characters are escaped as `\uXXXX`, in UTF-16. So any text can stand in a
/// header.
fn ascii(value: &Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        if matches!(character, ' '..='~') {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a text does not fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_attributes_fit_into_a_header() {
        let odd = json!({ "odd name": "a \"b\"\0\r\n", "Größe": "€ \u{1f600}\u{7f}" });
        let text = ascii(&odd);
        assert!(HeaderValue::from_str(&text).is_ok() && text.is_ascii(), "{text}");
        assert!(text.contains("\\ud83d\\ude00") && text.contains("\\u007f"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), odd);
    }

    #[test]
    fn any_name_of_a_queue_fits_into_a_header() {
        assert_eq!(encoded("orders-eu.1"), "orders-eu.1");
        assert_eq!(encoded("50% off\n€"), "50%25%20off%0A%E2%82%AC");
    }
}
