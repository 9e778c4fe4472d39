//! One message of the journal's native protocol: lines of `NAME=value`; or, where the value has lines itself, the name on a line, the
//! length in 8 bytes, little endian, and the value (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>).

use std::borrow::Cow;

use serde_json::Value;
use tracing::{Level, Metadata};

use crate::telemetry::structured::Fields;

/// The longest value in bytes. Of a longer one the beginning is kept, with a mark.
const LONGEST: usize = 16 << 10;

/// The message of one event.
pub(super) struct Message {
    fields: Vec<(String, String)>,
}

impl Message {
    pub(super) fn of(about: &Metadata<'_>, mut fields: Fields) -> Self {
        let mut message = fields.take("message").map_or_else(String::new, text);
        // The name of the innermost span says nothing that its fields do not say.
        fields.take("span");
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name, text(value.clone()))).collect();
        for (name, value) in &fields {
            let (name, value) = (*name, cut(value));
            let special = |it: char| it == ' ' || it == '"' || it.is_control();
            let quoted = value.is_empty() || value.contains(special);
            message += &match name {
                "event" if !quoted => format!(" [{value}]"),
                _ if quoted => format!(" {name}={value:?}"),
                _ => format!(" {name}={value}"),
            };
        }
        let ours = [
            ("MESSAGE", message.trim_start().to_owned()),
            ("PRIORITY", priority(about.level()).to_owned()),
            ("SYSLOG_IDENTIFIER", env!("CARGO_PKG_NAME").to_owned()),
            ("TARGET", about.target().to_owned()),
        ];
        let mut all: Vec<_> = ours.map(|(name, value)| (name.to_owned(), value)).into();
        all.extend(about.file().map(|file| ("CODE_FILE".to_owned(), file.to_owned())));
        all.extend(about.line().map(|line| ("CODE_LINE".to_owned(), line.to_string())));
        for (name, value) in fields {
            let name = name_of(name);
            // The protocol, or systemd, has a meaning for some names.
            if !name.is_empty() && !all.iter().any(|(known, _)| *known == name) {
                all.push((name, value));
            }
        }
        Self { fields: all }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in &self.fields {
            let value = cut(value);
            bytes.extend_from_slice(name.as_bytes());
            if value.contains('\n') {
                bytes.push(b'\n');
                bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
            } else {
                bytes.push(b'=');
            }
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(b'\n');
        }
        bytes
    }
}

/// The value without the quotes that JSON puts around a text.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        value => value.to_string(),
    }
}

/// The priorities of syslog.
fn priority(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// The journal's name for a field: capitals, digits and underscores, and no underscore first.
fn name_of(field: &str) -> String {
    if field == "event" {
        return "KVQUEUE_EVENT".to_owned();
    }
    let allowed = |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_uppercase() } else { '_' };
    let name: String = field.chars().map(allowed).collect();
    name.trim_start_matches(|char: char| !char.is_ascii_alphabetic()).to_owned()
}

fn cut(value: &str) -> Cow<'_, str> {
    if value.len() <= LONGEST {
        return value.into();
    }
    let kept = &value[..value.floor_char_boundary(LONGEST)];
    format!("{kept}... [{} bytes in all]", value.len()).into()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Event;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::telemetry::structured::{Format, Gathered};

    /// Keeps the messages of events.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Format for Memory {
        fn write(&self, event: &Event<'_>, fields: Fields) {
            self.0.lock().unwrap().extend(Message::of(event.metadata(), fields).encode());
        }
    }

    #[test]
    fn a_journal_message_has_the_fields_of_event_and_span() {
        let memory = Memory::default();
        let subscriber = tracing_subscriber::registry().with(Gathered(memory.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("item", queue = "two words");
            span.in_scope(|| tracing::warn!(event = "lease_lost", items = 2, "lease lost"));
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        let start = "MESSAGE=lease lost [lease_lost] items=2 queue=\"two words\"\nPRIORITY=4\n";
        assert!(text.starts_with(start), "{text}");
        assert!(text.ends_with("\nKVQUEUE_EVENT=lease_lost\nITEMS=2\nQUEUE=two words\n"), "{text}");
        assert!(!text.contains("SPAN"), "{text}");
    }

    #[test]
    fn field_names_are_converted_to_journal_names() {
        assert_eq!(name_of("event"), "KVQUEUE_EVENT");
        assert_eq!(name_of("otel.status_code"), "OTEL_STATUS_CODE");
        assert_eq!((name_of("_pid").as_str(), name_of("0").as_str()), ("PID", ""));
    }

    #[test]
    fn multi_line_values_are_encoded_with_their_length() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let message = Message { fields: vec![field("A", "b"), field("C", "d\ne")] };
        assert_eq!(message.encode(), b"A=b\nC\n\x03\0\0\0\0\0\0\0d\ne\n");
    }

    #[test]
    fn long_journal_values_are_cut_between_characters_and_marked() {
        let long = format!("a{}", "ä".repeat(LONGEST));
        let kept = cut(&long);
        let mark = "ä... [32769 bytes in all]";
        assert!(kept.ends_with(mark) && kept.len() == LONGEST - 1 + mark.len() - 2, "{}", kept.len());
        assert_eq!(cut("short"), "short");
    }
}
