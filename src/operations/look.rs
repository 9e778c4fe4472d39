//! Looking at items: those of one state, and one of them, whatever it is doing.

use std::time::Duration;

use bytes::Bytes;
use foundationdb::Transaction;
use jiff::Timestamp;
use kvqueue_queue::{Cursor, EndedItem, ItemId, ItemState, ItemView, MAX_RESULT, Queue, QueueError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Answer, Operation, Page, Refusal, Route, Site, Text, Visit,
    items::{ItemTarget, as_text},
    names::{self, UniqueName},
    object::{JsonObject, Line, MOST, schema, text},
    states::texts,
    target::Target,
    why::Why,
};
use crate::{
    base::{
        deadlines::LONGEST_WAIT,
        json,
        text::{one_line, visible},
    },
    config::duration,
    database::{item_history, item_wait::ItemWait},
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListItems>();
    visit.operation::<ShowItem>();
}

/// List the items of one state: ready, they can be fetched; scheduled, pushed for a later time; retrying, an attempt failed and the next one is
/// due later; running, a worker has them on a lease; dead, nobody tries them any more.
/// Ready items come in the order in which they are fetched, scheduled and retrying ones in the order of their due times, dead letters by id.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListItems {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// Their state.
    #[serde(default, with = "as_text")]
    #[schemars(with = "String", extend("enum" = ItemState::ALL.map(ItemState::as_str)))]
    pub(crate) state: ItemState,
    #[serde(flatten)]
    pub(crate) page: Page,
    /// The most bytes of each payload [default: 1024].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 65536))]
    pub(crate) bytes: Option<usize>,
    /// Only the item that has this unique key, whatever its state; a dead letter has none.
    #[serde(flatten, deserialize_with = "names::optional", skip_serializing_if = "Option::is_none")]
    pub(crate) unique: Option<UniqueName>,
}

/// Show all that is known of an item, whatever it is doing. With `wait_ms`, when it has ended or is a dead letter
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ShowItem {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
    /// How long to wait for the end of the item, in milliseconds. Then the answer has the item as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = LONGEST_WAIT.as_secs() * 1_000))]
    pub(crate) wait_ms: Option<u64>,
}

/// What is known of an item.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Item(JsonObject);

schema!(Item, {
    "oneOf": [
        { "$ref": "#/components/schemas/ItemInState" },
        { "$ref": "#/components/schemas/EndedItem" },
        { "$ref": "#/components/schemas/LeftItem" },
    ],
    "description": "With up to 1 MiB of its payload. One that has ended has none, and is known if the queue keeps a history.",
});

/// Items of one state. Some may be gone a moment later.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Items {
    #[schemars(schema_with = "in_state")]
    pub(crate) items: Vec<Item>,
    /// Where the next page begins. This one may be short, or even empty, and have a next one.
    next: Option<String>,
    /// Leases that cannot be read: damaged, or of a later version of kvqueue.
    unreadable: usize,
}

fn in_state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/components/schemas/ItemInState" } })
}

/// The most characters of a reason in a list of items that have ended. JSON has all of it.
const REASON: usize = 100;

/// The most bytes of each payload on a page, unless a request says it.
const BYTES: usize = 1_024;

/// The state of an item that has ended.
const FINISHED: &str = "finished";

impl Item {
    pub(super) fn of(value: Value) -> Self {
        Self(JsonObject::of(value))
    }

    /// Its cells in a list of items that have ended.
    pub(super) fn ended_cells(&self) -> Vec<String> {
        let took = self.took().unwrap_or_default();
        let reason = one_line(&self.0.cell("reason"), REASON);
        let [ended, id, outcome, attempts] =
            ["ended_at", "id", "outcome", "attempts"].map(|name| self.0.cell(name));
        vec![ended, id, outcome, attempts, took, reason]
    }

    /// One that is still in its queue.
    fn new(view: &ItemView, site: &dyn Site, queue: &Queue, most: usize) -> Self {
        let mut object = JsonObject::of(json::beginning(json::view, view, most));
        let config = site.config();
        let settings = str::from_utf8(queue.name()).ok().and_then(|name| config.queues.get(name));
        if let Some(settings) = settings {
            object.0.insert("max_attempts".to_owned(), settings.retry.max_attempts.into());
        }
        Self(object)
    }

    /// One that was in its queue and has left it, of which no more is known.
    pub(crate) fn left(id: &ItemId) -> Self {
        Self::of(json::left(id))
    }

    pub(crate) fn id(&self) -> Option<ItemId> {
        self.0.text_of("id")?.parse().ok()
    }

    /// Whether it is a dead letter, or has ended.
    pub(crate) fn has_ended(&self) -> bool {
        ["dead", FINISHED].map(Value::from).contains(self.0.get("state"))
    }

    /// What it waits for, or how it has ended.
    pub(crate) fn why(&self) -> String {
        self.0.text_of("why").unwrap_or_else(|| match self.0.text_of("outcome") {
            Some(outcome) => format!("it has ended: {outcome}"),
            None => "it has ended".to_owned(),
        })
    }

