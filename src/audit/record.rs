//! One record, and its text for people.

use std::{
    fmt::{self, Write},
    time::SystemTime,
};

use kvqueue_queue::{ItemId, millis};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Action;
use crate::base::{
    clock,
    json::{insert_bytes, time},
    text::visible,
    times::{self, unix_millis},
};

/// The most bytes of a text in a record. Longer ones are cut.
const LONGEST_TEXT: usize = 500;

/// The most ids of items in a record, in addition to their number.
const MOST_IDS: usize = 20;

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Who {
    /// A client with this access token.
    Token { name: String },
    /// A client with the operator's secret.
    Operator,
    /// A user of a machine who ran a command, which changed the database itself.
    Local {
        uid: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A client of a daemon that asks for no secret.
    Anyone,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { name } => write!(f, "token {}", visible(name)),
            Self::Operator => f.write_str("operator"),
            Self::Local { uid, name: Some(name) } => write!(f, "local user {} (uid {uid})", visible(name)),
            Self::Local { uid, name: None } => write!(f, "local user with uid {uid}"),
            Self::Anyone => f.write_str("anyone"),
        }
    }
}

/// A record: who did what with which queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Random. A transaction that is repeated after an unknown outcome may write the record again, with the same id.
    pub(super) id: String,
    /// When, by the clock of the process that made the change.
    #[serde(with = "unix_millis")]
    pub(super) at: SystemTime,
    /// The code of an [`Action`], or of one that a newer version knows.
    action: String,
    who: Who,
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The queue's name: `queue`, or `queue_base64` if it is not UTF-8.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The key of the rest that has an action's details.
const DETAILS: &str = "details";

impl Record {
    /// A record of a change that is made now.
    pub(crate) fn new(action: Action, who: Who) -> Self {
        Self {
            id: Uuid::now_v7().simple().to_string(),
            at: clock::now(),
            action: action.as_str().to_owned(),
            who,
            address: None,
            rest: Map::new(),
        }
    }

    /// The same from so long ago.
    #[cfg(test)]
    pub(crate) fn ago(self, span: std::time::Duration) -> Self {
        Self { at: times::before(self.at, span), ..self }
    }

    /// The same with the address that the request came from.
    pub(crate) fn with_address(self, address: Option<String>) -> Self {
        Self { address, ..self }
    }

    /// The same about a queue.
    pub(crate) fn about(mut self, queue: &[u8]) -> Self {
        insert_bytes(&mut self.rest, "queue", queue);
        self
    }

    /// The same with a detail. A long text is cut, and `false` is left out.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::Bool(false) => return self,
            Value::String(text) => Value::String(cut(text)),
            value => value,
        };
        self.details_mut().insert(key.to_owned(), value);
        self
    }

    /// The same with all fields of an object as details, `false` too.
    #[cfg(feature = "http")]
    pub(crate) fn with_all(mut self, details: &impl Serialize) -> Self {
        if let Ok(Value::Object(details)) = serde_json::to_value(details) {
            self.details_mut().extend(details);
        }
        self
    }

    /// The same with a name as a detail, which may not be UTF-8.
    pub(crate) fn with_name(mut self, key: &str, name: &[u8]) -> Self {
        insert_bytes(self.details_mut(), key, name);
        self
    }

    /// The same with the items that are meant: their number, and the ids of the first.
    pub(crate) fn with_items(self, ids: &[ItemId]) -> Self {
        let first: Vec<_> = ids.iter().take(MOST_IDS).map(ItemId::to_string).collect();
        self.with("items", ids.len()).with("ids", first)
    }

    /// The same with the details of a move: where the items go, how many of them, and whether they are dead letters.
    pub(crate) fn with_move(self, to: &[u8], limit: Option<usize>, dead: bool) -> Self {
        let record = self.with_name("to", to);
        let record = match limit {
            Some(limit) => record.with("limit", limit),
            None => record.with("all", true),
        };
        record.with("dead", dead)
    }

    fn details_mut(&mut self) -> &mut Map<String, Value> {
        let details = self.rest.entry(DETAILS).or_insert_with(|| json!({}));
        if !details.is_object() {
            *details = json!({});
        }
        details.as_object_mut().expect("it was just made one")
    }

    fn details(&self) -> Option<&Map<String, Value>> {
        self.rest.get(DETAILS)?.as_object()
    }

    /// Who made the change, without the address.
    pub(super) fn actor(&self) -> String {
        self.who.to_string()
    }

    /// The queue's name as it is stored; empty if it is about none.
    pub(super) fn queue(&self) -> String {
        let name = ["queue", "queue_base64"].into_iter().find_map(|key| self.rest.get(key)?.as_str());
        name.unwrap_or_default().to_owned()
    }

    /// Whether it is about this queue, or about items that go to it.
    pub(super) fn concerns(&self, queue: &[u8]) -> bool {
        let mut name = Map::new();
        insert_bytes(&mut name, "queue", queue);
        insert_bytes(&mut name, "to", queue);
        let has = |object: &Map<String, Value>, key: &str| {
            name.get(key).is_some_and(|name| object.get(key) == Some(name))
        };
        let is_in = |object: &Map<String, Value>, key: &str| {
            has(object, key) || has(object, &format!("{key}_base64"))
        };
        is_in(&self.rest, "queue") || self.details().is_some_and(|details| is_in(details, "to"))
    }

    /// For programs: as it is stored, with the time as a text.
    pub(crate) fn json(&self) -> Value {
        let mut object = Map::new();
        let at = json!(time(self.at));
        let fields =
            [("at", at), ("action", json!(self.action)), ("who", json!(self.who)), ("id", json!(self.id))];
        object.extend(fields.map(|(key, value)| (key.to_owned(), value)));
        if let Some(address) = &self.address {
            object.insert("address".to_owned(), address.as_str().into());
        }
        let known = ["queue", "queue_base64", DETAILS];
        let rest = self.rest.iter().filter(|(key, _)| known.contains(&key.as_str()));
        object.extend(rest.map(|(key, value)| (key.clone(), value.clone())));
        Value::Object(object)
    }

    /// The record that [`Self::json`] has made an object of.
    pub(crate) fn of_json(mut object: Value) -> Result<Self, String> {
        let at = object["at"].as_str().and_then(times::parse);
        object["at"] = at.map(millis).ok_or("a record has no time")?.into();
        serde_json::from_value(object).map_err(|error| error.to_string())
    }

    /// For people: one line, in which names cannot pass for other parts of it.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{} {}", time(self.at), visible(&self.action));
        let queue = ["queue", "queue_base64"].iter().find_map(|key| Some((*key, self.rest.get(*key)?)));
        // Writing to a text does not fail.
        match queue {
            Some(("queue", name)) => drop(write!(line, " {}", quoted(name))),
            Some((key, name)) => drop(write!(line, " {key}={}", quoted(name))),
            None => {}
        }
        let _ = write!(line, " by {}", self.who);
        if let Some(address) = &self.address {
            let _ = write!(line, " at {}", visible(address));
        }
        for (index, (key, value)) in self.details().into_iter().flatten().enumerate() {
            let before = if index == 0 { ": " } else { ", " };
            let _ = write!(line, "{before}{}={}", visible(key), quoted(value));
        }
        line
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        text.push('…');
    }
    text
}

