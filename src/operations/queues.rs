//! Changes of whole queues: deleting one, and moving its items to another one.

use std::{cell::Cell, num::NonZeroUsize};

use anyhow::Context;
use foundationdb::Transaction;
use kvqueue_queue::{Counts, Movable, Mover, Queue, QueueError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Answer, Method, Operation, Refusal, Route, Site, Text, Visit, is_false, is_over,
    items::{ChangedItems, check_confirmed},
    names::{DestinationName, QueueName},
    site::Audit,
    states::Change,
    target::{Layout, Target},
};
use crate::{
    audit::Action,
    base::text::items_of,
    config::{KindName, TakeEnd, Values},
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<DeleteQueue>();
    visit.operation::<MoveItems>();
}

/// Delete a queue for good: its items, its schedules and its counters
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeleteQueue {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// The queue's name again.
    #[serde(default)]
    pub(crate) confirm: String,
    /// Also if it is frozen, as `migrate` leaves it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) frozen: bool,
}

/// Move items to another queue of the same database
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MoveItems {
    #[serde(flatten)]
    pub(crate) target: Target,
    #[serde(flatten)]
    pub(crate) to: DestinationName,
    /// The kind of that queue [default: fifo].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to_kind: Option<KindName>,
    /// The packing of that queue's values, in a recipe's queue [default: raw].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to_values: Option<Values>,
    /// The end of that priority queue that items are taken from [default: min].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to_end: Option<TakeEnd>,
    /// The most items to move. Of `limit` and `all` one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<NonZeroUsize>,
    /// All that are there now.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) all: bool,
    /// Dead letters, not ready items; they become ready there, with all their attempts before them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dead: bool,
}

/// How many items a queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ItemCounts {
    ready: i64,
    /// Scheduled and retrying.
    waiting: i64,
    running: u64,
    dead: i64,
}

impl ItemCounts {
    fn of(Counts { ready, waiting, running, dead, .. }: Counts) -> Self {
        Self { ready, waiting, running, dead }
    }
}

/// A queue that was deleted.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeletedQueue {
    #[serde(flatten)]
    queue: QueueName,
    deleted: bool,
    /// The items that it had.
    items: ItemCounts,
    /// How many schedules it had.
    schedules: usize,
}

impl Answer for DeletedQueue {
    fn text(&self) -> Text {
        let Self { queue, items: ItemCounts { ready, waiting, running, dead }, schedules, .. } = self;
        let and = match schedules {
            0 => String::new(),
            1 => ", and 1 schedule".to_owned(),
            more => format!(", and {more} schedules"),
        };
        Text::Line(format!(
            "deleted {queue}: {ready} ready, {waiting} waiting, {running} running, {dead} dead{and}"
        ))
    }
}

/// How many schedules are listed at a time.
const PAGE: NonZeroUsize = NonZeroUsize::new(1_000).expect("it is not 0");

/// What a deleted queue had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deleted {
    counts: Counts,
    schedules: usize,
}

/// The deletion of a queue in a transaction that may run more than once.
///
/// If the outcome of a commit is unknown, the transaction runs again. It then finds nothing, if that commit has
/// succeeded, so the counts of the earlier attempt are the answer.
struct QueueDeletion<'a> {
    queue: &'a Queue,
    earlier: Cell<Option<Deleted>>,
}

impl<'a> QueueDeletion<'a> {
    fn new(queue: &'a Queue) -> Self {
        Self { queue, earlier: Cell::new(None) }
    }

    /// Deletes the queue, and records this in the audit trail. Returns what the queue had.
    async fn write(&self, tr: &Transaction, audit: &Audit) -> Result<Deleted, QueueError> {
        // Before they are cleared.
        let schedules = self.schedules(tr).await?;
        let counts = self.queue.delete_counted(tr).await?;
        audit.write(tr);
        let deleted = Deleted { counts, schedules };
        let deleted = self.earlier.get().filter(|_| is_nothing(&deleted)).unwrap_or(deleted);
        self.earlier.set(Some(deleted));
        Ok(deleted)
    }

    async fn schedules(&self, tr: &Transaction) -> Result<usize, QueueError> {
        let (mut count, mut last) = (0, None::<String>);
        loop {
            let page = self.queue.schedules_after(tr, last.as_deref(), PAGE).await?;
            count += page.len();
            match page.into_iter().next_back() {
                Some(view) => last = Some(view.name),
                None => return Ok(count),
            }
        }
    }
}

