//! Sites: what an operation needs of the place where it runs.

use std::{cell::Cell, sync::Arc, time::Instant};

use foundationdb::{Database, Transaction};
use futures::{FutureExt, future::LocalBoxFuture};
use kvqueue_queue::{ItemId, ItemView, Kind, Queue, QueueError, Recorder, RetryError, RetryPolicy};
use serde_json::{Map, Value};

use super::{Refusal, names::QueueName, target::Target};
use crate::{
    audit::{AuditStore, Record},
    config::Config,
    database::{absent_queues, attempt::Attempt, item_wait::ItemWait},
};

/// Where an operation runs: in a command, or in a daemon that has got a request.
pub(crate) trait Site {
    fn config(&self) -> Arc<Config>;

    /// An error if the configuration's settings for this queue are wrong: they determine the layout of its items.
    fn check_settings(&self, _queue: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }

    /// Runs a transaction until it commits or fails. Its body may run several times.
    fn commit<'s, 'a: 's>(
        &'s self,
        body: &'s mut (dyn FnMut(Transaction) -> Attempt<'a> + 's),
    ) -> LocalBoxFuture<'s, anyhow::Result<()>>;

    /// The record of this operation, to which it adds what it is about.
    fn record(&self) -> Record;

    /// An error if the one who asks may not do this in another queue, or learn its name.
    fn check_access(&self, queue: &str) -> anyhow::Result<()>;

    /// The database, for changes of several transactions, and how long each of these may take.
    fn database(&self) -> (&Database, RetryPolicy);

    /// Waits for a change. If it fails, it may be done all the same, or a part of it, as `unsure` says.
    fn wait_for<'s>(
        &'s self,
        change: LocalBoxFuture<'s, Result<(), RetryError>>,
        unsure: Unsure,
    ) -> LocalBoxFuture<'s, anyhow::Result<()>>;

    /// When a change of many items stops before its end; `None` if it does not.
    fn until(&self) -> Option<Instant>;

    /// Shows a person that so many items of `of` are done.
    fn progress(&self, _done: &'static str, _items: usize, _of: u64) {}

    /// What records the ends of items of this queue, which this site's changes are.
    fn recorder(&self, queue: &[u8]) -> Recorder;

    /// The most bytes of a payload in an answer about one item.
    fn most_of_payload(&self) -> usize {
        usize::MAX
    }

    /// What prints a note for a person; only a command has it.
    fn notes(&self) -> Option<Note<'_>>;

    /// What this place knows of the holders of leases of a queue's items.
    fn holders(&self, queue: &[u8]) -> Holders<'_>;

    /// Waits until an item has ended, or until a time. Returns whether nobody waits any more.
    fn wait_for_item<'s>(
        &'s self,
        item: (&'s Queue, &'s ItemId),
        wait: &'s mut ItemWait,
        until: tokio::time::Instant,
    ) -> LocalBoxFuture<'s, anyhow::Result<bool>>;

    /// Pauses or resumes a queue for this daemon alone.
    fn pause_here<'s>(&'s self, queue: &'s [u8], paused: bool) -> LocalBoxFuture<'s, anyhow::Result<()>>;

    /// The daemon that has paused a queue for itself, as far as is known.
    fn pausing_daemon(&self, queue: &[u8]) -> Option<String>;
}

/// What a command prints of a change that has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unsure {
    /// Some of its transactions may be done.
    Partly,
    /// It has one transaction. The text is for one of unknown outcome.
    Once(&'static str),
}

/// Prints a note.
pub(crate) type Note<'s> = Box<dyn Fn(&str) + 's>;

/// Makes the fields of an item that say who has its lease: `worker`, or `handled_by`.
pub(crate) type Holders<'s> = Box<dyn Fn(&ItemView) -> Map<String, Value> + 's>;

/// The record of a change, to be written in its transaction.
pub(super) struct Audit {
    pub(super) store: AuditStore,
    pub(super) record: Record,
}

impl Audit {
    pub(super) fn write(&self, tr: &Transaction) {
        self.store.write(tr, &self.record);
    }
}

