//! The daemon's status as far as it is shown. Missing and unknown fields of other versions do no harm.

use std::path::Path;

use anyhow::Context;
use kvqueue_queue::{Counts, Pause};
use serde::Deserialize;
use serde_json::Value;

use super::workers::{Counts as WorkerCounts, Worker};
use crate::database::identity;

/// The path of a daemon's figures.
pub(in crate::cli) const STATUS: &str = "/api/v1/status";

pub(in crate::cli) fn read(answer: &Value) -> anyhow::Result<Figures> {
    Deserialize::deserialize(answer).context("the daemon's figures cannot be read; is it of another version?")
}

/// A daemon at one moment: `/api/v1/status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Figures {
    pub(in crate::cli) pid: u32,
    pub(in crate::cli) version: String,
    pub(super) phase: String,
    pub(super) started_at: u64,
    /// Earlier versions do not say it.
    pub(super) up_seconds: Option<f64>,
    pub(in crate::cli) not_ready: Vec<String>,
    pub(in crate::cli) clock: Option<String>,
    pub(in crate::cli) database: Database,
    pub(in crate::cli) config: Configuration,
    pub(in crate::cli) queues: Vec<QueueFigures>,
    pub(super) consumers: Vec<Consumer>,
    pub(super) workers: Vec<Worker>,
    pub(super) omitted_workers: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Database {
    pub(in crate::cli) url: String,
    identity: String,
    pub(super) answered_in: Option<f64>,
    pub(in crate::cli) space: Option<Space>,
}

/// Free space on the database's disk, in bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) min_free: u64,
    pub(super) limit_from: String,
    pub(super) reusable: u64,
    pub(in crate::cli) pushes_refused: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Configuration {
    pub(super) path: Option<String>,
    pub(in crate::cli) refused: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Consumer {
    pub(super) queue: String,
    pub(super) state: String,
}

/// A queue. Figures that are not known yet are none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct QueueFigures {
    pub(in crate::cli) queue: String,
    pub(in crate::cli) paused: Option<Paused>,
    pub(in crate::cli) paused_locally: bool,
    pub(in crate::cli) unavailable: Option<Unavailable>,
    pub(in crate::cli) fetch_error: Option<String>,
    pub(in crate::cli) ready: Option<i64>,
    pub(super) running: Option<u64>,
    pub(super) waiting: Option<i64>,
    pub(in crate::cli) dead: Option<i64>,
    pub(super) done: Option<u64>,
    pub(super) versions_went_back: bool,
    /// Of a keyed queue.
    pub(super) blocked_keys: Option<u64>,
    pub(super) oldest_age: Option<f64>,
    pub(super) in_rate: Option<f64>,
    pub(in crate::cli) out_rate: Option<f64>,
    pub(super) looked: f64,
    pub(super) workers: WorkerCounts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Paused {
    pub(super) reason: String,
    pub(super) frozen: bool,
}

/// Why a handler cannot work.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Unavailable {
    pub(in crate::cli) reason: String,
}

impl Database {
    /// Whether it is the one that is called so here.
    pub(in crate::cli) fn is(&self, url: &str) -> bool {
        self.url == url || self.identity == identity(url)
    }
}

impl Configuration {
    /// Whether it is from this file.
    pub(in crate::cli) fn is(&self, file: &Path) -> bool {
        self.path.as_deref().is_some_and(|path| Path::new(path) == file)
    }
}

impl QueueFigures {
    /// Whether nothing may change in it: it is moved to another database, or was.
    pub(in crate::cli) fn is_frozen(&self) -> bool {
        self.paused.as_ref().is_some_and(|paused| paused.frozen)
    }

    /// Why it is paused, if it is.
    pub(in crate::cli) fn pause_reason(&self) -> &str {
        self.paused.as_ref().map_or("", |paused| &paused.reason)
    }

    /// Of what the database alone has.
    pub(super) fn of(name: &[u8], counts: Counts, pause: Option<Pause>) -> Self {
        let Counts { ready, running, waiting, dead, done, .. } = counts;
        Self {
            queue: name.escape_ascii().to_string(),
            paused: pause.map(|Pause { reason, frozen, .. }| Paused { reason, frozen }),
            ready: Some(ready),
            running: Some(running),
            waiting: Some(waiting),
            dead: Some(dead),
            done: Some(done),
            ..Self::default()
        }
    }
}
