//! The lines that the daemon and a process exchange. `docs/workers/processes.md` has them for people.

use bytes::Bytes;
use kvqueue_queue::{Item, MAX_RESULT};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    base::json::LeasedItem,
    handlers::{Context, OutcomeLine, percent},
};

/// The version of the protocol.
pub(super) const VERSION: u64 = 1;

/// The longest line of a process, in bytes.
pub(super) const MAX_LINE: usize = 1 << 20;

// A line holds the longest result, although JSON can make each byte of it six bytes, and all else that an outcome has.
const _: () = assert!(MAX_LINE >= 6 * MAX_RESULT + (64 << 10));

/// How much of a line that cannot be read is quoted, in characters.
const QUOTED: usize = 100;

/// A line of a process.
#[derive(Debug)]
pub(super) enum WorkerMessage {
    /// It can take items, and speaks this version.
    Ready(u64),
    /// It still works on an item.
    Heartbeat(Heartbeat),
    /// An item's attempt has ended.
    Outcome(OutcomeLine),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ready {
    kvqueue: u64,
}

/// A sign of life of a process that has an item.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Heartbeat {
    /// The item.
    #[serde(rename = "heartbeat")]
    pub(super) id: String,
    /// How much of it is done.
    #[serde(default, deserialize_with = "percent")]
    pub(super) percent: Option<u8>,
    /// What it does now.
    pub(super) message: Option<String>,
}

/// Reads a line of a process. The error is a lower-case fragment for a log or a reason.
pub(super) fn parse(line: &[u8]) -> Result<WorkerMessage, String> {
    let read = || -> serde_json::Result<WorkerMessage> {
        let object: Map<String, Value> = serde_json::from_slice(line)?;
        let (is_ready, is_heartbeat) = (object.contains_key("kvqueue"), object.contains_key("heartbeat"));
        let value = Value::Object(object);
        Ok(if is_ready {
            WorkerMessage::Ready(Ready::deserialize(value)?.kvqueue)
        } else if is_heartbeat {
            WorkerMessage::Heartbeat(Heartbeat::deserialize(value)?)
        } else {
            WorkerMessage::Outcome(OutcomeLine::deserialize(value)?)
        })
    };
    read().map_err(|error| format!("{}: {error}", quoted(line)))
}

/// Reads the beginning of a line that was longer than [`MAX_LINE`]: the outcome of an item, if only its result was too long. Its result is then
/// some other text that is too long.
pub(super) fn parse_cut(line: &[u8]) -> Result<WorkerMessage, String> {
    let too_long = || format!("{}: it is longer than {MAX_LINE} bytes", quoted(line));
    let at = line.windows(7).position(|it| it == b"\"result").ok_or_else(too_long)?;
    let before = line[..at].trim_ascii_end();
    let before = before.strip_suffix(b",").unwrap_or(before);
    match parse(&[before, b"}"].concat()) {
        Ok(WorkerMessage::Outcome(outcome)) => Ok(WorkerMessage::Outcome(outcome.with_long_result())),
        _ => Err(too_long()),
    }
}

/// The beginning of a line, for people.
pub(super) fn quoted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(QUOTED * 4)]);
    format!("{:?}", text.chars().take(QUOTED).collect::<String>())
}

/// The first line to a process.
pub(super) fn hello(queue: &str) -> Bytes {
    line(&json!({ "kvqueue": VERSION, "queue": queue }))
}

/// The line that hands an item to a process.
pub(super) fn item(item: &Item, context: &Context) -> Bytes {
    let limit = context.limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let text = serde_json::to_string(&ItemLine { item: context.leased(item), timeout_ms: limit });
    ended(text.expect("texts and numbers are JSON"))
}