impl dyn Site + '_ {
    /// Tells a person what is not in the answer. Only a command does.
    pub(super) fn note(&self, text: &str) {
        if let Some(note) = self.notes() {
            note(text);
        }
    }

    /// Runs a transaction that may commit twice with the same result: a read, or plain writes.
    pub(super) async fn transact<T>(
        &self,
        body: impl AsyncFn(&Transaction) -> Result<T, QueueError>,
    ) -> anyhow::Result<T> {
        let value = Cell::new(None);
        let (body, kept) = (&body, &value);
        let mut attempt = |tr: Transaction| -> Attempt<'_> {
            Box::pin(async move {
                let result = body(&tr).await;
                (tr, result.map(|it| kept.set(Some(it))))
            })
        };
        self.commit(&mut attempt).await?;
        Ok(value.take().expect("an attempt has committed"))
    }

    /// Runs the transaction of a change, which writes its record.
    pub(super) async fn change<T>(
        &self,
        record: Record,
        body: impl AsyncFn(&Transaction, &Audit) -> Result<T, QueueError>,
    ) -> anyhow::Result<T> {
        let store = AuditStore::new(self.config().prefix.as_bytes());
        self.transact(async |tr| store.prepare(tr).await).await?;
        let audit = &Audit { store, record };
        self.transact(async |tr| body(tr, audit).await).await
    }

    /// Writes the record of a change of several transactions, before the first of them.
    pub(super) async fn store(&self, record: Record) -> anyhow::Result<()> {
        self.change(record, async |tr, audit| {
            audit.write(tr);
            Ok(())
        })
        .await
    }

    /// Runs a change of several transactions. If it fails, a part of it may be done.
    pub(super) async fn steps<T>(
        &self,
        change: impl Future<Output = Result<T, RetryError>>,
    ) -> anyhow::Result<T> {
        self.waited(change, Unsure::Partly).await
    }

    /// Runs a change of one transaction. `unsure` is the text for an unknown outcome.
    pub(super) async fn once<T>(
        &self,
        unsure: &'static str,
        change: impl Future<Output = Result<T, RetryError>>,
    ) -> anyhow::Result<T> {
        self.waited(change, Unsure::Once(unsure)).await
    }

    async fn waited<T>(
        &self,
        change: impl Future<Output = Result<T, RetryError>>,
        unsure: Unsure,
    ) -> anyhow::Result<T> {
        let value = Cell::new(None);
        let change = async {
            value.set(Some(change.await?));
            Ok(())
        };
        self.wait_for(change.boxed_local(), unsure).await?;
        Ok(value.take().expect("the change has succeeded"))
    }

    /// A queue by its name and layout.
    pub(super) fn queue(&self, target: &Target) -> anyhow::Result<Queue> {
        let (name, config) = (&target.queue.0, self.config());
        self.check_settings(name)?;
        let settings = str::from_utf8(name).ok().and_then(|name| config.queues.get(name));
        let kind = target.layout.over(settings, "").map_err(Refusal::bad)?;
        let queue = Queue::of_kind(config.prefix.as_bytes(), name, kind)
            .map_err(|error| Refusal::bad(error.to_string()))?;
        Ok(queue.with_recorder(&self.recorder(name)))
    }

    /// A queue that is there, for a change of its items.
    ///
    /// # Errors
    /// There is none of this name, it is of another kind, or it is frozen.
    pub(super) async fn used_queue(&self, target: &Target) -> anyhow::Result<Queue> {
        let queue = self.existing_queue(target).await?;
        self.check_unfrozen(&queue).await?;
        Ok(queue)
    }

    /// A queue that is there.
    ///
    /// # Errors
    /// There is none of this name, or it is of another kind.
    pub(crate) async fn existing_queue(&self, target: &Target) -> anyhow::Result<Queue> {
        let queue = self.queue(target)?;
        self.expect_queue(&queue, None).await?;
        self.check_kind(&queue).await?;
        Ok(queue)
    }

    /// An error if a queue of this name has items of another kind, and none of this one.
    pub(crate) async fn check_kind(&self, queue: &Queue) -> anyhow::Result<()> {
        self.transact(async |tr| queue.check_used(tr).await).await
    }

    /// An error if the queue is frozen, as it is while it is migrated, and afterwards at the source. Most transactions check it again. This check comes
    /// first, so that a refused change writes no record.
    pub(crate) async fn check_unfrozen(&self, queue: &Queue) -> anyhow::Result<()> {
        self.transact(async |tr| queue.check_unfrozen(tr).await).await
    }

    /// A queue whose dead letters are to be read. A queue of any kind keeps them alike. A person gets a note if there is none.
    pub(super) async fn queue_to_read(&self, target: &Target) -> anyhow::Result<Queue> {
        let queue = self.queue(target)?;
        self.note_if_absent(&queue).await?;
        Ok(queue)
    }

    /// A queue by its name, for what is the same in a queue of any kind.
    pub(super) fn any_queue(&self, name: &QueueName) -> Result<Queue, Refusal> {
        let queue = Queue::new(self.config().prefix.as_bytes(), &name.0);
        queue.map_err(|error| Refusal::bad(error.to_string()))
    }

    /// A keyed queue by its name. One that is not in the configuration is taken for a keyed one.
    pub(super) fn keyed_queue(&self, name: &QueueName) -> anyhow::Result<Queue> {
        self.check_settings(&name.0)?;
        let config = self.config();
        let settings = str::from_utf8(&name.0).ok().and_then(|name| config.queues.get(name));
        if let Some(kind) = settings.map(|settings| settings.layout()).filter(|kind| *kind != Kind::Keyed) {
            return Err(Refusal::conflict(
                "other_kind",
                format!("queue \"{name}\" is of kind {kind} in the configuration, and only keyed queues have limits"),
                "set kind = \"keyed\" and restart its daemons, or use another queue",
            )
            .into());
        }
        Ok(Queue::of_kind(config.prefix.as_bytes(), &name.0, Kind::Keyed)
            .map_err(|error| Refusal::bad(error.to_string()))?)
    }

    /// An error if neither the database nor the configuration has the queue, as when its name is misspelt. An operation that has the argument
    /// `create` may come before the first push.
    pub(crate) async fn expect_queue(&self, queue: &Queue, create: Option<bool>) -> anyhow::Result<()> {
        let fix = match create {
            Some(true) => return Ok(()),
            Some(false) => "to set it before the first push, add --create, or ?create=true to the request",
            None => "",
        };
        self.expect_queue_or(queue, fix).await
    }

    /// The same, with another way to mend it.
    pub(crate) async fn expect_queue_or(&self, queue: &Queue, fix: &str) -> anyhow::Result<()> {
        match self.absent(queue).await? {
            Some(text) => Err(Refusal::no_queue(&text, fix).into()),
            None => Ok(()),
        }
    }

    /// Tells the one who asks if there is no such queue, which is not an error.
    pub(crate) async fn note_if_absent(&self, queue: &Queue) -> anyhow::Result<()> {
        if self.notes().is_some()
            && let Some(text) = self.absent(queue).await?
        {
            self.note(&text);
        }
        Ok(())
    }

    /// The text about a queue that neither the database nor the configuration has.
    async fn absent(&self, queue: &Queue) -> anyhow::Result<Option<String>> {
        let config = self.config();
        self.transact(async |tr| {
            absent_queues::note(tr, &config, queue, |name| self.check_access(name).is_ok()).await
        })
        .await
    }
}

