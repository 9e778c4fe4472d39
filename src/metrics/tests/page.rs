//! docs/METRICS.md.

use crate::metrics::catalogue::{CATALOGUE, Metric};

#[test]
fn the_table_in_metrics_md_is_the_catalogue() {
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
