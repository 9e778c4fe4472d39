//! Ten daemons share a database and a configuration with a schedule of each second. Each second two of them are killed and started again,
//! the host of an embedded database among them. Each time of the schedule fires exactly once.
//!
//! ```sh
//! KVQUEUE_TEST_SECONDS=120 cargo test --test it schedules::storm -- --nocapture    # two minutes
//! KVQUEUE_TEST_SEED=N cargo test --test it schedules::storm                         # the same daemons are killed
//! ```

use std::{
    collections::BTreeSet,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use serde_json::Value;

use super::{configure, queue, schedules};
use crate::support::{Background, Database, Random, kvqueue, run, wait_until};

/// How long daemons are killed, unless `KVQUEUE_TEST_SECONDS` says so.
const SECONDS: u64 = 8;

const DAEMONS: u64 = 10;

/// How many of them are killed each second.
const KILLED: usize = 2;

const SECOND: u64 = 1_000;

#[test]
fn each_time_fires_exactly_once_while_daemons_are_killed() {
    let given = std::env::var("KVQUEUE_TEST_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs(given.unwrap_or(SECONDS));
    let seed = Random::seed();
    println!(
        "KVQUEUE_TEST_SEED={seed} KVQUEUE_TEST_SECONDS={} cargo test --test it schedules::storm",
        time.as_secs()
    );
    let mut random = Random::seeded(seed);
    let db = Database::new();
    let tick = "cron = '* * * * * *'\nmissed = 'all'\nmissed-max = 1000";
    let config = configure(&db, "a.toml", &queue(&[("tick", tick)]));
    let mut daemons: Vec<_> = (0..DAEMONS).map(|_| start(&db, &config)).collect();
    wait_until("it fires", || !times(&db).is_empty());
    kill(&db, &config, &mut daemons, &mut random, time);
    let end = now();
    wait_until("the times of the storm are accounted for", || {
        times(&db).last().is_some_and(|last| *last >= end)
    });
    for daemon in daemons {
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.end().code, Some(0));
    }
    check(&db, time);
}

fn start(db: &Database, config: &Path) -> Background {
    Background::start(kvqueue(db, &["run", "--config", config.to_str().unwrap()]))
}

/// Kills daemons and starts others in their places. The pace is part of the test; nothing depends on it.
fn kill(db: &Database, config: &Path, daemons: &mut [Background], random: &mut Random, time: Duration) {
    let began = Instant::now();
    for second in 1.. {
        for _ in 0..KILLED {
            let place = usize::try_from(random.below(DAEMONS)).unwrap();
            daemons[place].signal(Signal::KILL);
            daemons[place] = start(db, config);
        }
        let next = Duration::from_secs(second);
        if next > time {
            return;
        }
        thread::sleep(next.saturating_sub(began.elapsed()));
    }
}

/// The nominal times that have fired, in the order of the history.
fn times(db: &Database) -> Vec<u64> {
    let schedules = schedules(db);
    let Some(tick) = schedules.get("tick") else { return Vec::new() };
    let history = tick["history"].as_array().unwrap();
    assert!(history.iter().all(|record| record["outcome"] == "fired" && record["count"] == 1), "{history:?}");
    history.iter().map(|record| record["from"].as_u64().unwrap()).collect()
}

fn check(db: &Database, time: Duration) {
    let times = times(db);
    assert!(times.windows(2).all(|pair| pair[1] == pair[0] + SECOND), "{times:?}");
    assert!(times.len() as u64 >= time.as_secs(), "{times:?}");
    let file = db.file("q.ndjson");
    run(db, &["export", "q", "--output", file.to_str().unwrap()]).ok();
    let exported = std::fs::read_to_string(file).unwrap();
    let items = exported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut of_items: Vec<u64> = items
        .filter_map(|item| Some(item["attributes"].get("schedule-time")?.as_str().unwrap().parse().unwrap()))
        .collect();
    of_items.sort_unstable();
    assert_eq!(of_items, times);
    // Each record names an item of its own.
    let schedules = schedules(db);
    let history = schedules["tick"]["history"].as_array().unwrap();
    let ids: BTreeSet<_> = history.iter().map(|record| record["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), times.len());
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}
