//! The whole state in the log.

use crate::{
    base::json::json_name,
    status::{ConsumerJson, DaemonStatus, QueueJson},
    telemetry,
};

/// The most consumers that are listed; the others are only counted.
const CONSUMERS: usize = 1_000;

/// Logs the status.
pub(super) fn report(status: &DaemonStatus) {
    let state = status.snapshot();
    tracing::info!(
        event = "daemon_status",
        version = state.version,
        phase = json_name(&state.phase),
        database = state.database.url,
        not_ready = state.not_ready.join("; "),
        configuration = state.config.path,
        refused = state.config.refused,
        finishing = telemetry::listed(&state.config.finishing.into_iter().collect::<Vec<_>>()),
        queues = state.queues.len(),
        consumers = state.consumers.len(),
        "daemon status"
    );
    state.queues.iter().for_each(queue);
    state.consumers.iter().take(CONSUMERS).for_each(consumer);
    let untold = state.consumers.len().saturating_sub(CONSUMERS);
    if untold > 0 {
        tracing::info!(
            event = "consumers_omitted",
            consumers = untold,
            "status of further consumers omitted"
        );
    }
}

fn queue(view: &QueueJson) {
    let stats = view.stats.as_ref();
    tracing::info!(
        event = "queue_status",
        queue = view.queue,
        kind = view.kind,
        delivery = view.delivery,
        handler = view.handler,
        paused = view.paused.is_some(),
        reason = view.paused.as_ref().map(|pause| pause.reason.as_str()),
        paused_locally = view.paused_locally,
        unavailable = view.unavailable.as_ref().map(|outage| outage.reason.as_str()),
        ready = stats.map(|stats| stats.ready),
        running = stats.map(|stats| stats.running),
        waiting = stats.map(|stats| stats.waiting),
        dead = stats.map(|stats| stats.dead),
        in_flight = view.in_flight,
        finished = view.finished,
        consumers = view.consumers,
        "queue status"
    );
}

fn consumer(view: &ConsumerJson) {
    tracing::info!(
        event = "consumer_status",
        consumer = view.id,
        queue = view.queue,
        k = view.k,
        state = json_name(&view.state),
        for_seconds = view.for_seconds,
        restarts = view.restarts,
        "consumer status"
    );
}
