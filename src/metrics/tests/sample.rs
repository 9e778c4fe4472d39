//! Metrics of which each has a figure.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    config::{Config, QueueConfig},
    meters::{QueueMeters, Request},
    metrics::render,
    status::{DaemonStatus, QueueStats, SpaceJson},
};

/// A name that the format has to escape; and one without consumers or figures.
pub(super) const QUEUES: [&str; 2] = ["a \"b\" \\c\nd", "quiet"];

/// A daemon's status.
pub(super) fn status() -> Arc<DaemonStatus> {
    let mut config = Config::default();
    config.queues.extend(QUEUES.map(|name| (name.to_owned(), QueueConfig::new("log"))));
    let status = DaemonStatus::new("embedded:/var/lib/kvqueue");
    status.configure(None, &config);
    let [name, _] = QUEUES;
    let stats = QueueStats {
        ready: 3,
        running: 2,
        waiting: 1,
        dead: 4,
        done: 9,
        pushed: Some(17),
        blocked_keys: Some(5),
        ..QueueStats::default()
    };
    status.set_queue_stats(name, QueueStats { oldest: Some(Duration::from_millis(2_500)), ..stats });
    status.set_database(Ok(Duration::from_micros(350)));
    let refused = Some("the disk is full".to_owned());
    status.space(SpaceJson {
        free: 1 << 20,
        total: 1 << 30,
        min_free: 2 << 20,
        limit_from: "the default",
        reusable: 0,
        pushes_refused: refused,
    });
    status.pause_state(&name.into()).pause_locally(true);
    status.join(1, &name.into(), std::num::NonZeroUsize::MIN, 0);
    status.refused("bad".to_owned());
    status.metrics.requests.get_or_create(&Request { route: "/metrics", code: 200 }).inc();
    count(&status.metrics.queue(&name.into()));
    status
}

fn count(meters: &QueueMeters) {
    meters.fetched.inc_by(10);
    meters.done.inc_by(7);
    meters.lost.inc();
    meters.dead_removal.store(1_790_000_000_500, Ordering::Relaxed);
    for seconds in [0.0, 0.001, 70.0] {
        meters.handle_seconds.observe(seconds);
    }
}

/// The text for Prometheus.
pub(super) fn text(status: &DaemonStatus) -> String {
    render(&status.metrics, status.snapshot())
}