#[derive(Serialize)]
struct ItemLine {
    #[serde(flatten)]
    item: LeasedItem,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

/// The line that asks a process to end an item.
pub(super) fn cancel(id: &str) -> Bytes {
    line(&json!({ "cancel": id }))
}

fn line(value: &Value) -> Bytes {
    ended(value.to_string())
}

/// Makes JSON a line. U+2028 and U+2029 are escaped: Node and others take them for line ends.
fn ended(mut json: String) -> Bytes {
    if json.contains(['\u{2028}', '\u{2029}']) {
        json = json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    }
    json.push('\n');
    json.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::{Engine, prelude::BASE64_STANDARD};
    use kvqueue_queue::{Scope, from_millis};
    use proptest::prelude::*;

    use super::*;
    use crate::{handlers::Outcome, testing::Sample};

    fn context(limit: Option<Duration>) -> Context {
        Context {
            queue: "q".into(),
            consumer: 1,
            deadline: None,
            cancelled: Default::default(),
            transaction: None,
            stop: Default::default(),
            limit,
            runtime: None,
            progress: None,
        }
    }

    #[test]
    fn an_item_is_described_in_full() {
        let sample = Sample::new("hello\n\u{2028}")
            .attempt(3)
            .attribute("to", "ann")
            .content_type("text/plain")
            .trace_parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .enqueued_at(from_millis(1_700_000_000_000))
            .build();
        let line = item(&sample, &context(Some(Duration::from_secs(5))));
        assert!(
            !line.windows(3).any(|bytes| bytes == "\u{2028}".as_bytes()),
            "for Node it would end the line"
        );
        let read: Value = serde_json::from_slice(&line).unwrap();
        let expected = json!({
            "id": "000000000000000000000000",
            "attempt": 3,
            "payload": "hello\n\u{2028}",
            "attributes": { "to": "ann" },
            "content_type": "text/plain",
            "trace_parent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "enqueued_at": "2023-11-14T22:13:20.000Z",
            "timeout_ms": 5000,
        });
        assert_eq!(read, expected);
        let bare = item(&Sample::new("x").build(), &context(None));
        assert_eq!(bare.as_ref(), b"{\"id\":\"000000000000000000000000\",\"payload\":\"x\",\"attempt\":1}\n");
        assert_eq!(hello("q\"").as_ref(), b"{\"kvqueue\":1,\"queue\":\"q\\\"\"}\n");
        assert_eq!(cancel("a").as_ref(), b"{\"cancel\":\"a\"}\n");
    }

    #[test]
    fn lines_that_are_not_of_the_protocol_are_quoted_with_the_reason() {
        let problem = |line: &str| parse(line.as_bytes()).unwrap_err();
        insta::assert_snapshot!(problem("hello"), @r#""hello": expected value at line 1 column 1"#);
        insta::assert_snapshot!(problem(""), @r#""": EOF while parsing a value at line 1 column 0"#);
        insta::assert_snapshot!(problem("[1]"), @r#""[1]": invalid type: sequence, expected a map at line 1 column 0"#);
        insta::assert_snapshot!(problem(r#"{"id": "a"}"#), @r#""{\"id\": \"a\"}": missing field `outcome`"#);
        insta::assert_snapshot!(problem(r#"{"kvqueue": 1, "more": 2}"#), @r#""{\"kvqueue\": 1, \"more\": 2}": unknown field `more`, expected `kvqueue`"#);
        assert!(problem(&"x".repeat(1_000)).len() < 200);
    }

    proptest! {
        #[test]
        fn an_outcome_is_read_as_it_was_written(id: String, reason: String, after in 0..1_000_000u64, word in 0..5usize) {
            let written = match word {
                0 => json!({ "id": id, "outcome": "done" }),
                1 => json!({ "id": id, "outcome": "retry", "after_ms": after, "reason": reason }),
                2 => json!({ "id": id, "outcome": "release" }),
                3 => json!({ "id": id, "outcome": "throttle", "scope": "tenant", "after_ms": after, "reason": reason }),
                _ => json!({ "id": id, "outcome": "dead", "reason": reason }),
            };
            let Ok(WorkerMessage::Outcome(read)) = parse(written.to_string().as_bytes()) else {
                panic!("{written} is an outcome")
            };
            prop_assert_eq!(&read.id, &id);
            let expected = match word {
                0 => Outcome::Done,
                1 => Outcome::RetryAfter(Duration::from_millis(after), reason),
                2 => Outcome::Release,
                3 => Outcome::throttle(Scope::Tenant, Duration::from_millis(after), reason),
                _ => Outcome::Dead(reason),
            };
            prop_assert_eq!(read.outcome(), Ok(expected));
        }

        #[test]
        fn an_item_is_one_line_that_has_its_payload(payload: Vec<u8>) {
            let line = item(&Sample::new(payload.clone()).build(), &context(None));
            prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
            let read: Value = serde_json::from_slice(&line).unwrap();
            let found = match read.get("payload_base64") {
                Some(text) => BASE64_STANDARD.decode(text.as_str().unwrap()).unwrap(),
                None => read["payload"].as_str().unwrap().as_bytes().to_vec(),
            };
            prop_assert_eq!(found, payload);
        }

        #[test]
        fn any_bytes_are_a_line_or_a_problem(line: Vec<u8>) {
            if let Err(problem) = parse(&line) {
                prop_assert!(!problem.is_empty());
            }
        }
    }

    #[test]
    fn of_a_line_that_is_too_long_the_outcome_counts_if_the_result_comes_last() {
        let long = "x".repeat(MAX_LINE);
        for name in ["result", "result_base64"] {
            let line = format!(r#"{{"id":"00", "outcome":"done", "{name}":"{long}"}}"#);
            let Ok(WorkerMessage::Outcome(outcome)) = parse_cut(&line.as_bytes()[..MAX_LINE]) else {
                panic!("{name}: not an outcome")
            };
            assert_eq!(outcome.id, "00");
            let Ok(Outcome::DoneWith(result)) = outcome.outcome() else { panic!("{name}: it is done") };
            assert!(result.len() > MAX_RESULT);
        }
        // As of a line that is not too long.
        let line = format!(r#"{{"id":"00","outcome":"retry","result":"{long}"}}"#);
        let Ok(WorkerMessage::Outcome(outcome)) = parse_cut(&line.as_bytes()[..MAX_LINE]) else {
            panic!("not an outcome")
        };
        assert_eq!(outcome.outcome(), Err("a result is for the outcome done".to_owned()));
        for line in [
            format!(r#"{{"id":"00","outcome":"{long}"}}"#),
            format!(r#"{{"result":"{long}","id":"00"}}"#),
            long,
        ] {
            assert!(
                parse_cut(&line.as_bytes()[..MAX_LINE]).unwrap_err().contains("longer than 1048576 bytes")
            );
        }
    }
}
