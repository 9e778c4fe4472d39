//! The status of one queue.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    WorkerCounts,
    history::History,
    json::{OutageJson, QueueJson, QueueStatsJson},
};
use crate::{
    base::{clock, json::PauseJson},
    config::QueueConfig,
    consumer::{
        breaker::{Breaker, Outage},
        pause_state::PauseState,
    },
    meters::QueueMeters,
};
use kvqueue_queue::millis;

/// The statistics of a queue, read from the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueStats {
    pub(crate) ready: i64,
    pub(crate) running: u64,
    pub(crate) waiting: i64,
    pub(crate) dead: i64,
    /// Finished since the queue was made.
    pub(crate) done: u64,
    /// Pushed since the queue was made, if producers count that.
    pub(crate) pushed: Option<u64>,
    /// How long the oldest ready item has waited.
    pub(crate) oldest: Option<Duration>,
    /// Whether the database's versions are behind its items: nothing can be pushed.
    pub(crate) versions_went_back: bool,
    /// Keys that dead letters block, if the queue has keys.
    pub(crate) blocked_keys: Option<u64>,
}

/// The status of one queue.
#[derive(Debug)]
pub(super) struct Entry {
    kind: String,
    delivery: String,
    handler: String,
    pause: PauseState,
    breaker: Arc<Breaker>,
    meters: Arc<QueueMeters>,
    stats: Option<(QueueStats, Instant)>,
    pub(super) history: History,
}

impl Entry {
    pub(super) fn new(
        config: &QueueConfig,
        pause: PauseState,
        breaker: Arc<Breaker>,
        meters: Arc<QueueMeters>,
    ) -> Self {
        Self {
            kind: text(&config.kind),
            delivery: text(&config.delivery),
            handler: config.handler.clone(),
            pause,
            breaker,
            meters,
            stats: None,
            history: History::default(),
        }
    }

    /// Takes over other settings of the queue.
    pub(super) fn configure(&mut self, config: &QueueConfig) {
        self.kind = text(&config.kind);
        self.delivery = text(&config.delivery);
        self.handler.clone_from(&config.handler);
    }

    pub(super) fn set_queue_stats(&mut self, stats: QueueStats) {
        let now = Instant::now();
        self.stats = Some((stats, now));
        let finished = self.meters.done.get();
        self.history.add(now, clock::now(), &stats, finished);
    }

    /// Whether the queue is paused, for all daemons or for this one.
    pub(super) fn is_paused(&self) -> bool {
        self.pause.global().is_some() || self.pause.is_paused_locally()
    }

    pub(super) fn in_flight(&self) -> i64 {
        self.meters.in_flight.get()
    }

    pub(super) fn finished(&self) -> u64 {
        self.meters.finished()
    }

    /// Since when and why the handler cannot work, if it cannot.
    pub(super) fn outage(&self) -> Option<Outage> {
        self.breaker.outage()
    }

    pub(super) fn view(&self, name: &str, consumers: usize, fetch_error: Option<String>) -> QueueJson {
        QueueJson {
            queue: name.to_owned(),
            kind: self.kind.clone(),
            delivery: self.delivery.clone(),
            handler: self.handler.clone(),
            paused: self.pause.global().map(PauseJson::from),
            paused_locally: self.pause.is_paused_locally(),
            unavailable: self.outage().map(|Outage { since, reason, tries }| OutageJson {
                since: millis(since),
                reason,
                tries,
            }),
            fetch_error,
            stats: self.stats.map(|(stats, at)| self.stats_json(&stats, at)),
            in_flight: self.meters.in_flight.get(),
            finished: self.meters.finished(),
            consumers,
            workers: WorkerCounts::default(),
        }
    }

    fn stats_json(&self, stats: &QueueStats, at: Instant) -> QueueStatsJson {
        let rates = self.history.rates();
        QueueStatsJson {
            ready: stats.ready,
            running: stats.running,
            waiting: stats.waiting,
            dead: stats.dead,
            done: stats.done,
            pushed: stats.pushed,
            versions_went_back: stats.versions_went_back,
            blocked_keys: stats.blocked_keys,
            oldest_age: stats.oldest.map(|age| age.as_secs_f64()),
            in_rate: rates.inward,
            out_rate: rates.outward,
            looked: at.elapsed().as_secs_f64(),
        }
    }
}

/// The value as a configuration file has it.
fn text(value: &impl serde::Serialize) -> String {
    toml::Value::try_from(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}
