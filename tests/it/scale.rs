//! A daemon of many queues with ten consumers each. What it costs is CPU time, which does not depend on how busy the machine is.

use std::{
    fmt::Write,
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Database, Served, kvqueue, run, serve_with};

/// Ticks in a tenth of a second.
const TICKS: u64 = 10;

/// A configuration of many queues, and one whose handler has an item with a short lease all the time.
fn config(queues: usize, lease: &str) -> String {
    let mut text =
        "[queues.busy]\nhandler = 'exec'\nlease = '3s'\nhandler-config = { command = ['sleep', '1000'] }\n"
            .to_owned();
    for queue in 0..queues {
        let consumers = "consumers = [ { count = 10 } ]";
        writeln!(text, "[queues.q{queue}]\nhandler = 'log'\nlease = '{lease}'\n{consumers}").unwrap();
    }
    text
}

/// The CPU time of a process in hundredths of a second.
fn cpu(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_reload_costs_time_in_proportion_to_its_consumers_and_loses_no_lease() {
    const QUEUES: usize = 250;
    let db = Database::embedded();
    run(&db, &["push", "busy", "one"]).ok();
    let path = db.file("kvqueue.toml");
    fs::write(&path, config(QUEUES, "30s")).unwrap();
    let mut command = kvqueue(&db, &["run", "--config", path.to_str().unwrap()]);
    command.env("KVQUEUE_SHUTDOWN_TIMEOUT", "100ms");
    let Served { daemon, at } = serve_with(command, false);
    // Each queue gets other settings, so each consumer is replaced.
    fs::write(&path, config(QUEUES, "29s")).unwrap();
    let (before, began) = (cpu(daemon.pid()), Instant::now());
    let reloaded = at.post("/api/v1/reload", &json!({})).is(200);
    let (cost, took) = (cpu(daemon.pid()) - before, began.elapsed());
    println!("{QUEUES} queues: {cost} ticks, {took:?}");
    assert_eq!(reloaded["changed"].as_array().unwrap().len(), QUEUES);
    assert_eq!(reloaded["finishing"], json!([]), "after {took:?}");
    // An unoptimized program needs three tenths of a second. If each change walked through all consumers, it would need eight seconds.
    assert!(cost < 20 * TICKS, "{cost} ticks");
    assert!(took < Duration::from_secs(10), "{took:?}");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!((ran.code, ran.events("lease_lost")), (Some(0), 0), "{ran:?}");
}
