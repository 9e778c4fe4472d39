//! The text.

use std::{
    collections::BTreeSet, io::ErrorKind, num::NonZeroUsize, process::Command, sync::Arc, time::Duration,
};

use super::sample::{status, text};
use crate::{
    config::{Config, QueueConfig},
    metrics::{
        catalogue::{CATALOGUE, Metric},
        render,
    },
    status::DaemonStatus,
};

/// Without the tool the test passes, unless the environment requires it.
#[test]
fn promtool_accepts_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let (metrics, blocks) = (directory.path().join("metrics"), directory.path().join("blocks"));
    // The tool reads OpenMetrics text only with times.
    let line = |line: &str| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1790000000\n"),
    };
    std::fs::write(&metrics, text(&status()).lines().map(line).collect::<String>()).unwrap();
    let ran = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&metrics, &blocks])
        .output();
    match ran {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(std::env::var_os("KVQUEUE_TEST_PROMTOOL").is_none(), "promtool is missing");
        }
        ran => {
            let ran = ran.unwrap();
            assert!(ran.status.success(), "{ran:?}");
        }
    }
}

#[test]
fn metrics_have_their_labels() {
    let text = text(&status());
    for line in [
        "# TYPE kvqueue_items_fetched counter",
        r#"kvqueue_items_fetched_total{queue="a \"b\" \\c\nd"} 10"#,
        r#"kvqueue_items_fetched_total{queue="quiet"} 0"#,
        r#"kvqueue_items_finished_total{queue="a \"b\" \\c\nd",outcome="done"} 7"#,
        r#"kvqueue_items_finished_total{queue="a \"b\" \\c\nd",outcome="lost"} 1"#,
        r#"kvqueue_items_finished_total{queue="quiet",outcome="dead"} 0"#,
        r#"kvqueue_queue_items{queue="a \"b\" \\c\nd",state="dead"} 4"#,
        r#"kvqueue_queue_oldest_ready_age_seconds{queue="a \"b\" \\c\nd"} 2.5"#,
        r#"kvqueue_queue_dead_removal_timestamp_seconds{queue="a \"b\" \\c\nd"} 1790000000"#,
        r#"kvqueue_blocked_keys{queue="a \"b\" \\c\nd"} 5"#,
        r#"kvqueue_queue_paused{queue="a \"b\" \\c\nd",scope="daemon"} 1"#,
        r#"kvqueue_queue_paused{queue="a \"b\" \\c\nd",scope="all"} 0"#,
        r#"kvqueue_consumers{queue="a \"b\" \\c\nd",state="fetching"} 1"#,
        r#"kvqueue_remote_workers{queue="quiet",state="waiting"} 0"#,
        r#"kvqueue_handle_duration_seconds_bucket{le="0.0005",queue="a \"b\" \\c\nd"} 1"#,
        r#"kvqueue_handle_duration_seconds_bucket{le="60.0",queue="a \"b\" \\c\nd"} 2"#,
        r#"kvqueue_handle_duration_seconds_bucket{le="+Inf",queue="a \"b\" \\c\nd"} 3"#,
        r#"kvqueue_handle_duration_seconds_sum{queue="a \"b\" \\c\nd"} 70.001"#,
        r#"kvqueue_handle_duration_seconds_count{queue="a \"b\" \\c\nd"} 3"#,
        r#"kvqueue_config_reloads_total{result="refused"} 1"#,
        r#"kvqueue_http_requests_total{route="/metrics",code="200"} 1"#,
        "kvqueue_database_probe_seconds 0.00035",
        "kvqueue_ready 0",
    ] {
        assert!(text.lines().any(|there| there == line), "no {line} in\n{text}");
    }
}

#[test]
fn a_queue_without_statistics_has_no_item_metrics() {
    let text = text(&status());
    assert!(!text.contains(r#"kvqueue_queue_items{queue="quiet""#));
    assert!(!text.contains(r#"kvqueue_queue_oldest_ready_age_seconds{queue="quiet""#));
}

#[test]
fn each_metric_of_the_catalogue_is_written_once() {
    let text = text(&status());
    for Metric { name, kind, .. } in CATALOGUE {
        let family = name.trim_end_matches("_total");
        let types = text.lines().filter(|line| line.starts_with(&format!("# TYPE {family} ")));
        assert_eq!(types.count(), 1, "{name}");
        let samples = text.lines().filter(|line| {
            let sample = line.split([' ', '{']).next();
            sample.is_some_and(|sample| sample == *name || sample == format!("{name}_sum"))
        });
        assert!(samples.count() > 0, "{name} has no figure");
        assert_eq!(kind.as_str() == "counter", name.ends_with("_total"), "{name}");
    }
}

/// The inverse of what the format escapes.
fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::new();
    while let Some(char) = chars.next() {
        out.push(match char {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(escaped) => escaped,
                None => panic!("{text:?} ends in a backslash"),
            },
            char => char,
        });
    }
    out
}

/// All texts of some length, of characters that mean something to the format or do not.
fn texts(length: usize) -> Vec<String> {
    (0..length).fold(vec![String::new()], |texts, _| {
        texts
            .iter()
            .flat_map(|text| ['\\', '"', '\n', 'n', '}', 'é'].map(|char| format!("{text}{char}")))
            .collect()
    })
}

#[test]
fn any_queue_name_round_trips_through_a_label() {
    let names: Vec<_> = (1..=4).flat_map(texts).collect();
    let mut config = Config::default();
    config.queues.extend(names.iter().map(|name| (name.clone(), QueueConfig::new("log"))));
    let status = DaemonStatus::new("");
    status.configure(None, &config);
    let text = text(&status);
    let lines = text.lines().filter_map(|line| line.strip_prefix("kvqueue_items_in_flight{queue=\""));
    let found: BTreeSet<_> = lines.map(|line| unescaped(line.strip_suffix("\"} 0").unwrap())).collect();
    assert_eq!(found, names.into_iter().collect());
}

/// The processor time of this thread. Other programs of the machine take none of it.
fn processor_time() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}

/// The processor time that a scrape takes, of several the least.
fn scraped(queues: usize, consumers: u64) -> Duration {
    let names: Vec<Arc<str>> = (0..queues).map(|queue| format!("queue {queue}").into()).collect();
    let mut config = Config::default();
    config.queues.extend(names.iter().map(|name| ((**name).to_owned(), QueueConfig::new("log"))));
    let status = DaemonStatus::new("embedded:test");
    status.configure(None, &config);
    for id in 0..consumers {
        status.join(id, &names[usize::try_from(id).unwrap() % queues], NonZeroUsize::MIN, 0);
    }
    let times = (0..5).map(|_| {
        let (snapshot, began) = (status.snapshot(), processor_time());
        render(&status.metrics, snapshot);
        processor_time() - began
    });
    times.min().unwrap()
}

#[test]
fn a_scrape_does_not_walk_through_all_consumers_for_each_queue() {
    // Caches are shared with other programs: one quiet moment is enough.
    let measured = [(); 3].map(|()| (scraped(400, 0), scraped(400, 4_000)));
    assert!(
        measured.iter().any(|(without, with)| *with < 2 * *without),
        "without and with consumers: {measured:?}"
    );
}
