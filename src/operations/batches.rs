//! Batches of items: their list, one of them, making one, and its end.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    time::Duration,
};

use foundationdb::Transaction;
use kvqueue_queue::{
    ItemId, Queue, QueueError,
    item_batch::{BatchCommit, BatchCounts, BatchError, BatchId, BatchView, MAX_AFTER, Missing, NewBatch},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Answer, Method, Operation, Page, Refusal, Route, Site, Text, Visit,
    batch_object::{COUNTS, Waits, batch_object, counts_object},
    items::as_text,
    names::QueueName,
    object::{JsonObject, schema, text},
    push::{ItemFields, Object, given},
    target::{Layout, Target},
};
use crate::{
    audit::Action,
    base::{causes::with_causes, clock::now, text::one_line, times},
    handlers::whole,
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListBatches>();
    visit.operation::<ShowBatch>();
    visit.operation::<CommitBatch>();
    visit.operation::<CancelBatch>();
}

/// A batch by its id, and the queue of its callback.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BatchTarget {
    #[serde(flatten)]
    queue: QueueName,
    /// Its id.
    #[serde(with = "as_text")]
    #[schemars(with = "String")]
    batch: BatchId,
}

/// Show a batch: how many members have ended, and what is pushed in the end
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ShowBatch {
    #[serde(flatten)]
    pub(crate) batch: BatchTarget,
}

/// List the batches whose callbacks go to a queue
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, clap::Args)]
pub(crate) struct ListBatches {
    /// The queue of the callbacks
    #[serde(flatten)]
    pub(crate) queue: QueueName,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) page: Page,
}

/// Commit a batch after the last push: it calls back when all its members have ended
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CommitBatch {
    #[serde(flatten)]
    pub(crate) batch: BatchTarget,
}

/// Cancel a batch: it does not call back, and its members go on
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CancelBatch {
    #[serde(flatten)]
    pub(crate) batch: BatchTarget,
}

/// Makes a batch. It is no [`Operation`], because the payload of its callback may be JSON, whose text is kept.
pub(crate) struct MakeBatch {
    /// The queue of the callback.
    pub(crate) target: Target,
    pub(crate) batch: NewBatchBody,
}

/// The body of a request for a new batch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBatchBody {
    /// The item that is pushed in the end.
    pub(crate) then: Object<ItemFields>,
    /// How long it waits for its members.
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_ms: Option<u64>,
    /// Items that are there already, and are its only members. A list that is null by mistake must not make a batch that nobody commits.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Vec<Object<Predecessor>>>,
    /// What an item of `after` means that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<MissingWord>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MissingWord {
    Refused,
    Ended,
}

/// An item that is waited for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Predecessor {
    pub(crate) id: String,
    /// Without it, the queue of the callback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
}

/// A batch that is made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MadeBatch {
    pub(crate) id: String,
    /// If it was made to come after items.
    #[serde(flatten)]
    waits: Option<Waits>,
}

/// A batch, as [`batch_object`] has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Batch(JsonObject);

schema!(Batch, { "$ref": "#/components/schemas/Batch", "description": "A batch." });

/// Batches, in the order of their ids.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Batches {
    batches: Vec<Batch>,
    /// The id behind which the next page begins.
    next: Option<String>,
}

/// A batch that is committed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CommittedBatch {
    id: String,
    /// Whether it was not committed before.
    changed: bool,
}

/// A batch that is cancelled.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CancelledBatch {
    id: String,
    /// Its members.
    #[schemars(schema_with = "counts_schema")]
    counts: Map<String, Value>,
}

fn counts_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "$ref": "#/components/schemas/BatchCounts" })
}

impl BatchTarget {
    pub(crate) fn new(batch: BatchId) -> Self {
        Self { queue: QueueName(batch.home().to_vec()), batch }
    }

    fn queue(&self, site: &dyn Site) -> Result<Queue, Refusal> {
        if self.batch.home() != self.queue.0 {
            return Err(self.gone());
        }
        site.any_queue(&self.queue)
    }

    /// The error for a batch that is not there.
    fn gone(&self) -> Refusal {
        let (id, queue) = (&self.batch, &self.queue);
        let message = format!("there is no batch {id}: it has called back, was cancelled, or never was");
        Refusal::not_found(message, format!("`kvqueue batch list {queue}` shows which there are"))
    }
}

/// What a command prints if the outcome of a change is unknown.
const COMMITTED: &str = "the batch may be committed all the same; commit it once more";
const MADE: &str = "the batch may be there all the same; see `kvqueue batch list`";

/// The most characters of a payload in a table.
const PAYLOAD: usize = 40;

impl Batch {
    fn field(&self, name: &str) -> String {
        self.0.text_of(name).unwrap_or_default()
    }

    /// What is pushed in the end.
    fn then(&self) -> JsonObject {
        JsonObject::of(self.0.get("then").clone())
    }

