//! The stats poller: what it knows of the queues, and a round of reading them. Its reads conflict with no other
//! transaction.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use foundationdb::{Database, FdbError, Transaction};
use futures::{StreamExt, future::join4, stream};
use kvqueue_queue::{Counts, ItemId, LimitError, Queue, QueueError};
use tokio::time::timeout;

use super::schedule::{self, PERIOD, Reading, VIEWED_PERIOD};
use crate::{
    base::causes::with_causes,
    config::Config,
    database::{STORAGE_FAILED, storage_failure},
    status::{DaemonStatus, QueueStats},
};

/// A database that does not say its version within this time does not answer.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Reading a queue is given up after this time, before its transaction gets too old.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many queues are read at a time.
const AT_ONCE: usize = 4;

/// A configured queue, and when it was read last.
struct PolledQueue {
    queue: Queue,
    reading: Option<Reading>,
}

/// Reads the statistics of all configured queues into the status.
pub(super) struct StatsPoller {
    db: Arc<Database>,
    status: Arc<DaemonStatus>,
    queues: BTreeMap<Arc<str>, PolledQueue>,
    /// The last round; none before the first one, and when a queue is new.
    round: Option<Reading>,
    /// How many requests there were, and how many of them are answered.
    requests: u64,
    answered: u64,
    /// When the first request came that is not answered.
    requested: Option<Instant>,
    /// Since when the database does not answer.
    silent: Option<Instant>,
}

impl StatsPoller {
    pub(super) fn new(db: Arc<Database>, status: Arc<DaemonStatus>) -> Self {
        Self {
            db,
            status,
            queues: BTreeMap::new(),
            round: None,
            requests: 0,
            answered: 0,
            requested: None,
            silent: None,
        }
    }

    /// Takes over the configured queues. Queues that stay keep their figures.
    pub(super) fn configure(&mut self, config: &Config) {
        let mut before = std::mem::take(&mut self.queues);
        for (name, settings) in &config.queues {
            // The daemon has checked it.
            let queue = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), settings.layout());
            let Ok(queue) = queue else { continue };
            let name: Arc<str> = name.as_str().into();
            let known = before.remove(&name).filter(|known| known.queue == queue);
            if known.is_none() {
                self.round = None;
            }
            self.queues.insert(name, known.unwrap_or(PolledQueue { queue, reading: None }));
        }
    }

    /// Notes how many requests for fresh figures there were.
    pub(super) fn requested(&mut self, requests: u64) {
        self.requests = requests;
        if requests > self.answered {
            self.requested.get_or_insert_with(Instant::now);
        }
    }

    /// When the next round begins.
    pub(super) fn next_round(&self) -> Instant {
        let Some(last) = self.round else { return Instant::now() };
        let readings = self.queues.values().filter_map(|queue| queue.reading);
        schedule::next_round(self.period(), last, self.requested, readings)
    }

    fn period(&self) -> Duration {
        if self.status.viewers.count() > 0 { VIEWED_PERIOD } else { PERIOD }
    }

    /// Reads the queues that are due, and answers the requests that came before.
    pub(super) async fn round(&mut self) {
        let (began, requests) = (Instant::now(), self.requests);
        let queues = self.queues.iter().map(|(name, queue)| (name.clone(), queue.reading));
        let due = schedule::due(began, self.period(), queues);
        let answer = self.read(&due).await;
        match &answer {
            Ok(_) => self.silent = None,
            Err(_) => _ = self.silent.get_or_insert(began),
        }
        let silent_for = || self.silent.unwrap_or(began).elapsed().as_secs();
        let answer =
            answer.map_err(|error| error.unwrap_or_else(|| format!("no answer for {} s", silent_for())));
        self.status.set_database(answer);
        // Four at a time, so their times add up to more than the round's.
        let took = due.iter().filter_map(|name| self.queues[name].reading).map(|reading| reading.took).sum();
        self.round = Some(Reading { began, took });
        self.answered = requests;
        self.requested = None;
        self.status.viewers.answer(requests);
    }

    /// Reads these queues as of one version. Returns how fast the database answers; an error says what is
    /// wrong with it, or nothing if it does not answer.
    async fn read(&mut self, due: &[Arc<str>]) -> Result<Duration, Option<String>> {
        let began = Instant::now();
        let version = match timeout(VERSION_TIMEOUT, version(&self.db)).await {
            Ok(Ok(version)) => version,
            Ok(Err(error)) => return Err(Some(error.to_string())),
            Err(_) => return Err(None),
        };
        let answered_in = began.elapsed();
        let (db, queues) = (&self.db, &self.queues);
        let samples = due.iter().map(|name| async move {
            let began = Instant::now();
            let sampled = timeout(SAMPLE_TIMEOUT, sample(db, &queues[name].queue, version)).await;
            (name, sampled, Reading { began, took: began.elapsed() })
        });
        let samples: Vec<_> = stream::iter(samples).buffer_unordered(AT_ONCE).collect().await;
        let (mut storage_failure, mut is_silent) = (None, !due.is_empty());
        for (name, sampled, reading) in samples {
            is_silent &= sampled.is_err();
            if let Some(queue) = self.queues.get_mut(name) {
                queue.reading = Some(reading);
            }
            match sampled {
                Ok(Ok(stats)) => self.status.set_queue_stats(name, stats),
                Ok(Err(error)) => storage_failure = failed(name, &error).or(storage_failure),
                Err(_) => {}
            }
        }
        if storage_failure.is_some() || is_silent { Err(storage_failure) } else { Ok(answered_in) }
    }
}

