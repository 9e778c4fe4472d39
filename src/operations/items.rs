//! Changes of items: of one by its id, or of all that match. A change of many works in pages, and stops at the end of its site's time; the next
//! request goes on.

use std::{
    slice,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use foundationdb::Database;
use kvqueue_queue::{
    CancelFilter, Canceller, Counts, ItemChange, ItemId, ItemState, Queue, RetryError, RetryPolicy,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{
    Answer, Method, Operation, Refusal, Route, Site, Text, Visit, is_false,
    names::{self, KeyName, Payload, QueueName},
    states::{Change, cancelled_at_once},
    target::Target,
    times,
};
use crate::{
    audit::{Action, Record},
    base::{clock::now, json::time, text::items_of},
    config::QueueConfig,
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<DeleteItem>();
    visit.operation::<RequeueItem>();
    visit.operation::<CancelItem>();
    visit.operation::<RescheduleItem>();
    visit.operation::<EditPayload>();
    visit.operation::<CancelItems>();
    visit.operation::<RequeueItems>();
    visit.operation::<PurgeLetters>();
    visit.operation::<PurgeLetter>();
}

const DEAD_PURGE: Action =
    Action::new("dead.purge", "delete dead letters; with `all`, not how many", "`all`, or `items` and `ids`");

/// An item of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ItemTarget {
    #[serde(flatten)]
    pub(super) target: Target,
    /// The item's id.
    #[serde(with = "as_text")]
    #[schemars(with = "String")]
    pub(super) id: ItemId,
}

impl ItemTarget {
    pub(crate) fn new(target: Target, id: ItemId) -> Self {
        Self { target, id }
    }
}

/// Values that JSON has as texts.
pub(super) mod as_text {
    use super::*;

    pub(in crate::operations) fn serialize<T: ToString, S: Serializer>(
        value: &T,
        output: S,
    ) -> Result<S::Ok, S::Error> {
        output.serialize_str(&value.to_string())
    }

    pub(in crate::operations) fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(
        input: D,
    ) -> Result<T, D::Error>
    where
        T::Err: ToString,
    {
        String::deserialize(input)?.parse().map_err(|error: T::Err| D::Error::custom(error.to_string()))
    }
}

/// Cancel an item, which ends without being finished and leaves no dead letter
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CancelItem {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
}

/// Make an item ready now: one that is scheduled or retrying, or a dead letter with all its attempts before it
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RequeueItem {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
}

/// Give a ready, scheduled or retrying item another time at which it becomes ready
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RescheduleItem {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
    /// In how many milliseconds from now. Of `delay_ms`, `at` and `now` one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    /// At what time (RFC 3339). One in the past means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) at: Option<String>,
    /// Now.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) now: bool,
}

/// Give an item another payload: one that is ready, scheduled, retrying or a dead letter
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EditPayload {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
    #[serde(flatten)]
    pub(crate) payload: Payload,
}

/// Delete an item for good: one that is ready, scheduled or retrying, or a dead letter
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeleteItem {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
}

/// Delete a dead letter for good
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PurgeLetter {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
}

/// Make all items of some states ready now
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RequeueItems {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// Scheduled and retrying items.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) waiting: bool,
    /// Dead letters.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dead: bool,
}

/// Cancel all items that match: an item has to match all that is given
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CancelItems {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// The queue's name again.
    pub(crate) confirm: String,
    /// Their state. A dead letter cannot be cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = cancelled_states()))]
    pub(crate) state: Option<String>,
    /// Their key, in a keyed queue.
    #[serde(flatten, deserialize_with = "names::optional", skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyName>,
    /// An attribute that they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attribute: Option<Attribute>,
}

/// The values of [`CancelItems::state`].
fn cancelled_states() -> Vec<Option<&'static str>> {
    cancelled_at_once().map(|state| Some(state.as_str())).chain([None]).collect()
}

/// An attribute of items.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Delete all dead letters of a queue for good
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PurgeLetters {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// The queue's name again.
    pub(crate) confirm: String,
}

/// An item that was changed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangedItem {
    id: String,
    /// What was done: cancelled, requeued, rescheduled, edited, purged or deleted.
    done: String,
    /// The state that it had.
    state_before: String,
}

impl Answer for ChangedItem {
    fn text(&self) -> Text {
        let Self { id, done, state_before } = self;
        Text::Line(format!("{done} {id}, which was {state_before}"))
    }
}

/// The items that a change of many has changed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangedItems {
    #[serde(flatten)]
    queue: QueueName,
    /// What was done: cancelled, requeued, purged or moved.
    done: String,
    /// How many.
    pub(super) items: usize,
    /// Items that stay, since others have their unique keys.
    pub(super) refused: usize,
    /// Items that stay, since they cannot be read.
    pub(super) unreadable: usize,
    /// Whether there are more, since the time of one request was over: send it again.
    pub(super) more: bool,
}