    fn cells(&self) -> Vec<String> {
        let count = |name: &str| self.0.get("counts")[name].as_u64().unwrap_or(0);
        let members = count("members");
        let ended = format!("{} of {members} ended", members.saturating_sub(count("open")));
        let payload = self.then().payload().1.unwrap_or_default();
        let payload = one_line(&String::from_utf8_lossy(&payload), PAYLOAD);
        vec![self.field("id"), self.field("state"), ended, self.field("deadline"), payload]
    }
}

impl Answer for Batch {
    fn text(&self) -> Text {
        let queue = self.0.bytes_of("queue").map(|queue| ("queue", queue.escape_ascii().to_string()));
        let fields = ["state", "created", "committed", "deadline"].map(|name| (name, name));
        let mut lines: Vec<_> = self.0.lines(&[("id", "id")]).chain(queue).collect();
        lines.extend(self.0.lines(&fields));
        lines.extend(COUNTS.map(|name| (name, text(&self.0.get("counts")[name]))));
        let then = self.then();
        lines.extend(then.attributes());
        lines.extend(then.lines(&[("content type", "content_type")]));
        lines.extend(then.key());
        lines.extend(then.lines(&[("priority", "priority")]));
        let (length, payload) = then.payload();
        lines.push(length);
        Text::Fields(lines, payload)
    }
}

impl Answer for Batches {
    const LIST: Option<&'static str> = Some("batches");

    fn text(&self) -> Text {
        let columns = vec!["id", "state", "members", "deadline", "payload"];
        Text::Table(columns, self.batches.iter().map(Batch::cells).collect())
    }
}

impl Answer for CommittedBatch {
    fn text(&self) -> Text {
        let done = if self.changed { "is committed" } else { "was committed before" };
        Text::Line(format!("batch {} {done}", self.id))
    }
}

impl Answer for CancelledBatch {
    fn text(&self) -> Text {
        let [open, members] = ["open", "members"].map(|name| text(&self.counts[name]));
        Text::Line(format!(
            "batch {} is cancelled; {open} of its {members} members have not ended, and go on",
            self.id
        ))
    }
}

impl Operation for ShowBatch {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/batches/{batch}");
    type Answer = Batch;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Batch> {
        let queue = &self.batch.queue(site)?;
        let found = site.transact(async |tr| queue.batch(tr, &self.batch.batch).await).await?;
        match found {
            Some(view) => Ok(Batch(JsonObject::of(batch_object(&view)))),
            None => Err(self.batch.gone().into()),
        }
    }
}

impl Operation for ListBatches {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/batches")
        .with_notes("A batch that has called back is not among them");
    type Answer = Batches;