/// Logs that a queue could not be read. That need not be the database's fault; if its storage has failed,
/// returns what is wrong.
fn failed(queue: &str, error: &QueueError) -> Option<String> {
    tracing::debug!(
        event = "stats_failed",
        queue,
        error = with_causes(error),
        "cannot read the queue's statistics"
    );
    let is_storage = error.database().map(FdbError::code) == Some(STORAGE_FAILED);
    is_storage.then(|| format!("its storage failed: {}", storage_failure()))
}

/// Database versions in a second.
const VERSIONS: u64 = 1_000_000;

/// The version to read at. All queues of a round are read as of one.
async fn version(db: &Database) -> Result<i64, FdbError> {
    db.create_trx()?.get_read_version().await
}

/// The statistics of a queue at this version.
async fn sample(db: &Database, queue: &Queue, version: i64) -> Result<QueueStats, QueueError> {
    let tr = db.create_trx()?;
    tr.set_read_version(version);
    let (counts, oldest, versions, blocked) =
        join4(queue.counts(&tr), queue.oldest(&tr), queue.check_versions(&tr), blocked_keys(queue, &tr))
            .await;
    let (counts, oldest, blocked_keys) = (counts?, oldest?, blocked?);
    let versions_went_back = match versions {
        Err(QueueError::VersionsWentBack { .. }) => true,
        versions => versions.map(|()| false)?,
    };
    let Counts { ready, running, waiting, dead, done, pushed } = counts;
    let oldest = oldest.and_then(|id| age(&id, version));
    Ok(QueueStats { ready, running, waiting, dead, done, pushed, oldest, versions_went_back, blocked_keys })
}

/// How many keys dead letters block, if the queue has keys.
async fn blocked_keys(queue: &Queue, tr: &Transaction) -> Result<Option<u64>, QueueError> {
    match queue.blocked_keys(tr).await {
        Ok(blocked) => Ok(Some(blocked)),
        Err(LimitError::Queue(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// How long ago an item was pushed, if its id has a stamp: a stamp is a version, and versions count
/// microseconds.
fn age(id: &ItemId, version: i64) -> Option<Duration> {
    let pushed = id.stamp()?.version();
    let versions = u64::try_from(version).ok()?.saturating_sub(pushed);
    Some(Duration::from_secs_f64(versions as f64 / VERSIONS as f64))
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::Stamp;

    use super::*;

    #[test]
    fn the_age_of_an_item_comes_from_its_version() {
        let mut stamp = [0; Stamp::LEN];
        stamp[..8].copy_from_slice(&4_000_000_u64.to_be_bytes());
        let id = ItemId::from(Stamp::from(stamp));
        assert_eq!(age(&id, 5_500_000), Some(Duration::from_millis(1_500)));
        // Read as of a moment before.
        assert_eq!(age(&id, 1), Some(Duration::ZERO));
        assert_eq!(age(&"x01".parse().unwrap(), 5_500_000), None);
    }
}