impl ChangedItems {
    pub(super) fn new(target: &Target, change: Change) -> Self {
        let (queue, done) = (target.queue.clone(), change.done().to_owned());
        Self { queue, done, items: 0, refused: 0, unreadable: 0, more: false }
    }
}

impl Answer for ChangedItems {
    fn text(&self) -> Text {
        Text::Line(format!("{} {}", self.done, items_of(self.items)))
    }

    fn problem(&self) -> Option<String> {
        let reasons = [
            (self.refused, "since other items have their unique keys"),
            (self.unreadable, "since they cannot be read"),
        ];
        let left = reasons.iter().filter(|(n, _)| *n > 0);
        let left: Vec<_> = left.map(|(n, why)| format!("items not {}: {n}, {why}", self.done)).collect();
        let more = self.more.then(|| {
            "there are more: a daemon works on one request for some seconds; run it again for the rest"
                .to_owned()
        });
        let problems: Vec<_> = left.into_iter().chain(more).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

impl Change {
    /// Writes the record, and changes one item.
    async fn one(
        self,
        site: &dyn Site,
        item: &ItemTarget,
        record: impl FnOnce(Record) -> Record,
        change: impl AsyncFnOnce(&Queue, &Database, &RetryPolicy) -> Result<ItemChange, RetryError>,
    ) -> anyhow::Result<ChangedItem> {
        let ItemTarget { target, id } = item;
        let queue = &site.used_queue(target).await?;
        let about = site.record().about(queue.name()).with_items(slice::from_ref(id));
        site.store(record(about)).await?;
        let (db, policy) = site.database();
        let change = change(queue, db, &policy);
        match site.once("it may be done all the same", change).await? {
            ItemChange::Done(before) => {
                let (id, state_before) = (id.to_string(), before.to_string());
                Ok(ChangedItem { id, done: self.done().to_owned(), state_before })
            }
            change => Err(self.refusal(id, &change).into()),
        }
    }
}

impl Operation for CancelItem {
    const ROUTE: Route = Route::change(
        Action::new("item.cancel", "cancel items that are named", "`items`, `ids`"),
        Method::Post,
        "/api/v1/queues/{queue}/items/{id}/cancel",
    )
    .with_notes(
        "The handler of a running item is stopped ([ITEMS.md](ITEMS.md)); a dead letter stays: 409 `dead`",
    );
    type Answer = ChangedItem;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItem> {
        let id = &self.item.id;
        let cancel = async |queue: &Queue, db: &_, policy: &_| queue.cancel_item(db, policy, id).await;
        Change::Cancel.one(site, &self.item, |record| record, cancel).await
    }
}

impl Operation for RequeueItem {
    const ROUTE: Route = Route::change(
        Action::new("item.requeue", "make items ready that are named", "`items`, `ids`"),
        Method::Post,
        "/api/v1/queues/{queue}/items/{id}/requeue",
    )
    .with_notes("It keeps its own place. 409 `ready`, `running` or `unique_taken`");
    type Answer = ChangedItem;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItem> {
        let id = &self.item.id;
        let requeue = async |queue: &Queue, db: &_, policy: &_| queue.retry_item(db, policy, id).await;
        Change::Requeue.one(site, &self.item, |record| record, requeue).await
    }
}

impl RescheduleItem {
    /// The new time; `None` if it has come.
    fn due(&self, now: SystemTime) -> Result<Option<SystemTime>, Refusal> {
        let due = times::due(self.delay_ms, self.at.as_deref(), now).map_err(Refusal::bad)?;
        match due.is_some() == self.now {
            true => Err(Refusal::bad("say when the item is to be ready: one of delay_ms, at and now")),
            false => Ok(due.filter(|due| *due > now)),
        }
    }
}

impl Operation for RescheduleItem {
    const ROUTE: Route = {
        const NOTES: &str =
            "One of `{\"delay_ms\": 60000}`, `{\"at\": \"2030-01-31T08:00:00Z\"}` and `{\"now\": true}`";
        Route::change(
            Action::new("item.reschedule", "give an item another time", "`items`, `ids`, `due`"),
            Method::Post,
            "/api/v1/queues/{queue}/items/{id}/reschedule",
        )
        .with_notes(NOTES)
    };
    type Answer = ChangedItem;

    fn check(&self) -> Result<(), Refusal> {
        self.due(UNIX_EPOCH).map(drop)
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItem> {
        let (id, due) = (&self.item.id, self.due(now())?);
        let record = |record: Record| record.with("due", due.map_or_else(|| "now".to_owned(), time));
        let reschedule =
            async |queue: &Queue, db: &_, policy: &_| queue.reschedule_item(db, policy, id, due).await;
        Change::Reschedule.one(site, &self.item, record, reschedule).await
    }
}

impl Operation for EditPayload {
    const ROUTE: Route = Route::change(
        Action::new("item.edit", "give an item another payload", "`items`, `ids`, `bytes` (the new length)"),
        Method::Put,
        "/api/v1/queues/{queue}/items/{id}/payload",
    )
    .with_long_body();
    type Answer = ChangedItem;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItem> {
        let (id, payload) = (&self.item.id, &self.payload.0);
        let config = site.config();
        let settings =
            str::from_utf8(&self.item.target.queue.0).ok().and_then(|name| config.queues.get(name));
        let most = settings.map_or_else(|| QueueConfig::new("").max_payload, |settings| settings.max_payload);
        if payload.len() as u64 > most {
            let message = format!("the payload has {} bytes, at most {most} are allowed", payload.len());
            return Err(Refusal::too_large(
                message,
                "raise `max-payload` of the queue, or store it elsewhere",
            )
            .into());
        }
        let record = |record: Record| record.with("bytes", payload.len());
        let edit = async |queue: &Queue, db: &_, policy: &_| queue.edit_item(db, policy, id, payload).await;
        Change::Edit.one(site, &self.item, record, edit).await
    }
}

impl Operation for DeleteItem {
    const ROUTE: Route = Route::change(
        Action::new("item.delete", "delete items that are named", "`items` (how many), `ids` (the first 20)"),
        Method::Delete,
        "/api/v1/queues/{queue}/items/{id}",
    )
    .with_notes("A running item stays: 409 `running`");
    type Answer = ChangedItem;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItem> {
        let id = &self.item.id;
        let delete = async |queue: &Queue, db: &_, policy: &_| queue.delete_item(db, policy, id).await;
        Change::Delete.one(site, &self.item, |record| record, delete).await
    }
}

impl Operation for PurgeLetter {
    const ROUTE: Route = Route::change(DEAD_PURGE, Method::Delete, "/api/v1/queues/{queue}/dead/{id}");
    type Answer = ChangedItem;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItem> {
        let id = &self.item.id;
        let purge = async |queue: &Queue, db: &_, policy: &_| queue.purge_dead(db, policy, id).await;
        Change::Purge.one(site, &self.item, |record| record, purge).await
    }
}

impl Operation for RequeueItems {
    const ROUTE: Route = {
        const NOTES: &str = "The body says `{\"waiting\": true}` for scheduled and retrying ones, `{\"dead\": true}` for dead letters, or both. If the answer \
            has `\"more\": true`, five seconds were not enough: repeat it, until `items` adds up to the items that there were: each request \
            begins with the first dead letter, which may have died again. Scheduled items come first; dead letters are begun when none is \
            left";
        Route::change(
            Action::new(
                "queue.requeue",
                "make all items of some states ready",
                "`waiting`, `dead`, `expired`",
            ),
            Method::Post,
            "/api/v1/queues/{queue}/requeue",
        )
        .with_notes(NOTES)
    };
    type Answer = ChangedItems;

    fn check(&self) -> Result<(), Refusal> {
        match self.waiting || self.dead {
            true => Ok(()),
            false => Err(Refusal::bad("say which items are to be made ready: waiting, dead, or both")),
        }
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItems> {
        let queue = &site.used_queue(&self.target).await?;
        let record = site.record().about(queue.name());
        site.store(record.with("waiting", self.waiting).with("dead", self.dead)).await?;
        let ((db, policy), until) = (site.database(), site.until());
        let mut done = ChangedItems::new(&self.target, Change::Requeue);
        if self.waiting {
            let moved = site.steps(queue.requeue_scheduled(db, &policy, until)).await?;
            done.items += moved.moved;
            done.unreadable += moved.unreadable;
            done.more = moved.more;
        }
        if self.dead && !done.more {
            let moved = site.steps(queue.retry_all_dead(db, &policy, until)).await?;
            done.items += moved.moved;
            done.refused += moved.refused;
            done.unreadable += moved.unreadable;
            done.more = moved.more;
        }
        Ok(done)
    }
}

/// An error unless the name of the queue is there a second time, since this ends items for good.
pub(super) fn check_confirmed(target: &Target, confirm: &str, what: &str) -> Result<(), Refusal> {
    let name = &target.queue;
    if confirm == String::from_utf8_lossy(&name.0) {
        return Ok(());
    }
    let message = format!("this {what} of queue \"{name}\" for good, and {confirm:?} is confirmed");
    Err(Refusal::conflict("not_confirmed", message, "repeat it with the queue's own name"))
}

impl CancelItems {
    fn filter(&self) -> Result<CancelFilter, Refusal> {
        let state = self.state.as_deref().map(str::parse::<ItemState>).transpose();
        let state = state.map_err(|error| Refusal::bad(format!("state: {error}")))?;
        if state == Some(ItemState::Dead) {
            return Err(Refusal::bad("state: a dead letter cannot be cancelled; purge it instead"));
        }
        let attribute = self.attribute.as_ref().map(|it| (it.name.clone(), it.value.clone()));
        Ok(CancelFilter { state, key: self.key.as_ref().map(|key| key.0.clone()), attribute })
    }

    /// What is known of the items for the record.
    fn record(&self, mut record: Record) -> Record {
        if let Some(key) = &self.key {
            record = record.with_name("key", &key.0);
        }
        if let Some(Attribute { name, value }) = &self.attribute {
            record = record.with("attribute", format!("{name}={value}"));
        }
        match &self.state {
            Some(state) => record.with("state", state.as_str()),
            None => record,
        }
    }
}

/// How many items may be of this state.
fn size(counts: &Counts, state: Option<ItemState>) -> u64 {
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    let Counts { ready, running, waiting, .. } = *counts;
    match state {
        Some(ItemState::Ready) => number(ready),
        Some(ItemState::Running) => running,
        Some(_) => number(waiting),
        None => number(ready) + number(waiting) + running,
    }
}

impl Operation for CancelItems {
    const ROUTE: Route = {
        const NOTES: &str = "`confirm` is the queue's name, and `attribute` has a `name` and a `value`. While `more` is true in the answer, and `items` is \
            not 0, send it again";
        Route::change(
            Action::new(
                "queue.cancel",
                "cancel all items that match; not how many there were",
                "`key`, `attribute`, `state`",
            ),
            Method::Post,
            "/api/v1/queues/{queue}/cancel",
        )
        .with_notes(NOTES)
    };
    type Answer = ChangedItems;

    fn check(&self) -> Result<(), Refusal> {
        self.filter()?;
        check_confirmed(&self.target, &self.confirm, "cancels items")
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItems> {
        let filter = self.filter()?;
        let queue = &site.used_queue(&self.target).await?;
        site.store(self.record(site.record().about(queue.name()))).await?;
        let counts = site.transact(async |tr| queue.counts(tr).await).await?;
        let of = size(&counts, filter.state);
        let ((db, policy), until) = (site.database(), site.until());
        let mut canceller = Canceller::new(queue.clone(), filter);
        let mut done = ChangedItems::new(&self.target, Change::Cancel);
        loop {
            let page = site.steps(canceller.page(db, &policy)).await.map_err(|error| {
                error.context(format!("cancelled {}; repeat it for the rest", items_of(done.items)))
            });
            let Some(page) = page? else { break };
            done.items += page.cancelled;
            // An item that cannot be read is found again in each round.
            done.unreadable = done.unreadable.max(page.unreadable);
            site.progress(Change::Cancel.done(), done.items, of);
            done.more = super::is_over(until);
            if done.more {
                break;
            }
        }
        // The items are cancelled, even if this fails: sweepers clear the mark later.
        let _ = site.steps(canceller.close(db, &policy)).await;
        Ok(done)
    }
}

impl Operation for PurgeLetters {
    const ROUTE: Route = Route::change(DEAD_PURGE, Method::Post, "/api/v1/queues/{queue}/dead/purge")
        .with_notes("While the answer has `more`, and `items` is not 0, send it again");
    type Answer = ChangedItems;

    fn check(&self) -> Result<(), Refusal> {
        check_confirmed(&self.target, &self.confirm, "deletes all dead letters")
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedItems> {
        let queue = &site.used_queue(&self.target).await?;
        site.store(site.record().about(queue.name()).with("all", true)).await?;
        let (db, policy) = site.database();
        let purged = site.steps(queue.purge_all_dead(db, &policy, site.until())).await?;
        let (items, unreadable, more) = (purged.moved, purged.unreadable, purged.more);
        Ok(ChangedItems { items, unreadable, more, ..ChangedItems::new(&self.target, Change::Purge) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_not_done_while_there_are_more() {
        let done = ChangedItems { items: 3, ..ChangedItems::new(&Target::default(), Change::Cancel) };
        assert_eq!(done.problem(), None);
        let problem = ChangedItems { more: true, refused: 2, ..done }.problem().unwrap();
        assert!(problem.contains("items not cancelled: 2,") && problem.contains("run it again"), "{problem}");
    }
}