/// A value as JSON writes it, so a text is between quotes.
fn quoted(value: &Value) -> String {
    visible(&value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let who = Who::Token { name: "ci".to_owned() };
        Record { at: kvqueue_queue::from_millis(1_700_000_000_000), ..Record::new(Action::OF_A_TEST, who) }
    }

    #[test]
    fn a_line_says_who_did_what_when_and_where() {
        let it = record().with_address(Some("127.0.0.1:5".to_owned())).about(b"mail").with("reason", "down");
        assert_eq!(
            it.line(),
            r#"2023-11-14T22:13:20.000Z queue.pause "mail" by token ci at 127.0.0.1:5: reason="down""#
        );
        let it = Record::new(Action::DAEMON_RELOAD, Who::Local { uid: 7, name: None });
        assert!(it.line().ends_with(" daemon.reload by local user with uid 7"), "{}", it.line());
        let raw = record().about(b"\xff").line();
        assert!(raw.contains(r#" queue_base64="/w==" by "#), "{raw}");
    }

    #[test]
    fn names_cannot_forge_a_record() {
        let evil = "a\" by operator\n2023-11-14T22:13:20.000Z queue.delete\u{202e}\u{1b}[2K\u{85}\u{2028}";
        let it = record().about(evil.as_bytes()).with("reason", evil).with(evil, true);
        let it = Record { who: Who::Token { name: evil.to_owned() }, ..it };
        let it = it.with_address(Some(evil.to_owned()));
        let line = it.line();
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}' && c != '\u{2028}'), "{line:?}");
        assert!(line.contains(r#"queue.pause "a\" by operator\n2023"#), "{line}");
    }

    #[test]
    fn stored_records_are_read_back_and_long_texts_are_cut() {
        let it = record().about(b"q").with("reason", "ä".repeat(400)).with_items(&vec![id(); 30]);
        let stored = serde_json::to_vec(&it).unwrap();
        assert!(stored.len() < 2_000, "{}", stored.len());
        assert_eq!(serde_json::from_slice::<Record>(&stored).unwrap(), it);
        let details = &it.json()["details"];
        assert_eq!((&details["items"], details["ids"].as_array().unwrap().len()), (&json!(30), MOST_IDS));
        assert_eq!(details["reason"].as_str().unwrap().chars().count(), 251);
    }

    fn id() -> ItemId {
        "00000000000000000001".repeat(2)[..24].parse().unwrap()
    }

    #[test]
    fn a_record_concerns_the_queue_and_where_its_items_go() {
        let it = record().about(b"from").with_name("to", b"\xff");
        assert_eq!(["from", "to"].map(|name| it.concerns(name.as_bytes())), [true, false]);
        assert!(it.concerns(b"\xff") && !record().concerns(b"from"));
    }
}