    pub(crate) fn payload(&self) -> Option<Vec<u8>> {
        self.0.payload().1
    }

    /// Its cells behind those of its id and its key.
    fn cells(&self, state: ItemState) -> Vec<String> {
        let mut cells: Vec<_> = texts(state).columns.iter().map(|(_, cell)| cell(&self.0)).collect();
        cells.push(match (self.0.text_of("unreadable"), self.payload()) {
            (Some(why), _) => format!("cannot be read: {why}"),
            (None, payload) => {
                let payload = payload.unwrap_or_default();
                // A character has up to four bytes.
                one_line(&String::from_utf8_lossy(&payload[..payload.len().min(4 * MOST)]), MOST)
            }
        });
        cells
    }

    /// All lines of an item in its queue.
    fn lines(&self) -> Vec<Line> {
        let attempts = match self.0.holder().and(self.0.text_of("attempt")) {
            Some(attempt) => ("attempt", format!("{attempt}, under way")),
            None => ("attempts", self.0.text_of("attempts").unwrap_or_else(|| "0".to_owned())),
        };
        let mut lines: Vec<_> = self.0.lines(&[("id", "id"), ("state", "state"), ("why", "why")]).collect();
        lines.push(attempts);
        lines.extend(self.0.lines(&[("due", "due")]));
        lines.extend(self.0.holder().map(|holder| ("worker", holder)));
        let lease = self.0.get("lease");
        lines.extend(
            lease.is_object().then(|| ("lease", format!("{}-{}", text(&lease["session"]), lease["number"]))),
        );
        lines.extend(self.progress());
        lines.extend(self.0.about());
        lines
    }

    /// As in `50 %, halfway, at TIME`.
    fn progress(&self) -> Option<Line> {
        let progress = self.0.get("progress").as_object()?;
        let percent = progress.get("percent").map(|percent| format!("{percent} %, ")).unwrap_or_default();
        let message = progress.get("message").map(|message| format!("{}, ", visible(&text(message))));
        Some(("progress", format!("{percent}{}at {}", message.unwrap_or_default(), text(&progress["at"]))))
    }

    /// All lines of an item that has ended.
    fn ended(&self) -> Vec<Line> {
        let fields = [("id", "id"), ("state", "state"), ("outcome", "outcome"), ("attempts", "attempts")];
        let mut lines: Vec<_> = self.0.lines(&fields).chain(self.0.key()).collect();
        lines.extend(self.0.lines(&[
            ("pushed", "enqueued_at"),
            ("started", "started_at"),
            ("ended", "ended_at"),
        ]));
        lines.extend(self.took().map(|took| ("took", took)));
        lines.extend(self.0.lines(&[("worker", "worker"), ("reason", "reason")]));
        lines.extend(self.0.attributes());
        lines.extend(self.0.text_of("result_bytes").map(|bytes| ("result", format!("{bytes} bytes"))));
        let is_too_long = *self.0.get("result_too_long") == true;
        lines.extend(is_too_long.then(|| ("result", format!("more than {MAX_RESULT} bytes, not kept"))));
        lines
    }

    /// How long its last attempt took.
    fn took(&self) -> Option<String> {
        let time = |field| self.0.text_of(field)?.parse::<Timestamp>().ok();
        let took = time("ended_at")?.duration_since(time("started_at")?);
        Some(duration::format(took.try_into().unwrap_or_default()))
    }
}

impl Answer for Item {
    fn text(&self) -> Text {
        if *self.0.get("state") == FINISHED {
            return Text::Fields(self.ended(), self.0.bytes_of("result"));
        }
        let (length, payload) = self.0.payload();
        Text::Fields(self.lines().into_iter().chain([length]).collect(), payload)
    }

    fn problem(&self) -> Option<String> {
        self.0.problem("item")
    }
}

impl Answer for Items {
    const LIST: Option<&'static str> = Some("items");

    fn text(&self) -> Text {
        let state = self.items.first().and_then(|item| item.0.cell("state").parse().ok()).unwrap_or_default();
        let keyed = self.items.iter().any(|item| item.0.key_cell().is_some());
        let columns = texts(state).columns.iter().map(|(title, _)| *title);
        let columns = ["id"].into_iter().chain(keyed.then_some("key")).chain(columns).chain(["payload"]);
        let rows = self.items.iter().map(|item| {
            let key = keyed.then(|| item.0.key_cell().unwrap_or_default());
            [item.0.cell("id")].into_iter().chain(key).chain(item.cells(state)).collect()
        });
        Text::Table(columns.collect(), rows.collect())
    }

    fn problem(&self) -> Option<String> {
        self.items.iter().find_map(|item| item.0.problem("item").filter(|_| *item.0.get("cut") == true))
    }

    fn note(&self) -> Option<String> {
        (self.unreadable > 0).then(|| {
            format!("leases that cannot be read: {}; `kvqueue doctor` checks the database", self.unreadable)
        })
    }
}