    fn go_on(&mut self, so_far: &Batches) -> bool {
        self.page.go_on(so_far.batches.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Batches> {
        let queue = &site.any_queue(&self.queue)?;
        let after = self.page.after.as_deref().map(str::parse::<BatchId>).transpose();
        let after = after.map_err(|error| Refusal::bad(format!("after: {error}")))?;
        let (most, after) = (self.page.most(), after.as_ref());
        let (page, is_more) = site.transact(async |tr| page(queue, tr, after, most).await).await?;
        if page.is_empty() && after.is_none() {
            site.note_if_absent(queue).await?;
        }
        let next = page.last().filter(|_| is_more).map(|view| view.id.to_string());
        Ok(Batches {
            batches: page.iter().map(|view| Batch(JsonObject::of(batch_object(view)))).collect(),
            next,
        })
    }
}

/// Up to `most` batches behind `after`, or the first ones, and whether there are more behind them. Conflicts with nothing.
async fn page(
    queue: &Queue,
    tr: &Transaction,
    after: Option<&BatchId>,
    most: NonZeroUsize,
) -> Result<(Vec<BatchView>, bool), QueueError> {
    let mut found: Vec<BatchView> = Vec::new();
    // One more than wanted tells whether there are more. The layer may read fewer at a time.
    while let Some(left) = NonZeroUsize::new((most.get() + 1).saturating_sub(found.len())) {
        let next = queue.batches_after(tr, found.last().map(|view| &view.id).or(after), left).await?;
        if next.is_empty() {
            return Ok((found, false));
        }
        found.extend(next);
    }
    found.truncate(most.get());
    Ok((found, true))
}

impl Operation for CommitBatch {
    const ROUTE: Route = Route::push("/api/v1/queues/{queue}/batches/{batch}/commit")
        .with_notes("`changed` says whether it was not committed before");
    type Answer = CommittedBatch;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<CommittedBatch> {
        let (queue, id) = (&self.batch.queue(site)?, &self.batch.batch);
        let (db, policy) = site.database();
        let changed = match site.once(COMMITTED, queue.finish_batch(db, &policy, id, now())).await? {
            BatchCommit::Committed => true,
            BatchCommit::WasCommitted => false,
            BatchCommit::Gone => return Err(self.batch.gone().into()),
        };
        Ok(CommittedBatch { id: id.to_string(), changed })
    }
}

impl Operation for CancelBatch {
    const ROUTE: Route = Route::change(
        Action::new("batch.cancel", "cancel a batch: it does not call back", "`batch`"),
        Method::Delete,
        "/api/v1/queues/{queue}/batches/{batch}",
    );
    type Answer = CancelledBatch;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<CancelledBatch> {
        let (queue, id) = (&self.batch.queue(site)?, &self.batch.batch);
        let record = site.record().about(queue.name()).with("batch", id.to_string());
        // If the outcome of a commit is unknown, the transaction runs again, and does not find what it has removed.
        let earlier = Cell::new(None::<BatchCounts>);
        let counts = site.change(record, async |tr, audit| {
            queue.check_unfrozen(tr).await?;
            if let Some(counts) = queue.cancel_batch(tr, id).await? {
                earlier.set(Some(counts));
            }
            if earlier.get().is_some() {
                audit.write(tr);
            }
            Ok(earlier.get())
        });
        match counts.await? {
            Some(counts) => Ok(CancelledBatch { id: id.to_string(), counts: counts_object(&counts) }),
            None => Err(self.batch.gone().into()),
        }
    }
}

impl MadeBatch {
    /// The same for people.
    pub(crate) fn text(&self) -> String {
        self.waits.as_ref().map_or_else(|| self.id.clone(), |waits| waits.text(&self.id))
    }
}

impl MakeBatch {
    pub(crate) async fn run(self, site: &dyn Site) -> anyhow::Result<MadeBatch> {
        let (queue, now) = (&site.queue(&self.target)?, now());
        let Self { target, batch: NewBatchBody { then: Object(then), deadline_ms, after, missing } } = self;
        let callback = then.item(now, None).map_err(|problem| Refusal::bad(format!("then: {problem}")));
        let mut callback = callback?;
        // The sweeper sets it when it pushes the item.
        callback.enqueued_at = None;
        let deadline = deadline_ms.map(|ms| times::after(now, Duration::from_millis(ms)));
        let missing = match (missing, &after) {
            (Some(_), None) => {
                return Err(Refusal::bad("missing is for the items of after; leave it out").into());
            }
            (Some(MissingWord::Ended), _) => Missing::HasEnded,
            (Some(MissingWord::Refused) | None, _) => Missing::Refused,
        };
        let batch = NewBatch { callback, deadline };
        let after = match after {
            Some(after) => Some(predecessors(site, &target, queue, (after, missing)).await?),
            None => None,
        };
        let (db, policy) = site.database();
        let made = site.once(MADE, async {
            let made = match &after {
                Some(after) => {
                    let made = queue.push_after(db, &policy, &batch, (after, missing), now).await;
                    made.map(|(id, joins)| (id, Some(Waits::of(&joins))))
                }
                None => queue.create_batch(db, &policy, &batch, now).await.map(|id| (id, None)),
            };
            match made {
                // An id that the queue cannot have is the fault of the one who asks.
                Err(BatchError::Retry(error)) if !matches!(error.error, QueueError::WrongKind { .. }) => {
                    Err(error)
                }
                made => Ok(made),
            }
        });
        let (id, waits) = made.await?.map_err(refused)?;
        Ok(MadeBatch { id: id.to_string(), waits })
    }
}

fn refused(error: BatchError) -> Refusal {
    match error {
        missing @ BatchError::Missing { .. } => {
            let fix =
                "correct the id or the queue, or add --missing-ok, or \"missing\": \"ended\" to the request";
            Refusal::conflict("missing", format!("{missing}; nothing was pushed"), fix)
        }
        BatchError::Retry(error) => Refusal::bad(format!("after: {}", error.error)),
        error => Refusal::bad(with_causes(&error)),
    }
}

/// The items that are waited for, each once. Their records change, so the one who asks has to be allowed to push to their queues, too.
async fn predecessors(
    site: &dyn Site,
    own: &Target,
    queue: &Queue,
    (after, missing): (Vec<Object<Predecessor>>, Missing),
) -> anyhow::Result<Vec<(Queue, ItemId)>> {
    if !(1..=MAX_AFTER).contains(&after.len()) {
        let problem = format!("after: it has {} items, 1 to {MAX_AFTER} are possible", after.len());
        return Err(Refusal::bad(problem).into());
    }
    let mut found: BTreeMap<Vec<u8>, BTreeSet<ItemId>> = BTreeMap::new();
    for Object(Predecessor { id, queue }) in after {
        let id = id.parse().map_err(|error| Refusal::bad(format!("after: {error}")))?;
        let name = queue.map_or_else(|| own.queue.0.clone(), String::into_bytes);
        found.entry(name).or_default().insert(id);
    }
    let mut all = Vec::new();
    for (name, ids) in found {
        let of = if name == own.queue.0 {
            queue.clone()
        } else {
            site.check_access(&String::from_utf8_lossy(&name))?;
            let other = Target { queue: QueueName(name), layout: Layout::default() };
            match missing {
                Missing::HasEnded => site.queue(&other)?,
                Missing::Refused => site.existing_queue(&other).await?,
            }
        };
        all.extend(ids.into_iter().map(|id| (of.clone(), id)));
    }
    Ok(all)
}
