//! Figures that no meter of a queue has: those of the status, and of the process.

use std::collections::HashMap;

use super::{scrape::Scrape, text::Samples};
use crate::{status::ConsumerState, telemetry};

/// What the program was built from: `KVQUEUE_REVISION` of the build, or what `build.rs` found.
const REVISION: &str = match option_env!("KVQUEUE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

pub(super) fn build(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&[scrape.snapshot.version, REVISION], 1);
}

pub(super) fn ready(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&[], u8::from(scrape.snapshot.not_ready.is_empty()));
}

pub(super) fn items(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(stats) = &queue.stats else { continue };
        let running = i64::try_from(stats.running).unwrap_or(i64::MAX);
        let states =
            [("ready", stats.ready), ("running", running), ("waiting", stats.waiting), ("dead", stats.dead)];
        // A counter that another program neglects may be behind; a number of items is not negative.
        states.iter().for_each(|(state, items)| samples.add(&[&queue.queue, state], (*items).max(0)));
    }
}

pub(super) fn pushed(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(pushed) = queue.stats.as_ref().and_then(|stats| stats.pushed) else { continue };
        samples.add(&[&queue.queue], pushed);
    }
}

pub(super) fn oldest(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(stats) = &queue.stats else { continue };
        samples.add(&[&queue.queue], stats.oldest_age.unwrap_or(0.0));
    }
}

pub(super) fn stats_age(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        let Some(stats) = &queue.stats else { continue };
        samples.add(&[&queue.queue], stats.looked);
    }
}

pub(super) fn paused(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        samples.add(&[&queue.queue, "all"], u8::from(queue.paused.is_some()));
        samples.add(&[&queue.queue, "daemon"], u8::from(queue.paused_locally));
    }
}

pub(super) fn unavailable(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for queue in scrape.configured() {
        samples.add(&[&queue.queue], u8::from(queue.unavailable.is_some()));
    }
}

pub(super) fn in_flight(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for (name, meters) in scrape.metrics.queues() {
        samples.add(&[&name], meters.in_flight.get());
    }
}

pub(super) fn consumers(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    let mut counts = HashMap::<&str, [usize; ConsumerState::ALL.len()]>::new();
    for consumer in &scrape.snapshot.consumers {
        counts.entry(&consumer.queue).or_default()[consumer.stage as usize] += 1;
    }
    let names = ConsumerState::ALL.map(name);
    for queue in scrape.configured() {
        let counts = counts.get(queue.queue.as_str()).copied().unwrap_or_default();
        for (stage, name) in ConsumerState::ALL.iter().zip(&names) {
            samples.add(&[&queue.queue, name], counts[*stage as usize]);
        }
    }
}

pub(super) fn reloads(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&["applied"], scrape.metrics.reloads_applied.get());
    samples.add(&["refused"], scrape.metrics.reloads_refused.get());
}

pub(super) fn loaded(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&[], seconds(scrape.snapshot.config.loaded_at));
}

pub(super) fn refused(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&[], u8::from(scrape.snapshot.config.refused.is_some()));
}

pub(super) fn database(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&[], u8::from(scrape.snapshot.database.up));
}

pub(super) fn probe(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    if let Some(took) = scrape.snapshot.database.answered_in {
        samples.add(&[], took);
    }
}

pub(super) fn disk_free(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    scrape.snapshot.database.space.iter().for_each(|space| samples.add(&[], space.free));
}

pub(super) fn disk_min_free(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    scrape.snapshot.database.space.iter().for_each(|space| samples.add(&[], space.min_free));
}

pub(super) fn disk_reusable(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    scrape.snapshot.database.space.iter().for_each(|space| samples.add(&[], space.reusable));
}

pub(super) fn pushes_refused(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    let space = scrape.snapshot.database.space.iter();
    space.for_each(|space| samples.add(&[], u8::from(space.pushes_refused.is_some())));
}

pub(super) fn requests(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    for ((route, code), count) in scrape.metrics.requests.read() {
        samples.add(&[route, &code.to_string()], count);
    }
}

pub(super) fn log_dropped(_: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&[], telemetry::dropped());
}

pub(super) fn started(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    samples.add(&[], seconds(scrape.snapshot.started_at));
}

pub(super) fn cpu(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    scrape.process.cpu.iter().for_each(|cpu| samples.add(&[], cpu.as_secs_f64()));
}

pub(super) fn memory(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    scrape.process.resident_bytes.iter().for_each(|bytes| samples.add(&[], bytes));
}

pub(super) fn files(scrape: &Scrape<'_>, samples: &mut Samples<'_>) {
    scrape.process.open_files.iter().for_each(|files| samples.add(&[], files));
}

/// Milliseconds as seconds.
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1e3
}

/// As JSON has it.
fn name(stage: ConsumerState) -> String {
    let value = serde_json::to_value(stage).ok();
    value.and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}