/// Items with what this place knows of their holders.
fn items(views: &[ItemView], site: &dyn Site, queue: &Queue, most: usize) -> Vec<Item> {
    let holders = views.iter().any(|view| view.lease.is_some()).then(|| site.holders(queue.name()));
    let item = |view| {
        let Item(mut object) = Item::new(view, site, queue, most);
        object.0.extend(holders.as_ref().map(|holders| holders(view)).unwrap_or_default());
        Item(object)
    };
    views.iter().map(item).collect()
}

impl ListItems {
    fn after(&self) -> Result<Option<Cursor>, Refusal> {
        let after = self.page.after.as_deref().map(|text| Cursor::parse(self.state, text)).transpose();
        after.map_err(|error| Refusal::bad(format!("after: {error}")))
    }
}

impl Operation for ListItems {
    const ROUTE: Route = {
        const NOTES: &str =
            "`bytes` is the most of each payload. With `unique` the page has one item or none";
        Route::read("/api/v1/queues/{queue}/items").with_notes(NOTES)
    };
    type Answer = Items;

    fn check(&self) -> Result<(), Refusal> {
        self.after().map(drop)
    }

    fn go_on(&mut self, so_far: &Items) -> bool {
        self.page.go_on(so_far.items.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Items> {
        let (queue, after) = (&site.queue(&self.target)?, self.after()?);
        let most = self.bytes.unwrap_or(BYTES).min(site.most_of_payload());
        if let Some(UniqueName(key)) = &self.unique {
            let found = site.transact(async |tr| {
                queue.check_used(tr).await?;
                match queue.unique_item(tr, key).await? {
                    Some(id) => queue.view_item(tr, &id).await,
                    None => Ok(None),
                }
            });
            let items = items(found.await?.as_slice(), site, queue, most);
            return Ok(Items { items, next: None, unreadable: 0 });
        }
        let (after, limit) = (after.as_ref(), self.page.most());
        let page = site.transact(async |tr| {
            // A queue of any kind keeps dead letters alike.
            if self.state != ItemState::Dead {
                queue.check_used(tr).await?;
            }
            queue.view(tr, self.state, after, limit).await
        });
        let page = page.await?;
        if page.items.is_empty() && after.is_none() {
            site.note_if_absent(queue).await?;
        }
        let items = items(&page.items, site, queue, most);
        Ok(Items { items, next: page.next.map(|next| next.to_string()), unreadable: page.unreadable })
    }
}

/// Where an item was found.
enum Found {
    InQueue(Why),
    InHistory(EndedItem, Option<Bytes>),
    Nowhere,
}

impl Found {
    async fn read(queue: &Queue, tr: &Transaction, id: &ItemId) -> Result<Self, QueueError> {
        if let Some(why) = Why::read(queue, tr, id).await? {
            return Ok(Self::InQueue(why));
        }
        let ended = item_history::read(queue, tr, id).await?;
        Ok(ended.map_or(Self::Nowhere, |(item, result)| Self::InHistory(item, result)))
    }
}

impl ShowItem {
    async fn find(&self, site: &dyn Site, queue: &Queue) -> anyhow::Result<Option<Item>> {
        let id = &self.item.id;
        Ok(match site.transact(async |tr| Found::read(queue, tr, id).await).await? {
            Found::InQueue(why) => {
                let views = std::slice::from_ref(&why.view);
                let mut item = items(views, site, queue, site.most_of_payload()).pop();
                if let Some(Item(object)) = &mut item {
                    object.0.extend(why.fields());
                }
                item
            }
            Found::InHistory(item, result) => Some(Item::of(json::ended_with(&item, result.as_deref()))),
            Found::Nowhere => None,
        })
    }
}

impl Operation for ShowItem {
    const ROUTE: Route = {
        const NOTES: &str = "The answer has up to 1 MiB of its payload, and what it waits for (`why`, `waiting`); of one that has ended, what the \
            [history](HISTORY.md) has, and its [result](HISTORY.md#results). [ITEMS.md](ITEMS.md#waiting-for-the-end) has more about \
            waiting";
        Route::read("/api/v1/queues/{queue}/items/{id}").that_waits().with_notes(NOTES)
    };
    type Answer = Item;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Item> {
        let (queue, id) = (&site.queue(&self.item.target)?, &self.item.id);
        let until = Instant::now() + Duration::from_millis(self.wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
        let mut wait = ItemWait::default();
        loop {
            let is_over = match self.wait_ms.unwrap_or(0) {
                0 => true,
                _ => site.wait_for_item((queue, id), &mut wait, until).await?,
            };
            let item = match self.find(site, queue).await? {
                Some(item) => item,
                None if wait.has_seen() => {
                    if !site.transact(async |tr| queue.exists(tr).await).await? {
                        return Err(
                            Refusal::no_queue(&format!("the queue of item {id} was deleted"), "").into()
                        );
                    }
                    Item::left(id)
                }
                None => {
                    site.existing_queue(&self.item.target).await?;
                    let message = format!("queue \"{}\" has no item {id}", self.item.target.queue);
                    return Err(Refusal::not_found(message, "it has ended, or was never there").into());
                }
            };
            // A dead letter may have been made ready meanwhile.
            if is_over || item.has_ended() {
                return Ok(item);
            }
        }
    }
}
