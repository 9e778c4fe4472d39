//! What a command that does one thing to a queue needs.

use std::future::Future;

use anyhow::Context;
use foundationdb::{Database, Transaction};
use kvqueue_queue::{Queue, QueueError, RetryPolicy, Session, SessionId, retry};
use tokio::runtime;
use uuid::Uuid;

use super::globals::Globals;
use crate::{
    config::Config,
    database::{Store, patiently},
};

/// An open database and a runtime to wait for it.
pub(super) struct Client {
    store: Store,
    runtime: runtime::Runtime,
    config: Config,
}

impl Client {
    pub(super) fn open(globals: &Globals) -> anyhow::Result<Self> {
        let config = globals.start()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { store: Store::open(&config.database)?, runtime, config })
    }

    pub(super) fn db(&self) -> &Database {
        &self.store.db
    }

    pub(super) fn prefix(&self) -> &[u8] {
        self.config.prefix.as_bytes()
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// A session of this process's own.
    pub(super) fn session(queue: Queue) -> Session {
        Session::new(queue, SessionId(Uuid::now_v7().into_bytes()))
    }

    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Runs a transaction that may commit twice with the same result: a read, or a clear.
    pub(super) fn transact<T, R>(&self, body: impl FnMut(Transaction) -> R) -> anyhow::Result<T>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let done = self.wait(patiently(retry::run(self.db(), &RetryPolicy::default(), body)));
        done.map(|done| done.value).context("the database refused")
    }
}
