//! Queues that are paused, as the database has it: they wait also where no daemon runs, or none has them.

use std::collections::BTreeSet;

use foundationdb::{
    Database,
    tuple::{Bytes, unpack},
};
use futures::{StreamExt, TryStreamExt, stream};
use kvqueue_queue::{Queue, QueueError, RetryPolicy, all_queues};

use super::findings::Findings;
use crate::{
    cli::status::{Figures, fitting},
    config::Config,
    telemetry::listed,
};

const ABOUT: &str = "pauses";

/// Longer names of queues are cut.
const NAME: usize = 40;

/// How many queues are read at a time.
const TOGETHER: usize = 16;

/// The second element of a pause's key (docs/KEYSPACE.md).
const PAUSE: &[u8] = b"pause";

/// The names of paused queues.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeSet<Vec<u8>>);

impl Pauses {
    /// Looks at a row of a database that is read through.
    pub(super) fn show(&mut self, prefix: &[u8], key: &[u8]) {
        let key = key.strip_prefix(prefix).and_then(|key| unpack::<(Bytes, Bytes)>(key).ok());
        if let Some((queue, Bytes(second))) = key
            && *second == *PAUSE
        {
            self.0.insert(queue.into_owned());
        }
    }

    /// Of a database that is used.
    pub(super) async fn of(db: &Database, config: &Config) -> anyhow::Result<Self> {
        let prefix = config.prefix.as_bytes();
        let mut names = all_queues(db, prefix, &RetryPolicy::default()).await?;
        names.extend(config.queues.keys().map(|name| name.clone().into_bytes()));
        let tr = &db.create_trx()?;
        let paused = stream::iter(names).map(async |name| {
            let Ok(queue) = Queue::new(prefix, &name) else { return Ok(None) };
            Ok::<_, QueueError>(queue.paused(tr).await?.map(|_| name))
        });
        Ok(Self(paused.buffered(TOGETHER).try_filter_map(async |name| Ok(name)).try_collect().await?))
    }

    /// Adds a note for the ones that the daemon has not reported.
    pub(super) fn tell(self, told: Option<&Figures>, findings: &mut Findings) {
        let names = self.0.iter().map(|name| String::from_utf8_lossy(name));
        let is_told = |name: &str| {
            told.is_some_and(|told| told.queues.iter().any(|it| it.queue == *name && it.paused.is_some()))
        };
        let names: Vec<_> = names.filter(|name| !is_told(name)).map(|name| fitting(&name, NAME)).collect();
        if !names.is_empty() {
            let text = format!("paused, or frozen by a migration: {}", listed(&names));
            findings.note(
                ABOUT,
                text,
                "kvqueue status says why; kvqueue resume QUEUE has a queue's items taken again",
            );
        }
    }
}
