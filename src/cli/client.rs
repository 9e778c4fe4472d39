//! What a command that does one thing to a queue needs.

use std::{ffi::OsStr, future::Future, os::unix::ffi::OsStrExt};

use anyhow::Context;
use foundationdb::{Database, Transaction};
use kvqueue_queue::{Queue, QueueError, RetryPolicy, Session, SessionId, retry};
use tokio::runtime;
use uuid::Uuid;

use super::{UsageError, globals::Globals};
use crate::database::{Store, patiently};

/// An open database and a runtime to wait for it.
pub(super) struct Client {
    store: Store,
    runtime: runtime::Runtime,
    prefix: String,
}

impl Client {
    pub(super) fn open(globals: &Globals) -> anyhow::Result<Self> {
        let config = globals.start()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { store: Store::open(&config.database)?, runtime, prefix: config.prefix })
    }

    pub(super) fn db(&self) -> &Database {
        &self.store.db
    }

    pub(super) fn prefix(&self) -> &[u8] {
        self.prefix.as_bytes()
    }

    /// The queue of this name, any bytes.
    pub(super) fn queue(&self, name: &OsStr) -> Result<Queue, UsageError> {
        Queue::new(self.prefix(), name.as_bytes()).map_err(|error| UsageError(error.to_string()))
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
