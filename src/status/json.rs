//! The JSON of `/api/v1/status`, of `kvqueue status --json`, and of the page's events.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{WorkerCounts, WorkerJson};
use crate::{base::json::PauseJson, consumer::status::ConsumerState};

/// The phase of the daemon between its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// The database has not been read yet, or the consumers have not started.
    Starting,
    /// It fetches items.
    Ready,
    /// It reloads the configuration.
    Reloading,
    /// It finishes its running items, and ends.
    Draining,
}

/// The daemon at one moment. Times of day are milliseconds since 1970, ages are in seconds, rates in items a second.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) pid: u32,
    pub(crate) version: &'static str,
    pub(crate) phase: Phase,
    pub(crate) started_at: u64,
    /// How long ago that was, whatever the clock has done since.
    pub(crate) up_seconds: f64,
    /// Why it is not ready; empty if it is.
    pub(crate) not_ready: Vec<String>,
    /// How far this machine's clock is from that of another process that works on its queues, if that is much.
    pub(crate) clock: Option<String>,
    pub(crate) database: DatabaseJson,
    pub(crate) config: ConfigJson,
    pub(crate) queues: Vec<QueueJson>,
    pub(crate) consumers: Vec<ConsumerJson>,
    /// Some of the workers of other programs that this daemon knows.
    pub(crate) workers: Vec<WorkerJson>,
    /// How many more there are.
    pub(crate) omitted_workers: usize,
}

/// The database as last seen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DatabaseJson {
    pub(crate) url: String,
    /// Equal for all URLs of the same database.
    pub(crate) identity: String,
    pub(crate) up: bool,
    /// Its last error, or that it does not answer.
    pub(crate) error: Option<String>,
    /// How long its last answer took, in seconds.
    pub(crate) answered_in: Option<f64>,
    /// Of an embedded database; none before it was read first.
    pub(crate) space: Option<SpaceJson>,
}

/// Free space on the disk of an embedded database, in bytes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SpaceJson {
    pub(crate) free: u64,
    /// The size of the file system.
    pub(crate) total: u64,
    /// Pushes are refused while less is free; 0 if there is no limit.
    pub(crate) min_free: u64,
    /// Where that limit is from, in words.
    pub(crate) limit_from: &'static str,
    /// The free part of the database's file, which counts as free space. 0 if another process hosts the database.
    pub(crate) reusable: u64,
    /// Why pushes are refused, if they are.
    pub(crate) pushes_refused: Option<String>,
}

/// The active configuration.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ConfigJson {
    /// The file, if there is one.
    pub(crate) path: Option<String>,
    pub(crate) loaded_at: u64,
    /// Why the last one was refused, if it was.
    pub(crate) refused: Option<String>,
    /// Queues with consumers that still finish items under earlier settings.
    pub(crate) finishing: BTreeSet<String>,
}

/// One configured queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueJson {
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) delivery: String,
    pub(crate) handler: String,
    /// For all daemons, by a key in the database.
    pub(crate) paused: Option<PauseJson>,
    /// For this daemon alone.
    pub(crate) paused_locally: bool,
    /// The handler cannot work in this daemon.
    pub(crate) unavailable: Option<OutageJson>,
    /// Why fetches of this daemon fail, while they do.
    pub(crate) fetch_error: Option<String>,
    /// Its statistics; none before they were read first.
    #[serde(flatten)]
    pub(crate) stats: Option<QueueStatsJson>,
    /// Items that handlers of this daemon have now.
    pub(crate) in_flight: i64,
    /// Items that this daemon finished, done or dead, since it started.
    pub(crate) finished: u64,
    pub(crate) consumers: usize,
    /// Workers of other programs that lease its items from this daemon.
    pub(crate) workers: WorkerCounts,
}

/// Since when and why a handler cannot work.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OutageJson {
    pub(crate) since: u64,
    pub(crate) reason: String,
    /// Tries in a row in which it could not.
    pub(crate) tries: u32,
}

/// The statistics of a queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueStatsJson {
    pub(crate) ready: i64,
    pub(crate) running: u64,
    pub(crate) waiting: i64,
    pub(crate) dead: i64,
    pub(crate) done: u64,
    /// Pushed since the queue was made, where producers count that.
    pub(crate) pushed: Option<u64>,
    /// The database's versions are behind the queue's items, as after a restore into a new cluster.
    pub(crate) versions_went_back: bool,
    /// Keys that dead letters block, if the queue has keys.
    pub(crate) blocked_keys: Option<u64>,
    /// How long the oldest ready item has waited.
    pub(crate) oldest_age: Option<f64>,
    pub(crate) in_rate: f64,
    pub(crate) out_rate: f64,
    /// How old these figures are.
    pub(crate) looked: f64,
}

/// One consumer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConsumerJson {
    pub(crate) id: u64,
    pub(crate) queue: String,
    pub(crate) k: usize,
    pub(crate) state: ConsumerState,
    /// How long the state has lasted.
    pub(crate) for_seconds: f64,
    pub(crate) restarts: u64,
}