/// Whether these are the counts of a queue that is not there.
fn is_nothing(Deleted { counts, schedules }: &Deleted) -> bool {
    let pushed = counts.pushed.filter(|pushed| *pushed > 0);
    *schedules == 0 && Counts { pushed, ..*counts } == Counts::default()
}

impl Operation for DeleteQueue {
    const ROUTE: Route = {
        const NOTES: &str = "`confirm` has to be its name once more; with `?frozen=true` also a queue that a migration has frozen is deleted";
        Route::change(
            Action::new("queue.delete", "delete a queue; not how many items it had", ""),
            Method::Delete,
            "/api/v1/queues/{queue}",
        )
        .with_notes(NOTES)
    };
    type Answer = DeletedQueue;

    fn check(&self) -> Result<(), Refusal> {
        check_confirmed(&self.target, &self.confirm, "deletes all items")
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<DeletedQueue> {
        let queue = &site.queue(&self.target)?;
        site.expect_queue(queue, None).await?;
        let deletion = QueueDeletion::new(queue);
        let record = site.record().about(queue.name());
        let record = if self.frozen { record.with("frozen", true) } else { record };
        let deleted = site.change(record, async |tr, audit| {
            match queue.paused(tr).await?.filter(|pause| pause.frozen && !self.frozen) {
                Some(pause) => Ok(Err(pause)),
                None => Ok(Ok(deletion.write(tr, audit).await?)),
            }
        });
        let deleted = deleted.await?.map_err(|pause| {
            let name = queue.name().escape_ascii().to_string();
            let fix = format!("delete it where it is moved to; or what a migration left here: kvqueue delete {name} --frozen");
            Refusal { fix: fix.into(), ..Refusal::frozen(&name, &pause) }
        });
        let Deleted { counts, schedules } = deleted?;
        let (queue, items) = (self.target.queue.clone(), ItemCounts::of(counts));
        Ok(DeletedQueue { queue, deleted: true, items, schedules })
    }
}

/// The items that were moved.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MovedItems {
    #[serde(flatten)]
    to: DestinationName,
    #[serde(flatten)]
    moved: ChangedItems,
    /// What the queue has then, if all items were to be moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<ItemCounts>,
}

impl Answer for MovedItems {
    fn text(&self) -> Text {
        let ItemCounts { ready, waiting, running, dead } = self.left.unwrap_or_default();
        let running = i64::try_from(running).unwrap_or(i64::MAX);
        let states = [(ready, "ready"), (waiting, "waiting"), (running, "running"), (dead, "dead")];
        let there = states.iter().filter(|(items, _)| *items > 0);
        let there: Vec<_> = there.map(|(items, state)| format!("{items} {state}")).collect();
        let left = if there.is_empty() { String::new() } else { format!("; left: {}", there.join(", ")) };
        Text::Line(format!("moved {} to {}{left}", items_of(self.moved.items), self.to))
    }

    fn problem(&self) -> Option<String> {
        self.moved.problem()
    }
}

impl MoveItems {
    /// The queue that the items go to. Its kind must be the configured one, because a daemon finds no items of another kind.
    fn destination(&self, site: &dyn Site) -> anyhow::Result<Queue> {
        let name = QueueName(self.to.0.clone());
        let text = String::from_utf8_lossy(&name.0);
        site.check_access(&text)?;
        let config = site.config();
        if let (Some(settings), Some(kind)) = (config.queues.get(&*text), self.to_kind)
            && settings.kind != kind
        {
            let message = format!(
                "queue \"{name}\" is of kind {} in the configuration, so no daemon would find these items",
                settings.layout()
            );
            return Err(Refusal::bad(format!("{message}; leave out to_kind, or use another queue")).into());
        }
        let layout = Layout { kind: self.to_kind, values: self.to_values, end: self.to_end };
        layout.over(config.queues.get(&*text), "to_").map_err(Refusal::bad)?;
        site.queue(&Target { queue: name, layout })
    }
}

impl Operation for MoveItems {
    const ROUTE: Route = {
        const NOTES: &str = "The body says `{\"to\": \"OTHER\", \"limit\": 10}`, or `\"all\": true` instead of a limit, and with `\"dead\": true` dead letters. If \
            five seconds are not enough, the answer has `\"more\": true`: repeat it, while `items` is not 0, with `limit` less `items`. \
            `left` is what the queue has then, after `all`";
        Route::change(
            Action::new("queue.move", "move items to another queue", "`to`, `limit` or `all`, `dead`"),
            Method::Post,
            "/api/v1/queues/{queue}/move",
        )
        .with_notes(NOTES)
    };
    type Answer = MovedItems;

