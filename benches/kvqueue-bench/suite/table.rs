//! The suite's table, for a person.

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde_json::Value;

/// A cell and what it has measured.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) report: Value,
}

/// Below the table.
const LEGEND: &str = "\
latencies: of a push, the call; of items at a rate or one by one, from the time of the push to the start of the handler";

/// Below it, where flushes were counted.
const ABOUT_FLUSHES: &str = "\
flushes: items for each time that this disk flushed an append of 512 bytes, just before and after
";

/// Cells that are as fast as they can be.
const FAST: [&str; 4] = ["push", "burn", "pull", "flood"];

/// Cells whose figures are not those of the columns.
const NOTED: [&str; 1] = ["idle"];

/// What it was measured on, the table, and what its columns mean.
pub(super) fn text(place: &Value, rows: &[Row]) -> String {
    let flushes: Vec<f64> = rows.iter().filter_map(|row| row.report["flushes_per_second"].as_f64()).collect();
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["", "items/s", "flushes", "p50", "p99", "p99.9", "max", "lost", "repeated"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut notes = String::new();
    for Row { name, report } in rows {
        if !NOTED.contains(&cell(report)) {
            table.add_row(cells(name, report));
        }
        notes.extend(note(report).map(|note| format!("{name}: {note}\n")));
    }
    let about = if flushes.is_empty() { "" } else { ABOUT_FLUSHES };
    format!("{}\n{}\n{table}\n{notes}{about}{LEGEND}", text_of(&place["machine"]), ground(place, &flushes))
}

fn ground(place: &Value, flushes: &[f64]) -> String {
    let at = text_of(if place["database"].is_null() { &place["directory"] } else { &place["database"] });
    let at = match place["file_system"].as_str() {
        Some(system) => format!("{at} ({system})"),
        None => at,
    };
    let (least, most) =
        flushes.iter().fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    match place["engine"].as_str() {
        Some("cluster") => format!("on the cluster of {at}"),
        _ if flushes.is_empty() => format!("embedded, {at}"),
        _ => format!(
            "embedded, {at}, which flushes an append of 512 bytes {} to {} times a second",
            grouped(least),
            grouped(most)
        ),
    }
}

fn cell(report: &Value) -> &str {
    report["cell"].as_str().unwrap_or_default()
}

fn cells(name: &str, report: &Value) -> Vec<String> {
    let rate = report["per_second"].as_f64().unwrap_or_default();
    let flushes = report["flushes_per_second"].as_f64().filter(|_| FAST.contains(&cell(report)));
    let ratio = flushes.map_or("-".to_owned(), |flushes| format!("{:.2}", rate / flushes.max(1e-9)));
    let mut cells = vec![name.to_owned(), grouped(rate), ratio];
    let quantile = |name| report["latency_us"][name].as_f64().map_or("-".to_owned(), time);
    cells.extend(["p50", "p99", "p99_9", "max"].map(quantile));
    cells.extend(["lost", "repeated"].map(|fault| text_of(&report[fault])));
    cells
}

/// What the columns do not say.
fn note(report: &Value) -> Option<String> {
    match cell(report) {
        "idle" => {
            let cpu = report["cpu_seconds_per_second"].as_f64()? * 100.0;
            let memory = report["resident_kb"].as_f64()? / 1_024.0;
            Some(format!("{cpu:.2} % of a processor, {memory:.1} MiB"))
        }
        "flood" => {
            Some(format!("pushed meanwhile: {} a second", grouped(report["pushes_per_second"].as_f64()?)))
        }
        _ => None,
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Microseconds as a person reads them.
fn time(micros: f64) -> String {
    match micros {
        ..1_000.0 => format!("{micros:.0} us"),
        ..10_000.0 => format!("{:.1} ms", micros / 1e3),
        ..1_000_000.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

/// A rate with its thousands apart.
fn grouped(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_grouped_and_have_readable_units() {
        assert_eq!([grouped(7.4), grouped(1_234.0), grouped(1e6)], ["7", "1,234", "1,000,000"]);
        assert_eq!(
            [time(9.6), time(1_500.0), time(15_000.0), time(2e6)],
            ["10 us", "1.5 ms", "15 ms", "2.0 s"]
        );
    }

    #[test]
    fn table_has_a_row_for_each_cell() {
        let place = json!({
            "engine": "embedded", "database": null, "directory": "/d", "file_system": "ext4",
            "machine": "A processor, 2 cores",
        });
        let latency = json!({"p50": 400.0, "p99": 900.0, "p99_9": 1500.0, "max": 12000.0});
        let push = json!({"cell": "push", "per_second": 1500.0, "latency_us": latency, "flushes_per_second": 2000.0});
        let burn =
            json!({"cell": "burn", "per_second": 50000.0, "latency_us": null, "flushes_per_second": 4000.0});
        let idle = json!({"cell": "idle", "cpu_seconds_per_second": 0.0001, "resident_kb": 15360});
        let mut rows =
            [("push", push), ("burn", burn), ("idle", idle)].map(|(name, report)| Row { name, report });
        for (fault, row) in rows.iter_mut().enumerate() {
            (row.report["lost"], row.report["repeated"]) = (json!(fault), json!(2 * fault));
        }
        insta::assert_snapshot!(text(&place, &rows), @r"
        A processor, 2 cores
        embedded, /d (ext4), which flushes an append of 512 bytes 2,000 to 4,000 times a second
        ┌──────┬─────────┬─────────┬────────┬────────┬────────┬───────┬──────┬──────────┐
        │      ┆ items/s ┆ flushes ┆    p50 ┆    p99 ┆  p99.9 ┆   max ┆ lost ┆ repeated │
        ╞══════╪═════════╪═════════╪════════╪════════╪════════╪═══════╪══════╪══════════╡
        │ push ┆   1,500 ┆    0.75 ┆ 400 us ┆ 900 us ┆ 1.5 ms ┆ 12 ms ┆    0 ┆        0 │
        │ burn ┆  50,000 ┆   12.50 ┆      - ┆      - ┆      - ┆     - ┆    1 ┆        2 │
        └──────┴─────────┴─────────┴────────┴────────┴────────┴───────┴──────┴──────────┘
        idle: 0.01 % of a processor, 15.0 MiB
        flushes: items for each time that this disk flushed an append of 512 bytes, just before and after
        latencies: of a push, the call; of items at a rate or one by one, from the time of the push to the start of the handler
        ");
    }
}