#[cfg(test)]
pub(super) mod tests {
    use kvqueue_queue::{Recording, retry};

    use super::*;
    use crate::{
        audit::{Action, Filter, Who},
        database::item_history,
        testing::TestDatabase,
    };

    /// A database of a test's.
    pub(in crate::operations) struct TestSite {
        db: TestDatabase,
        config: Arc<Config>,
    }

    impl TestSite {
        pub(in crate::operations) fn new() -> Self {
            Self { db: TestDatabase::new().unwrap(), config: Arc::default() }
        }

        /// How many records the audit trail has.
        pub(in crate::operations) async fn records(&self) -> usize {
            let tr = self.db.create_trx().unwrap();
            let page = AuditStore::new(b"").page(&tr, None, &Filter::default(), 100).await;
            page.unwrap().records.len()
        }
    }

    impl Site for TestSite {
        fn config(&self) -> Arc<Config> {
            self.config.clone()
        }

        fn commit<'s, 'a: 's>(
            &'s self,
            body: &'s mut (dyn FnMut(Transaction) -> Attempt<'a> + 's),
        ) -> LocalBoxFuture<'s, anyhow::Result<()>> {
            async move {
                retry::run(&self.db, &RetryPolicy::default(), body).await?;
                Ok(())
            }
            .boxed_local()
        }

        fn record(&self) -> Record {
            Record::new(Action::OF_A_TEST, Who::Operator)
        }

        fn check_access(&self, _: &str) -> anyhow::Result<()> {
            Ok(())
        }

        fn database(&self) -> (&Database, RetryPolicy) {
            (&self.db, RetryPolicy::default())
        }

        fn wait_for<'s>(
            &'s self,
            change: LocalBoxFuture<'s, Result<(), RetryError>>,
            _: Unsure,
        ) -> LocalBoxFuture<'s, anyhow::Result<()>> {
            async move { Ok(change.await?) }.boxed_local()
        }

        fn until(&self) -> Option<Instant> {
            None
        }

        fn recorder(&self, _: &[u8]) -> Recorder {
            item_history::recorder(Recording::AsStored)
        }

        fn notes(&self) -> Option<Note<'_>> {
            None
        }

        fn holders(&self, _: &[u8]) -> Holders<'_> {
            Box::new(|_| Map::new())
        }

        fn wait_for_item<'s>(
            &'s self,
            _: (&'s Queue, &'s ItemId),
            _: &'s mut ItemWait,
            _: tokio::time::Instant,
        ) -> LocalBoxFuture<'s, anyhow::Result<bool>> {
            async { unreachable!("no test asks for it") }.boxed_local()
        }

        fn pause_here<'s>(&'s self, _: &'s [u8], _: bool) -> LocalBoxFuture<'s, anyhow::Result<()>> {
            async { unreachable!("no test asks for it") }.boxed_local()
        }

        fn pausing_daemon(&self, _: &[u8]) -> Option<String> {
            None
        }
    }
}
