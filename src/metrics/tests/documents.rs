//! docs/METRICS.md, the dashboard, the alerts and the manual, compared with the metrics.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use prometheus_client::metrics::MetricType;

use super::sample::{status, text};
use crate::metrics::catalogue::{CATALOGUE, Metric};

/// Labels that Prometheus adds, or whose values are an installation's.
const FREE: [&str; 6] = ["queue", "job", "namespace", "database", "instance", "le"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The expressions of the dashboard, in Prometheus's language.
fn dashboard() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(&read("packaging/grafana/kvqueue.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut found: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    found.extend(variables.iter().filter_map(|it| Some(it["query"]["query"].as_str()?.to_owned())));
    found
}

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// All names of metrics of ours in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|char| !is_name(char));
    let of_ours = |word: &&str| {
        let rest = ["kvqueue_", "process_"].iter().find_map(|prefix| word.strip_prefix(prefix));
        // Not the package's file, as in `kvqueue_*.deb`.
        rest.is_some_and(|rest| !rest.is_empty())
    };
    words.filter(of_ours).collect()
}

/// Each label in a text with each of its values, as in `state!="ready"` or `kind=~"returned|dead"`.
fn labels(text: &str) -> BTreeSet<(&str, &str)> {
    let mut found = BTreeSet::new();
    for (at, _) in
        text.match_indices("=\"").chain(text.match_indices("=~\"")).chain(text.match_indices("!~\""))
    {
        let name = text[..at].trim_end_matches('!').rsplit(|char| !is_name(char)).next().unwrap();
        let value = text[at..].split('"').nth(1).unwrap();
        found.extend(value.split('|').map(|value| (name, value)));
    }
    found
}

fn exists(name: &str) -> bool {
    CATALOGUE.iter().any(|metric: &Metric| {
        let suffixes: &[_] = match metric.kind {
            MetricType::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        name.strip_prefix(metric.name).is_some_and(|suffix| suffixes.contains(&suffix))
    })
}

#[track_caller]
fn check(what: &str, expressions: &str) {
    let names = names(expressions);
    assert!(names.len() > 10, "{what} names {names:?}");
    for name in names {
        assert!(exists(name), "{what}: there is no metric {name}");
    }
    let text = text(&status());
    let known = labels(&text);
    for (label, value) in labels(expressions).into_iter().filter(|(label, _)| !FREE.contains(label)) {
        assert!(known.contains(&(label, value)), "{what}: no metric has {label}=\"{value}\"");
    }
}

#[test]
fn the_dashboard_names_existing_metrics() {
    let expressions = dashboard();
    assert!(expressions.len() > 20, "{expressions:?}");
    check("packaging/grafana/kvqueue.json", &expressions.join("\n"));
}

#[test]
fn the_dashboard_shows_every_metric_of_a_queue() {
    let expressions = dashboard().join("\n");
    for Metric { name, labels, .. } in CATALOGUE.iter().filter(|metric| metric.labels.contains(&"queue")) {
        let is_shown = expressions.contains(name) || *name == "kvqueue_queue_count_age_seconds";
        assert!(is_shown, "the dashboard lacks {name} by {labels:?}");
    }
}

#[test]
fn the_alerts_name_existing_metrics() {
    for file in ["packaging/alerts/kvqueue.yml", "packaging/alerts/tests.yml"] {
        let lines = read(file);
        let lines: Vec<_> =
            lines.lines().filter(|line| !line.contains("promtool") && !line.starts_with('#')).collect();
        let expressions = lines.join("\n").replace("kvqueue.yml", "");
        if file.ends_with("tests.yml") {
            assert!(names(&expressions).into_iter().all(exists), "{file}");
        } else {
            check(file, &expressions);
        }
    }
}

/// The manual, and parts of it that are pages of their own.
fn manual() -> String {
    let parts = fs::read_dir(root().join("docs/operations")).into_iter().flatten().flatten();
    let parts = parts.filter_map(|part| fs::read_to_string(part.path()).ok());
    parts.chain([read("docs/OPERATIONS.md")]).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_manual_explains_each_alert() {
    let alerts = read("packaging/alerts/kvqueue.yml");
    let alerts: BTreeSet<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let manual = manual();
    let explained: BTreeSet<_> = manual
        .lines()
        .filter_map(|line| line.strip_prefix("#### "))
        .filter(|title| title.starts_with("Kvqueue"))
        .collect();
    assert_eq!(explained, alerts);
    assert!(
        names(&manual)
            .into_iter()
            .filter(|name| name.starts_with("kvqueue_"))
            .all(|name| exists(name) || exists(&format!("{name}_sum")))
    );
}

/// Without the tool the test passes, unless the environment says that it is to be there.
#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    for args in [["check", "rules", "kvqueue.yml"], ["test", "rules", "tests.yml"]] {
        let ran = Command::new("promtool").args(args).current_dir(root().join("packaging/alerts")).output();
        match ran {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                assert!(std::env::var_os("KVQUEUE_TEST_PROMTOOL").is_none(), "promtool is missing");
            }
            ran => {
                let ran = ran.unwrap();
                assert!(ran.status.success(), "{args:?}: {ran:?}");
            }
        }
    }
}

#[test]
fn the_reference_lists_the_catalogue() {
    let page = include_str!("../../../docs/METRICS.md");
    let there: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| `kvqueue_") || line.starts_with("| `process_"))
        .collect();
    let wanted: Vec<_> = CATALOGUE
        .iter()
        .map(|Metric { name, kind, labels, help, .. }| {
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {} | {} | {help} |", kind.as_str(), labels.join(", "))
        })
        .collect();
    assert_eq!(there, wanted, "docs/METRICS.md should have:\n{}", wanted.join("\n"));
}
