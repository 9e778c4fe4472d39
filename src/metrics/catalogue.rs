//! All metrics: the only list of their names. Tests compare
//! docs/METRICS.md, the dashboards and the alerts with it.

use Figures::{Computed, Queue, Queues, Requests, Timed};
use prometheus_client::metrics::{
    MetricType::{self, Gauge},
    counter::Counter,
    histogram::Histogram,
};

use super::{
    computed,
    scrape::{Samples, Scrape},
};
use crate::meters::QueueMeters;

/// One metric.
pub(crate) struct Metric {
    /// Its name. A counter's ends in `_total`.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricType,
    pub(crate) labels: &'static [&'static str],
    /// One sentence without its full stop, for Prometheus and docs/METRICS.md.
    pub(crate) help: &'static str,
    pub(super) figures: Figures,
}

/// A counter of a queue's meters.
pub(super) type Read = fn(&QueueMeters) -> &Counter;

/// The source of a metric's figures.
pub(super) enum Figures {
    /// A counter for each queue.
    Queue(Read),
    /// Several counters for each queue, by the value of the second label.
    Queues(&'static [(&'static str, Read)]),
    /// A histogram for each queue.
    Timed(fn(&QueueMeters) -> &Histogram),
    /// The answers to HTTP requests.
    Requests,
    /// A function of `computed`, which reads the status or the process at each scrape.
    Computed(fn(&Scrape, &mut Samples<'_>)),
}

/// All metrics, in the order in which they are written.
pub(crate) const CATALOGUE: &[Metric] = &[
    Metric {
        name: "kvqueue_build_info",
        kind: Gauge,
        labels: &["version", "revision"],
        help: "1, with what this program was built from",
        figures: Computed(computed::build),
    },
    Metric {
        name: "kvqueue_ready",
        kind: Gauge,
        labels: &[],
        help: "1 while the daemon fetches items: it has started, is not stopping, and its database answers",
        figures: Computed(computed::ready),
    },
    Metric {
        name: "kvqueue_queue_items",
        kind: Gauge,
        labels: &["queue", "state"],
        help: "Items in the database, of all daemons, by what they are doing: state is ready, running, waiting (scheduled or retrying) or dead",
        figures: Computed(computed::items),
    },
    Metric {
        name: "kvqueue_queue_pushed_total",
        kind: MetricType::Counter,
        labels: &["queue"],
        help: "Items ever pushed to the queue in the database, by all producers; each item once, however often it is tried",
        figures: Computed(computed::pushed),
    },
    Metric {
        name: "kvqueue_queue_oldest_ready_age_seconds",
        kind: Gauge,
        labels: &["queue"],
        help: "How long the first ready item has been in the queue; 0 if none is ready",
        figures: Computed(computed::oldest),
    },
    Metric {
        name: "kvqueue_blocked_keys",
        kind: Gauge,
        labels: &["queue"],
        help: "Keys of a keyed queue in the database that dead letters block until an operator acts",
        figures: Computed(computed::blocked),
    },
    Metric {
        name: "kvqueue_queue_dead_removal_timestamp_seconds",
        kind: Gauge,
        labels: &["queue"],
        help: "When the oldest dead letter of the queue will be removed by dead-retention, in seconds since 1970; only with dead letters, from the daemon whose sweeper is on duty",
        figures: Computed(computed::dead_removal),
    },
    Metric {
        name: "kvqueue_queue_count_age_seconds",
        kind: Gauge,
        labels: &["queue"],
        help: "How long ago the database was asked for the figures of kvqueue_queue_items",
        figures: Computed(computed::stats_age),
    },
    Metric {
        name: "kvqueue_queue_paused",
        kind: Gauge,
        labels: &["queue", "scope"],
        help: "1 while fetches are held back: scope is all for all daemons, daemon for this one alone",
        figures: Computed(computed::paused),
    },
    Metric {
        name: "kvqueue_handler_unavailable",
        kind: Gauge,
        labels: &["queue"],
        help: "1 while the handler cannot work in this daemon, as when its program is missing or its target is out: items go back without an attempt, and one at a time is tried",
        figures: Computed(computed::unavailable),
    },
    Metric {
        name: "kvqueue_items_in_flight",
        kind: Gauge,
        labels: &["queue"],
        help: "Items that handlers have now",
        figures: Computed(computed::in_flight),
    },
    Metric {
        name: "kvqueue_exec_processes",
        kind: Gauge,
        labels: &["queue"],
        help: "Processes of the handler exec that run, with mode = \"worker\"",
        figures: Computed(computed::processes),
    },
    Metric {
        name: "kvqueue_exec_process_restarts_total",
        kind: MetricType::Counter,
        labels: &["queue", "reason"],
        help: "Processes of the handler exec that were replaced, with mode = \"worker\": reason is died, hung, protocol, max-items or max-memory",
        figures: Queues(&[
            ("died", |meters| &meters.processes.died),
            ("hung", |meters| &meters.processes.hung),
            ("protocol", |meters| &meters.processes.protocol),
            ("max-items", |meters| &meters.processes.max_items),
            ("max-memory", |meters| &meters.processes.max_memory),
        ]),
    },
    Metric {
        name: "kvqueue_items_fetched_total",
        kind: MetricType::Counter,
        labels: &["queue"],
        help: "Items that fetches brought",
        figures: Queue(|meters| &meters.fetched),
    },
    Metric {
        name: "kvqueue_items_finished_total",
        kind: MetricType::Counter,
        labels: &["queue", "outcome"],
        help: "Items that were taken, by what became of them: outcome is done, retry, dead, released, throttled, expired (before its first attempt), cancelled or lost",
        figures: Queues(&[
            ("done", |meters| &meters.done),
            ("retry", |meters| &meters.retried),
            ("dead", |meters| &meters.dead),
            ("released", |meters| &meters.released),
            ("throttled", |meters| &meters.throttled),
            ("expired", |meters| &meters.expired),
            ("cancelled", |meters| &meters.cancelled),
            ("lost", |meters| &meters.lost),
        ]),
    },
    Metric {
        name: "kvqueue_fetches_total",
        kind: MetricType::Counter,
        labels: &["queue", "result"],
        help: "Takes, by what they found: result is items, empty or failed",
        figures: Queues(&[
            ("items", |meters| &meters.fetches_items),
            ("empty", |meters| &meters.fetches_empty),
            ("failed", |meters| &meters.fetches_failed),
        ]),
    },
    Metric {
        name: "kvqueue_fetch_conflicts_total",
        kind: MetricType::Counter,
        labels: &["queue"],
        help: "Attempts of fetches that lost against another process",
        figures: Queue(|meters| &meters.conflicts),
    },
    Metric {
        name: "kvqueue_fetch_duration_seconds",
        kind: MetricType::Histogram,
        labels: &["queue"],
        help: "Takes that brought items, from the first attempt to the commit",
        figures: Timed(|meters| &meters.fetch_seconds.0),
    },
    Metric {
        name: "kvqueue_handle_duration_seconds",
        kind: MetricType::Histogram,
        labels: &["queue"],
        help: "Calls of the handler",
        figures: Timed(|meters| &meters.handle_seconds.0),
    },
    Metric {
        name: "kvqueue_acknowledge_duration_seconds",
        kind: MetricType::Histogram,
        labels: &["queue"],
        help: "Transactions that write down what became of items, retries included",
        figures: Timed(|meters| &meters.acknowledge_seconds.0),
    },
    Metric {
        name: "kvqueue_start_latency_seconds",
        kind: MetricType::Histogram,
        labels: &["queue"],
        help: "From the push of an item to the first call of its handler, any delay it was pushed with included",
        figures: Timed(|meters| &meters.start_seconds.0),
    },
    Metric {
        name: "kvqueue_watch_wakeups_total",
        kind: MetricType::Counter,
        labels: &["queue"],
        help: "Watches of idle consumers that fired",
        figures: Queue(|meters| &meters.wakeups),
    },
    Metric {
        name: "kvqueue_leases_lost_total",
        kind: MetricType::Counter,
        labels: &["queue"],
        help: "Leases that this daemon lost while it had their items",
        figures: Queue(|meters| &meters.leases_lost),
    },
    Metric {
        name: "kvqueue_consumers",
        kind: Gauge,
        labels: &["queue", "state"],
        help: "Consumers, by what they do: state is fetching, paused, idle, handling, backoff, unavailable (its handler cannot work) or closing",
        figures: Computed(computed::consumers),
    },
    Metric {
        name: "kvqueue_remote_workers",
        kind: Gauge,
        labels: &["queue", "state"],
        help: "Workers of other programs at this daemon's HTTP: state is waiting (requests that wait for items) or working (leases)",
        figures: Computed(computed::workers),
    },
    Metric {
        name: "kvqueue_consumer_restarts_total",
        kind: MetricType::Counter,
        labels: &["queue"],
        help: "Consumers that failed and were replaced",
        figures: Queue(|meters| &meters.restarts),
    },
    Metric {
        name: "kvqueue_sweep_items_total",
        kind: MetricType::Counter,
        labels: &["queue", "kind"],
        help: "Items that this daemon's sweeps moved: kind is promoted (their time came), returned or dead (their lease ran out), expired (before their first attempt), removed (dead letters that were older than dead-retention), or orphaned (another program took them)",
        figures: Queues(&[
            ("promoted", |meters| &meters.promoted),
            ("returned", |meters| &meters.returned),
            ("dead", |meters| &meters.swept_dead),
            ("expired", |meters| &meters.swept_expired),
            ("removed", |meters| &meters.removed_dead),
            ("orphaned", |meters| &meters.orphaned),
        ]),
    },
    Metric {
        name: "kvqueue_schedule_occurrences_total",
        kind: MetricType::Counter,
        labels: &["queue", "outcome"],
        help: "Occurrences of schedules that this daemon's sweeps accounted for: outcome is fired, skipped (the last item had not ended) or missed (not in time, and not later either)",
        figures: Queues(&[
            ("fired", |meters| &meters.occurrences.fired),
            ("skipped", |meters| &meters.occurrences.skipped),
            ("missed", |meters| &meters.occurrences.missed),
        ]),
    },
    Metric {
        name: "kvqueue_batches_total",
        kind: MetricType::Counter,
        labels: &["queue", "outcome"],
        help: "Batches that this daemon's sweeps closed, by the queue of their callbacks: outcome is complete (all members ended) or deadline",
        figures: Queues(&[
            ("complete", |meters| &meters.batches.complete),
            ("deadline", |meters| &meters.batches.deadline),
        ]),
    },
    Metric {
        name: "kvqueue_config_reloads_total",
        kind: MetricType::Counter,
        labels: &["result"],
        help: "Configurations that were read while the daemon ran: result is applied or refused",
        figures: Computed(computed::reloads),
    },
    Metric {
        name: "kvqueue_config_last_reload_timestamp_seconds",
        kind: Gauge,
        labels: &[],
        help: "When the active configuration was read, in seconds since 1970",
        figures: Computed(computed::loaded),
    },
    Metric {
        name: "kvqueue_config_refused",
        kind: Gauge,
        labels: &[],
        help: "1 while the last configuration that was read is not active because it was refused",
        figures: Computed(computed::refused),
    },
    Metric {
        name: "kvqueue_database_up",
        kind: Gauge,
        labels: &[],
        help: "1 while the database answers",
        figures: Computed(computed::database),
    },
    Metric {
        name: "kvqueue_database_probe_seconds",
        kind: Gauge,
        labels: &[],
        help: "How long the database's last answer to a read took",
        figures: Computed(computed::probe),
    },
    Metric {
        name: "kvqueue_disk_free_bytes",
        kind: Gauge,
        labels: &[],
        help: "Free space on the disk of an embedded database",
        figures: Computed(computed::disk_free),
    },
    Metric {
        name: "kvqueue_disk_min_free_bytes",
        kind: Gauge,
        labels: &[],
        help: "min-free-space: pushes are refused while less is free; 0 without a limit",
        figures: Computed(computed::disk_min_free),
    },
    Metric {
        name: "kvqueue_disk_reusable_bytes",
        kind: Gauge,
        labels: &[],
        help: "Free space in the file of an embedded database, which counts as free for min-free-space; 0 if another process hosts it",
        figures: Computed(computed::disk_reusable),
    },
    Metric {
        name: "kvqueue_pushes_refused",
        kind: Gauge,
        labels: &[],
        help: "1 while pushes are refused because an embedded database has too little disk space",
        figures: Computed(computed::pushes_refused),
    },
    Metric {
        name: "kvqueue_http_requests_total",
        kind: MetricType::Counter,
        labels: &["route", "code"],
        help: "Answers to HTTP requests",
        figures: Requests,
    },
    Metric {
        name: "kvqueue_http_displaced_connections_total",
        kind: MetricType::Counter,
        labels: &[],
        help: "HTTP connections without a valid token that were closed because newer ones needed their places",
        figures: Computed(computed::displaced),
    },
    Metric {
        name: "kvqueue_log_dropped_total",
        kind: MetricType::Counter,
        labels: &[],
        help: "Log messages that were dropped because the log's reader was too slow, or because writing failed",
        figures: Computed(computed::log_dropped),
    },
    Metric {
        name: "process_start_time_seconds",
        kind: Gauge,
        labels: &[],
        help: "When the process started, in seconds since 1970",
        figures: Computed(computed::started),
    },
    Metric {
        name: "process_cpu_seconds_total",
        kind: MetricType::Counter,
        labels: &[],
        help: "CPU time of all threads, of the user and of the system",
        figures: Computed(computed::cpu),
    },
    Metric {
        name: "process_resident_memory_bytes",
        kind: Gauge,
        labels: &[],
        help: "Memory that is resident",
        figures: Computed(computed::memory),
    },
    Metric {
        name: "process_open_fds",
        kind: Gauge,
        labels: &[],
        help: "Open file descriptors",
        figures: Computed(computed::files),
    },
];
