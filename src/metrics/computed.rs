//! Metrics that are computed at each scrape, from the status and from the process.

use std::{collections::HashMap, sync::atomic::Ordering};

use procfs::process::{Process, Stat};

use super::scrape::{Samples, Scrape};
use crate::{base::json::json_name, consumer::status::ConsumerState, telemetry};

/// The revision that the program was built from: `KVQUEUE_REVISION` of the build, or the revision that `build.rs` found.
const REVISION: &str = match option_env!("KVQUEUE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

pub(super) fn build(scrape: &Scrape, samples: &mut Samples<'_>) {
    samples.gauge(&[scrape.snapshot.version, REVISION], 1_i64);
}

pub(super) fn ready(scrape: &Scrape, samples: &mut Samples<'_>) {
    samples.gauge(&[], i64::from(scrape.snapshot.not_ready.is_empty()));
}

pub(super) fn items(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(stats) = &queue.stats else { continue };
        let running = i64::try_from(stats.running).unwrap_or(i64::MAX);
        let states =
            [("ready", stats.ready), ("running", running), ("waiting", stats.waiting), ("dead", stats.dead)];
        // A counter that another program neglects may be behind; a number of items is not negative.
        states.iter().for_each(|(state, items)| samples.gauge(&[&queue.queue, state], (*items).max(0)));
    }
}

pub(super) fn pushed(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(pushed) = queue.stats.as_ref().and_then(|stats| stats.pushed) else { continue };
        samples.counter(&[&queue.queue], pushed);
    }
}

pub(super) fn oldest(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(stats) = &queue.stats else { continue };
        samples.gauge(&[&queue.queue], stats.oldest_age.unwrap_or(0.0));
    }
}

pub(super) fn blocked(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(blocked) = queue.stats.as_ref().and_then(|stats| stats.blocked_keys) else { continue };
        samples.gauge(&[&queue.queue], blocked);
    }
}

pub(super) fn dead_removal(scrape: &Scrape, samples: &mut Samples<'_>) {
    for (name, meters) in &scrape.queues {
        let at = meters.dead_removal.load(Ordering::Relaxed);
        if at > 0 {
            samples.gauge(&[name], i64::try_from(at / 1_000).unwrap_or(i64::MAX));
        }
    }
}

pub(super) fn stats_age(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(stats) = &queue.stats else { continue };
        samples.gauge(&[&queue.queue], stats.looked);
    }
}

pub(super) fn paused(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        samples.gauge(&[&queue.queue, "all"], i64::from(queue.paused.is_some()));
        samples.gauge(&[&queue.queue, "daemon"], i64::from(queue.paused_locally));
    }
}

pub(super) fn unavailable(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        samples.gauge(&[&queue.queue], i64::from(queue.unavailable.is_some()));
    }
}

pub(super) fn in_flight(scrape: &Scrape, samples: &mut Samples<'_>) {
    for (name, meters) in &scrape.queues {
        samples.gauge(&[name], meters.in_flight.get());
    }
}

pub(super) fn processes(scrape: &Scrape, samples: &mut Samples<'_>) {
    for (name, meters) in &scrape.queues {
        samples.gauge(&[name], meters.processes.running.get());
    }
}

pub(super) fn workers(scrape: &Scrape, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        samples.gauge(&[&queue.queue, "waiting"], queue.workers.waiting);
        samples.gauge(&[&queue.queue, "working"], queue.workers.working);
    }
}

pub(super) fn consumers(scrape: &Scrape, samples: &mut Samples<'_>) {
    let mut counts = HashMap::<&str, [usize; ConsumerState::ALL.len()]>::new();
    for consumer in &scrape.snapshot.consumers {
        counts.entry(&consumer.queue).or_default()[consumer.state as usize] += 1;
    }
    let names = ConsumerState::ALL.map(|state| json_name(&state).unwrap_or_default());
    for queue in scrape.configured() {
        let counts = counts.get(queue.queue.as_str()).copied().unwrap_or_default();
        for (state, name) in ConsumerState::ALL.iter().zip(&names) {
            samples.gauge(&[&queue.queue, name], counts[*state as usize]);
        }
    }
}

pub(super) fn reloads(scrape: &Scrape, samples: &mut Samples<'_>) {
    let [applied, refused] = &scrape.reloads;
    samples.counter(&["applied"], applied.get());
    samples.counter(&["refused"], refused.get());
}

pub(super) fn loaded(scrape: &Scrape, samples: &mut Samples<'_>) {
    samples.gauge(&[], seconds(scrape.snapshot.config.loaded_at));
}

pub(super) fn refused(scrape: &Scrape, samples: &mut Samples<'_>) {
    samples.gauge(&[], i64::from(scrape.snapshot.config.refused.is_some()));
}

pub(super) fn database(scrape: &Scrape, samples: &mut Samples<'_>) {
    samples.gauge(&[], i64::from(scrape.snapshot.database.up));
}

pub(super) fn probe(scrape: &Scrape, samples: &mut Samples<'_>) {
    if let Some(took) = scrape.snapshot.database.answered_in {
        samples.gauge(&[], took);
    }
}

pub(super) fn disk_free(scrape: &Scrape, samples: &mut Samples<'_>) {
    scrape.snapshot.database.space.iter().for_each(|space| samples.gauge(&[], space.free));
}

pub(super) fn disk_min_free(scrape: &Scrape, samples: &mut Samples<'_>) {
    scrape.snapshot.database.space.iter().for_each(|space| samples.gauge(&[], space.min_free));
}

pub(super) fn disk_reusable(scrape: &Scrape, samples: &mut Samples<'_>) {
    scrape.snapshot.database.space.iter().for_each(|space| samples.gauge(&[], space.reusable));
}

pub(super) fn pushes_refused(scrape: &Scrape, samples: &mut Samples<'_>) {
    let space = scrape.snapshot.database.space.iter();
    space.for_each(|space| samples.gauge(&[], i64::from(space.pushes_refused.is_some())));
}

pub(super) fn displaced(scrape: &Scrape, samples: &mut Samples<'_>) {
    samples.counter(&[], scrape.displaced.get());
}

pub(super) fn log_dropped(_: &Scrape, samples: &mut Samples<'_>) {
    samples.counter(&[], telemetry::dropped());
}

pub(super) fn started(scrape: &Scrape, samples: &mut Samples<'_>) {
    samples.gauge(&[], seconds(scrape.snapshot.started_at));
}

pub(super) fn cpu(_: &Scrape, samples: &mut Samples<'_>) {
    if let Some(stat) = stat() {
        samples.counter(&[], (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64);
    }
}

pub(super) fn memory(_: &Scrape, samples: &mut Samples<'_>) {
    if let Some(stat) = stat() {
        samples.gauge(&[], stat.rss * procfs::page_size());
    }
}

pub(super) fn files(_: &Scrape, samples: &mut Samples<'_>) {
    if let Some(files) = Process::myself().ok().and_then(|process| process.fd_count().ok()) {
        samples.gauge(&[], files);
    }
}

/// This process. `None` if `/proc` is not mounted.
fn stat() -> Option<Stat> {
    Process::myself().ok()?.stat().ok()
}

/// Milliseconds as seconds.
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1e3
}
