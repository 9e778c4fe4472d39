//! The environment variables that tell a command about its item.

use std::{collections::BTreeMap, time::SystemTime};

use base64::{Engine, prelude::BASE64_STANDARD};
use kvqueue_queue::{Item, Meta, millis};
use tokio::process::Command;

use crate::telemetry::trace_parent;

/// Names the item's trace in the way that tracing tools read it from an environment.
const TRACE_PARENT: &str = "TRACEPARENT";

/// Variables that systemd sets for the daemon alone: systemd would believe a command that used
/// them, or warn.
pub(super) const SYSTEMD: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// They hold a worker's token, and the daemon's secret for its collector of traces.
const SECRETS: [&str; 3] =
    ["KVQUEUE_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

const QUEUE: &str = "KVQUEUE_QUEUE";

/// The variables that are about one item.
const OF_ITEM: [&str; 8] = [
    "KVQUEUE_ITEM",
    "KVQUEUE_KEY",
    "KVQUEUE_KEY_BASE64",
    "KVQUEUE_ATTEMPT",
    "KVQUEUE_ATTRIBUTES",
    "KVQUEUE_CONTENT_TYPE",
    "KVQUEUE_ENQUEUED_AT",
    TRACE_PARENT,
];

/// The variables for an item, each with its value. One without a value is taken out of the
/// environment: what the daemon itself was started with is about something else.
pub(super) fn of(
    queue: &str,
    item: &Item,
    enqueued_at: Option<SystemTime>,
) -> Vec<(&'static str, Option<String>)> {
    let nothing = Meta::default();
    let meta = item.meta.as_deref().unwrap_or(&nothing);
    let (key, key_base64) = match item.id.key().map(String::from_utf8) {
        // A variable cannot contain NUL.
        Some(Ok(text)) if !text.contains('\0') => (Some(text), None),
        Some(Ok(text)) => (None, Some(BASE64_STANDARD.encode(text))),
        Some(Err(error)) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
        None => (None, None),
    };
    vec![
        (QUEUE, Some(queue.to_owned())),
        ("KVQUEUE_ITEM", Some(item.id.to_string())),
        ("KVQUEUE_KEY", key),
        ("KVQUEUE_KEY_BASE64", key_base64),
        ("KVQUEUE_ATTEMPT", Some(item.attempt.to_string())),
        ("KVQUEUE_ATTRIBUTES", Some(json(&meta.attributes))),
        ("KVQUEUE_CONTENT_TYPE", meta.content_type.clone()),
        ("KVQUEUE_ENQUEUED_AT", meta.enqueued_at.or(enqueued_at).map(|at| millis(at).to_string())),
        (TRACE_PARENT, trace_parent(item)),
    ]
}

/// Takes the variables for the daemon alone out of the environment of a command.
pub(super) fn remove_own(command: &mut Command) {
    SYSTEMD.iter().chain(&SECRETS).for_each(|name| _ = command.env_remove(name));
}

/// Puts the queue into the environment of a command for many items.
pub(super) fn set_queue(command: &mut Command, queue: &str) {
    OF_ITEM.iter().for_each(|name| _ = command.env_remove(name));
    command.env(QUEUE, queue);
}

/// Puts them into a command's environment.
pub(super) fn set(command: &mut Command, queue: &str, item: &Item, enqueued_at: Option<SystemTime>) {
    for (name, value) in of(queue, item, enqueued_at) {
        match value {
            // A variable cannot contain NUL. A valid content type or trace has none.
            Some(value) if !value.contains('\0') => command.env(name, value),
            _ => command.env_remove(name),
        };
    }
}

/// One JSON object, since a producer may name its attributes as no variable can be named.
fn json(attributes: &BTreeMap<String, String>) -> String {
    serde_json::to_string(attributes).expect("a map of texts is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::is_reserved;
    use crate::testing::Sample;
    use kvqueue_queue::from_millis;

    fn values(item: &Item) -> Vec<String> {
        of("emails", item, None)
            .into_iter()
            .map(|(name, value)| format!("{name}={}", value.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn an_item_is_described_in_full() {
        let item = Sample::new("hello")
            .attempt(3)
            .attribute("to", "ann")
            .attribute("odd name", "a \"b\"\0")
            .content_type("text/plain")
            .trace_parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .enqueued_at(from_millis(1_700_000_000_000))
            .build();
        insta::assert_snapshot!(values(&item).join("\n"), @r#"
        KVQUEUE_QUEUE=emails
        KVQUEUE_ITEM=000000000000000000000000
        KVQUEUE_KEY=
        KVQUEUE_KEY_BASE64=
        KVQUEUE_ATTEMPT=3
        KVQUEUE_ATTRIBUTES={"odd name":"a \"b\"\u0000","to":"ann"}
        KVQUEUE_CONTENT_TYPE=text/plain
        KVQUEUE_ENQUEUED_AT=1700000000000
        TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
        "#);
    }

    #[test]
    fn trace_parent_is_read_from_an_attribute_if_valid() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let said = values(&Sample::new("").attribute("traceparent", parent).build());
        assert!(said.contains(&format!("TRACEPARENT={parent}")), "{said:?}");
        let said = of("emails", &Sample::new("").trace_parent("none of W3C's").build(), None);
        assert!(said.contains(&(TRACE_PARENT, None)), "{said:?}");
    }

    #[test]
    fn a_key_that_no_variable_can_hold_is_given_in_base_64() {
        let keys = |key: &[u8]| {
            let said = of("emails", &Sample::new("").key(key).build(), None);
            let value = |name: &str| said.iter().find(|(it, _)| *it == name).unwrap().1.clone();
            (value("KVQUEUE_KEY"), value("KVQUEUE_KEY_BASE64"))
        };
        assert_eq!(keys(b"tenant-7"), (Some("tenant-7".to_owned()), None));
        assert_eq!(keys(b""), (Some(String::new()), None));
        assert_eq!(keys(b"a\0"), (None, Some("YQA=".to_owned())));
        assert_eq!(keys(b"\xff"), (None, Some("/w==".to_owned())));
    }

    #[test]
    fn variables_of_unknown_values_are_unset() {
        let said = of("emails", &Sample::new("").build(), None);
        let absent: Vec<_> =
            said.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
        let unset = [
            "KVQUEUE_KEY",
            "KVQUEUE_KEY_BASE64",
            "KVQUEUE_CONTENT_TYPE",
            "KVQUEUE_ENQUEUED_AT",
            TRACE_PARENT,
        ];
        assert_eq!(absent, unset);
        assert!(said.contains(&("KVQUEUE_ATTRIBUTES", Some("{}".to_owned()))));
    }

    #[test]
    fn a_command_for_many_items_gets_the_queue_and_no_item() {
        let names: Vec<_> =
            of("emails", &Sample::new("").build(), None).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [&[QUEUE][..], &OF_ITEM].concat());
        let mut command = Command::new("true");
        set_queue(&mut command, "emails");
        let set: Vec<_> =
            command.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))).collect();
        assert_eq!(set, [(QUEUE.as_ref(), "emails".as_ref())]);
        assert!(command.as_std().get_envs().any(|(name, value)| name == "KVQUEUE_ITEM" && value.is_none()));
    }

    #[test]
    fn item_variables_are_not_settings_of_a_nested_kvqueue() {
        for (name, _) in of("q", &Sample::new("").build(), None) {
            assert!(name == TRACE_PARENT || is_reserved(name), "{name} would be taken for a setting");
        }
    }
}
