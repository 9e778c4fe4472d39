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
flushes: items for each time that this disk flushes an append of 512 bytes
latencies: of a push, the call; of items at a rate or one by one, from the time of the push to the start of the handler";

/// Cells whose figures are not those of the columns.
const NOTED: [&str; 2] = ["idle", "start"];

/// What it was measured on, the table, and what its columns mean.
pub(super) fn text(place: &Value, rows: &[Row]) -> String {
    let flushes = place["per_second"].as_f64();
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    let columns = ["", "items/s", "flushes", "p50", "p99", "p99.9", "max", "lost", "repeated"];
    table.set_header(columns);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut notes = String::new();
    for Row { name, report } in rows {
        if !NOTED.contains(&report["cell"].as_str().unwrap_or_default()) {
            table.add_row(cells(name, report, flushes));
        }
        notes.extend(note(report).map(|note| format!("{name}: {note}\n")));
    }
    format!("{}\n{}\n{table}\n{notes}{LEGEND}", text_of(&place["machine"]), ground(place))
}

fn ground(place: &Value) -> String {
    let at = text_of(if place["database"].is_null() { &place["directory"] } else { &place["database"] });
    let at = match place["file_system"].as_str() {
        Some(system) => format!("{at} ({system})"),
        None => at,
    };
    match (place["engine"].as_str(), place["per_second"].as_f64()) {
        (Some("cluster"), _) => format!("on the cluster of {at}"),
        (_, Some(flushes)) => {
            format!("embedded, {at}: {} flushes of an append of 512 bytes a second", grouped(flushes))
        }
        (_, None) => format!("embedded, {at}"),
    }
}

fn cells(name: &str, report: &Value, flushes: Option<f64>) -> Vec<String> {
    let rate = report["per_second"].as_f64().unwrap_or_default();
    let ratio = flushes.map_or("-".to_owned(), |flushes| format!("{:.2}", rate / flushes.max(1e-9)));
    let mut cells = vec![name.to_owned(), grouped(rate), ratio];
    let quantile = |name| report["latency_us"][name].as_f64().map_or("-".to_owned(), time);
    cells.extend(["p50", "p99", "p99_9", "max"].map(quantile));
    cells.extend(["lost", "repeated"].map(|fault| text_of(&report[fault])));
    cells
}

/// What the columns do not say.
fn note(report: &Value) -> Option<String> {
    match report["cell"].as_str()? {
        "idle" => {
            let cpu = report["cpu_seconds_per_second"].as_f64()? * 100.0;
            let memory = report["resident_kb"].as_f64()? / 1_024.0;
            Some(format!("{cpu:.2} % of a processor, {memory:.1} MiB"))
        }
        "start" => Some(format!("ready after {:.0} ms", report["start_ms"]["p50"].as_f64()?)),
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
    fn figures_are_for_people() {
        assert_eq!([grouped(7.4), grouped(1_234.0), grouped(1e6)], ["7", "1,234", "1,000,000"]);
        assert_eq!(
            [time(9.6), time(1_500.0), time(15_000.0), time(2e6)],
            ["10 us", "1.5 ms", "15 ms", "2.0 s"]
        );
    }

    #[test]
    fn it_has_a_row_for_each_cell() {
        let place = json!({
            "engine": "embedded", "database": null, "directory": "/d", "file_system": "ext4", "per_second": 2000.0,
            "machine": "A processor, 2 cores",
        });
        let latency = json!({"p50": 400.0, "p99": 900.0, "p99_9": 1500.0, "max": 12000.0});
        let push =
            json!({"cell": "push", "per_second": 1500.0, "latency_us": latency, "lost": 0, "repeated": 0});
        let burn =
            json!({"cell": "burn", "per_second": 50000.0, "latency_us": null, "lost": 1, "repeated": 2});
        let idle = json!({"cell": "idle", "cpu_seconds_per_second": 0.0001, "resident_kb": 15360});
        let rows = [("push", push), ("burn", burn), ("idle", idle)];
        let rows = rows.map(|(name, report)| Row { name, report });
        insta::assert_snapshot!(text(&place, &rows), @r"
        A processor, 2 cores
        embedded, /d (ext4): 2,000 flushes of an append of 512 bytes a second
        ┌──────┬─────────┬─────────┬────────┬────────┬────────┬───────┬──────┬──────────┐
        │      ┆ items/s ┆ flushes ┆    p50 ┆    p99 ┆  p99.9 ┆   max ┆ lost ┆ repeated │
        ╞══════╪═════════╪═════════╪════════╪════════╪════════╪═══════╪══════╪══════════╡
        │ push ┆   1,500 ┆    0.75 ┆ 400 us ┆ 900 us ┆ 1.5 ms ┆ 12 ms ┆    0 ┆        0 │
        │ burn ┆  50,000 ┆   25.00 ┆      - ┆      - ┆      - ┆     - ┆    1 ┆        2 │
        └──────┴─────────┴─────────┴────────┴────────┴────────┴───────┴──────┴──────────┘
        idle: 0.01 % of a processor, 15.0 MiB
        flushes: items for each time that this disk flushes an append of 512 bytes
        latencies: of a push, the call; of items at a rate or one by one, from the time of the push to the start of the handler
        ");
    }
}
