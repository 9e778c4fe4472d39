//! Dead letters: their list, and one of them.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD};
use kvqueue_queue::ItemId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Answer, Operation, Page, Refusal, Route, Site, Text, items::ItemTarget, target::Target};
use crate::{
    json,
    text::{one_line, visible},
};

/// List the dead letters of a queue, without their payloads
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListLetters {
    #[serde(flatten)]
    pub(crate) target: Target,
    #[serde(flatten)]
    pub(crate) page: Page,
}

/// Show all that is known of a dead letter
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ShowLetter {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
}

/// A dead letter, as [`json::letter`] has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Letter(Map<String, Value>);

impl JsonSchema for Letter {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Letter".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "$ref": "#/components/schemas/Letter", "description": "A dead letter, with up to 1 MiB of its payload." })
    }
}

/// The most characters of a reason in a table. All of it is in the letter.
const REASON: usize = 200;

/// The most characters of a key in a table.
const KEY: usize = 40;

impl Letter {
    fn of(value: Value) -> Self {
        match value {
            Value::Object(object) => Self(object),
            _ => Self(Map::new()),
        }
    }

    /// A field as a text.
    fn text_of(&self, field: &str) -> Option<String> {
        Some(text(self.0.get(field)?))
    }

    /// The bytes of a field that is a text, or in base 64 under another name.
    fn bytes_of(&self, field: &str) -> Option<Vec<u8>> {
        match self.0.get(field).and_then(Value::as_str) {
            Some(text) => Some(text.as_bytes().to_vec()),
            None => BASE64_STANDARD.decode(self.0.get(&format!("{field}_base64"))?.as_str()?).ok(),
        }
    }

    fn cells(&self, keyed: bool) -> Vec<String> {
        let field = |name| self.text_of(name).unwrap_or_default();
        let key = self.bytes_of("key").unwrap_or_default();
        let key = keyed.then(|| one_line(&String::from_utf8_lossy(&key), KEY));
        let rest = [field("died_at"), field("attempts"), one_line(&field("reason"), REASON)];
        [field("id")].into_iter().chain(key).chain(rest).collect()
    }

    /// How its attempts ended.
    fn failures(&self) -> impl Iterator<Item = String> {
        self.0.get("failures").and_then(Value::as_array).into_iter().flatten().map(|it| {
            let attempt = match it["attempt"].as_u64() {
                Some(0) | None => "no attempt".to_owned(),
                Some(number) => format!("attempt {number}"),
            };
            let before = if it["before_retry"] == true { ", before it was retried," } else { "" };
            format!("{attempt}{before} at {}: {}", text(&it["at"]), text(&it["reason"]))
        })
    }
}

/// A value as a text: a string without its quotation marks.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Answer for Letter {
    fn text(&self) -> Text {
        let mut lines = Vec::new();
        let fields = [("id", "id"), ("died", "died_at"), ("reason", "reason"), ("attempts", "attempts")];
        lines.extend(fields.iter().filter_map(|(name, field)| Some((*name, self.text_of(field)?))));
        lines.extend(self.text_of("crashes").filter(|crashes| crashes != "0").map(|it| ("crashes", it)));
        lines.extend(self.failures().map(|failure| ("failure", failure)));
        let bytes = |field| Some(self.bytes_of(field)?.escape_ascii().to_string());
        lines.extend(bytes("key").map(|key| ("key", key)));
        lines.extend(self.text_of("enqueued_at").map(|at| ("pushed", at)));
        let attributes = self.0.get("attributes").and_then(Value::as_object);
        lines.extend(
            attributes
                .into_iter()
                .flatten()
                .map(|(name, value)| ("attribute", format!("{name}={}", text(value)))),
        );
        let fields =
            [("content type", "content_type"), ("trace parent", "trace_parent"), ("expires", "expires_at")];
        lines.extend(fields.iter().filter_map(|(name, field)| Some((*name, self.text_of(field)?))));
        lines.extend(bytes("unique").map(|key| ("unique key", key)));
        lines.extend(self.text_of("unique_until").map(|at| ("unique until", at)));
        let batches = self.0.get("batches").and_then(Value::as_array);
        lines.extend(batches.into_iter().flatten().map(|batch| ("batch", text(batch))));
        Text::Item(lines, self.bytes_of("payload"))
    }

    fn problem(&self) -> Option<String> {
        let id = self.text_of("id")?;
        if let Some(why) = self.text_of("unreadable") {
            return Some(format!("cannot show the payload of dead letter {id}: {why}"));
        }
        let is_cut = self.0.get("cut") == Some(&true.into());
        is_cut.then(|| {
            format!(
                "the payload of dead letter {id} has {} bytes, of which a daemon gives the first",
                text(&self.0["bytes"])
            )
        })
    }
}

/// Dead letters, in the order of their ids; if these are all, the oldest death comes first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Letters {
    letters: Vec<Letter>,
    /// The id behind which the next page begins.
    next: Option<String>,
}

impl Answer for Letters {
    const LIST: Option<&'static str> = Some("letters");

    fn text(&self) -> Text {
        let keyed = self.letters.iter().any(|letter| letter.bytes_of("key").is_some());
        let columns: &[&str] = match keyed {
            true => &["id", "key", "died", "attempts", "reason"],
            false => &["id", "died", "attempts", "reason"],
        };
        Text::Table(columns, self.letters.iter().map(|letter| letter.cells(keyed)).collect())
    }
}

impl Operation for ListLetters {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/dead");
    type Answer = Letters;

    fn go_on(&mut self, so_far: &Letters) -> bool {
        self.page.go_on(so_far.letters.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Letters> {
        let queue = &site.queue_to_read(&self.target).await?;
        let after = self.page.after.as_deref().map(str::parse::<ItemId>).transpose();
        let after = after.map_err(|error| Refusal::bad(format!("after: {error}")))?;
        // One more than wanted tells whether there are more.
        let (most, after) = (self.page.most(), after.as_ref());
        let limit = most.saturating_add(1);
        let mut letters = site.transact(async |tr| queue.dead_list(tr, after, limit).await).await?;
        let is_more = letters.len() > most.get();
        letters.truncate(most.get());
        let next = letters.last().filter(|_| is_more).map(|letter| letter.id.to_string());
        if after.is_none() && !is_more {
            letters.sort_by_key(|letter| letter.died_at);
        }
        if after.is_none() && letters.is_empty() {
            // Who misses an item among the dead letters may look for one that is to be tried again.
            let waiting = site.transact(async |tr| queue.counts(tr).await).await?.waiting;
            if waiting > 0 {
                let name = &self.target.queue;
                site.note(&format!(
                    "no dead letters; {waiting} waiting for a retry or their time: kvqueue peek {name} --state retrying"
                ));
            }
        }
        Ok(Letters { letters: letters.iter().map(json::letter).map(Letter::of).collect(), next })
    }
}

impl Operation for ShowLetter {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/dead/{id}");
    type Answer = Letter;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Letter> {
        let (queue, id) = (&site.queue_to_read(&self.item.target).await?, &self.item.id);
        let found = site.transact(async |tr| queue.dead_get(tr, id).await).await?;
        let Some(letter) = found else {
            let name = visible(&String::from_utf8_lossy(queue.name()));
            let message = format!("queue \"{name}\" has no dead letter {id}");
            return Err(Refusal::not_found(message, "`kvqueue item show` says where the item is").into());
        };
        Ok(Letter::of(json::beginning(json::letter, &letter, site.most_of_payload())))
    }
}