    fn check(&self) -> Result<(), Refusal> {
        match self.all == self.limit.is_some() {
            true => Err(Refusal::bad("say how many items are to be moved: either limit or all")),
            false => Ok(()),
        }
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<MovedItems> {
        let to = &self.destination(site)?;
        let from = site.used_queue(&self.target).await?;
        site.transact(async |tr| {
            to.check_used(tr).await?;
            to.check_unfrozen(tr).await
        })
        .await?;
        let from = if self.all { from.in_order_for(to) } else { from };
        let what = if self.dead { Movable::Dead } else { Movable::Ready };
        let mut mover = Mover::new(from.clone(), to.clone(), what)
            .map_err(|error| Refusal::of_text("same_queue", &error.to_string()))?;
        let limit = self.limit.map(NonZeroUsize::get);
        site.store(site.record().about(from.name()).with_move(to.name(), limit, self.dead)).await?;
        let counts = site.transact(async |tr| from.counts(tr).await).await?;
        let there = u64::try_from(if self.dead { counts.dead } else { counts.ready }).unwrap_or(0);
        let of = limit.map_or(there, |limit| there.min(limit as u64));
        let ((db, policy), until) = (site.database(), site.until());
        let mut done = ChangedItems::new(&self.target, Change::Move);
        while let Some(left) =
            NonZeroUsize::new(limit.map_or(usize::MAX, |limit| limit.saturating_sub(done.items)))
        {
            let page = site.steps(mover.page(db, &policy, left)).await;
            let page = page.map_err(|error| error.context(format!("moved {}", items_of(done.items))))?;
            let Some(page) = page else { break };
            done.items += page.moved;
            done.refused += page.refused;
            done.unreadable += page.unreadable;
            site.progress(Change::Move.done(), done.items, of);
            done.more = is_over(until) && limit.is_none_or(|limit| done.items < limit);
            if done.more {
                break;
            }
        }
        site.steps(mover.close(db, &policy)).await.context("moved, but a mark is left")?;
        let left = match self.all && !done.more {
            true => Some(ItemCounts::of(site.transact(async |tr| from.counts(tr).await).await?)),
            false => None,
        };
        Ok(MovedItems { to: self.to.clone(), moved: done, left })
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{
        NewItem, RetryPolicy, Session,
        schedule::{Calendar, Schedule},
    };

    use super::*;
    use crate::{
        audit::{AuditStore, Record, Who},
        testing::TestDatabase,
    };

    #[tokio::test]
    async fn a_deletion_that_runs_again_after_its_commit_has_the_counts_of_the_first_time() {
        let db = TestDatabase::new().unwrap();
        let queue = Queue::new(b"", b"q").unwrap();
        Session::new(queue.clone()).with_policy(RetryPolicy::default()).push(&db, &["a", "b"]).await.unwrap();
        let hourly = Calendar::cron("@hourly", "UTC").unwrap();
        let tr = db.create_trx().unwrap();
        for name in ["a", "b", "c"] {
            let schedule = Schedule::new(name, hourly.clone(), NewItem::new("x"));
            queue.put_schedule(&tr, &schedule, std::time::UNIX_EPOCH).await.unwrap();
        }
        tr.commit().await.unwrap();
        let (store, record) = (AuditStore::new(b""), Record::new(Action::OF_A_TEST, Who::Operator));
        let (audit, deletion) = (Audit { store, record }, QueueDeletion::new(&queue));
        for _ in 0..3 {
            let tr = db.create_trx().unwrap();
            let Deleted { counts, schedules } = deletion.write(&tr, &audit).await.unwrap();
            assert_eq!((counts.ready, schedules), (2, 3));
            tr.commit().await.unwrap();
        }
    }

    #[test]
    fn a_queue_without_items_and_pushes_and_schedules_is_nothing() {
        let is_nothing = |counts, schedules| is_nothing(&Deleted { counts, schedules });
        assert!(is_nothing(Counts::default(), 0));
        assert!(!is_nothing(Counts::default(), 1));
        assert!(is_nothing(Counts { pushed: Some(0), ..Counts::default() }, 0));
        assert!(!is_nothing(Counts { pushed: Some(1), ..Counts::default() }, 0));
        assert!(!is_nothing(Counts { dead: 1, pushed: Some(0), ..Counts::default() }, 0));
    }
}
