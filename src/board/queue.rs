//! What is known of one queue.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    history::History,
    view::{OutageView, PauseView, QueueView, SurveyView},
};
use crate::{
    config::QueueConfig,
    consumer::{
        ambient,
        breaker::{Breaker, Outage},
        gate::Gate,
    },
    metrics::QueueMeters,
};

/// What a look into the database found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) ready: i64,
    pub(crate) running: u64,
    pub(crate) waiting: i64,
    pub(crate) dead: i64,
    /// Finished since the queue was made.
    pub(crate) done: u64,
    /// Pushed since the queue was made, where producers count that.
    pub(crate) pushed: Option<u64>,
    /// How long the oldest ready item has waited.
    pub(crate) oldest: Option<Duration>,
    /// Whether the database's versions are behind its items: nothing can be pushed.
    pub(crate) versions_went_back: bool,
}

/// One queue on the board.
#[derive(Debug)]
pub(super) struct Entry {
    kind: String,
    delivery: String,
    handler: String,
    gate: Gate,
    breaker: Arc<Breaker>,
    meters: Arc<QueueMeters>,
    survey: Option<(Survey, Instant)>,
    pub(super) history: History,
}

impl Entry {
    pub(super) fn new(
        config: &QueueConfig,
        gate: Gate,
        breaker: Arc<Breaker>,
        meters: Arc<QueueMeters>,
    ) -> Self {
        Self {
            kind: text(&config.kind),
            delivery: text(&config.delivery),
            handler: config.handler.clone(),
            gate,
            breaker,
            meters,
            survey: None,
            history: History::default(),
        }
    }

    /// The same queue under other settings.
    pub(super) fn configure(&mut self, config: &QueueConfig) {
        self.kind = text(&config.kind);
        self.delivery = text(&config.delivery);
        self.handler.clone_from(&config.handler);
    }

    pub(super) fn surveyed(&mut self, survey: Survey) {
        let now = Instant::now();
        self.survey = Some((survey, now));
        let finished = self.meters.done.get();
        self.history.add(now, ambient::now(), &survey, finished);
    }

    /// Since when and why the handler cannot work, if it cannot.
    pub(super) fn outage(&self) -> Option<Outage> {
        self.breaker.outage()
    }

    pub(super) fn view(&self, name: &str, consumers: usize, take_error: Option<String>) -> QueueView {
        QueueView {
            queue: name.to_owned(),
            kind: self.kind.clone(),
            delivery: self.delivery.clone(),
            handler: self.handler.clone(),
            paused: self.gate.hold().map(PauseView::from),
            paused_here: self.gate.is_held_here(),
            unavailable: self.outage().map(|Outage { since, reason, tries }| OutageView {
                since,
                reason,
                tries,
            }),
            take_error,
            survey: self.survey.map(|(survey, at)| self.survey_view(&survey, at)),
            in_flight: self.meters.in_flight.get(),
            finished: self.meters.finished(),
            consumers,
        }
    }

    fn survey_view(&self, survey: &Survey, at: Instant) -> SurveyView {
        let rates = self.history.rates();
        SurveyView {
            ready: survey.ready,
            running: survey.running,
            waiting: survey.waiting,
            dead: survey.dead,
            done: survey.done,
            pushed: survey.pushed,
            versions_went_back: survey.versions_went_back,
            oldest_age: survey.oldest.map(|age| age.as_secs_f64()),
            in_rate: rates.inward,
            out_rate: rates.outward,
            looked: at.elapsed().as_secs_f64(),
        }
    }
}

/// How a configuration file says it.
fn text(value: &impl serde::Serialize) -> String {
    toml::Value::try_from(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}
