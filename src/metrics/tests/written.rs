//! The text.

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Write},
    num::NonZeroUsize,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use super::sample::{status, text};
use crate::{
    config::{Config, QueueConfig},
    metrics::{
        CATALOGUE,
        family::{Kind, Metric},
        render,
    },
    status::DaemonStatus,
};

/// Without the tool the test passes, unless the environment says that it is to be there.
#[test]
fn promtool_accepts_the_metrics() {
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tool = match tool {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(std::env::var_os("KVQUEUE_TEST_PROMTOOL").is_none(), "promtool is missing");
            return;
        }
        tool => tool.unwrap(),
    };
    tool.stdin.take().unwrap().write_all(text(&status()).as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn figures_stand_beside_their_labels() {
    let text = text(&status());
    for line in [
        "# TYPE kvqueue_items_fetched_total counter",
        r#"kvqueue_items_fetched_total{queue="a \"b\" \\c\nd"} 10"#,
        r#"kvqueue_items_fetched_total{queue="quiet"} 0"#,
        r#"kvqueue_items_finished_total{queue="a \"b\" \\c\nd",outcome="done"} 7"#,
        r#"kvqueue_items_finished_total{queue="a \"b\" \\c\nd",outcome="lost"} 1"#,
        r#"kvqueue_items_finished_total{queue="quiet",outcome="dead"} 0"#,
        r#"kvqueue_queue_items{queue="a \"b\" \\c\nd",state="dead"} 4"#,
        r#"kvqueue_queue_oldest_ready_age_seconds{queue="a \"b\" \\c\nd"} 2.5"#,
        r#"kvqueue_queue_paused{queue="a \"b\" \\c\nd",scope="daemon"} 1"#,
        r#"kvqueue_queue_paused{queue="a \"b\" \\c\nd",scope="all"} 0"#,
        r#"kvqueue_consumers{queue="a \"b\" \\c\nd",stage="fetching"} 1"#,
        r#"kvqueue_handle_duration_seconds_bucket{queue="a \"b\" \\c\nd",le="0.0005"} 1"#,
        r#"kvqueue_handle_duration_seconds_bucket{queue="a \"b\" \\c\nd",le="60"} 2"#,
        r#"kvqueue_handle_duration_seconds_bucket{queue="a \"b\" \\c\nd",le="+Inf"} 3"#,
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

/// What is not known is not said to be 0.
#[test]
fn a_queue_that_nobody_has_looked_at_has_no_items() {
    let text = text(&status());
    assert!(!text.contains(r#"kvqueue_queue_items{queue="quiet""#));
    assert!(!text.contains(r#"kvqueue_queue_oldest_ready_age_seconds{queue="quiet""#));
}

#[test]
fn each_metric_of_the_catalogue_is_written_once() {
    let text = text(&status());
    for Metric { name, kind, .. } in CATALOGUE {
        let types = text.lines().filter(|line| line.starts_with(&format!("# TYPE {name} ")));
        assert_eq!(types.count(), 1, "{name}");
        let samples = text.lines().filter(|line| {
            let sample = line.split([' ', '{']).next();
            sample.is_some_and(|sample| sample == *name || sample == format!("{name}_sum"))
        });
        assert!(samples.count() > 0, "{name} has no figure");
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
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
fn any_name_comes_back() {
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

/// The time that a scrape takes, of several the least.
fn scraped(queues: usize, consumers: u64) -> Duration {
    let names: Vec<Arc<str>> = (0..queues).map(|queue| format!("queue {queue}").into()).collect();
    let mut config = Config::default();
    config.queues.extend(names.iter().map(|name| ((**name).to_owned(), QueueConfig::new("log"))));
    let status = DaemonStatus::new("embedded:test");
    status.configure(None, &config);
    for id in 0..consumers {
        status.join(id, &names[usize::try_from(id).unwrap() % queues], NonZeroUsize::MIN, 0);
    }
    let snapshot = status.snapshot();
    let times = (0..5).map(|_| {
        let (began, mut out) = (Instant::now(), String::new());
        render(&status.metrics, &snapshot, &mut out);
        began.elapsed()
    });
    times.min().unwrap()
}

#[test]
fn a_scrape_does_not_walk_through_all_consumers_for_each_queue() {
    let (without, with) = (scraped(400, 0), scraped(400, 4_000));
    assert!(with < 2 * without, "{with:?} with consumers, {without:?} without");
}
