//! Schedules fire, and what they did not do is reported.

use std::time::Duration;

use serde_json::Value;

use super::{daemon, put_at_run_time, queue, schedules, stop};
use crate::support::{Database, Served, run, serve, wait_until};

const SECOND: u64 = 1_000;

fn history(db: &Database, schedule: &str) -> Vec<Value> {
    schedules(db).get(schedule).and_then(|of| of["history"].as_array().cloned()).unwrap_or_default()
}

#[test]
fn a_schedule_of_each_second_fires_each_second() {
    let db = Database::new();
    let text = queue(&[("tick", "cron = '* * * * * *'\npayload-json = { Name = 'tick' }")]);
    let mut daemon = daemon(&db, "a.toml", &text);
    for _ in 0..4 {
        daemon.wait_for_event("schedule_fired");
    }
    stop(daemon);
    let history = history(&db, "tick");
    let times: Vec<_> = history.iter().map(|record| record["from"].as_u64().unwrap()).collect();
    assert!(times.len() >= 4, "{history:?}");
    assert!(times.windows(2).all(|pair| pair[1] == pair[0] + SECOND), "{times:?}");
    assert!(times.iter().all(|time| time % SECOND == 0), "{times:?}");
    assert!(history.iter().all(|record| record["outcome"] == "fired"), "{history:?}");
    let item: Value = serde_json::from_str(&run(&db, &["peek", "q", "--json"]).ok()).unwrap();
    assert_eq!(item["payload"], r#"{"Name":"tick"}"#, "{item}");
    assert_eq!(item["content_type"], "application/json", "{item}");
    assert_eq!(item["attributes"]["schedule"], "tick", "{item}");
    assert_eq!(item["attributes"]["schedule-time"], times[0].to_string(), "{item}");
}

#[test]
fn times_without_a_daemon_are_missed_and_reported() {
    let db = Database::new();
    let text = queue(&[("tick", "every = '1s'\nmissed = 'skip'")]);
    let mut first = daemon(&db, "a.toml", &text);
    first.wait_for_event("schedule_fired");
    stop(first);
    let last = history(&db, "tick").last().unwrap()["to"].as_u64().unwrap();
    // Several times pass.
    wait_until("three seconds pass", || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now > Duration::from_millis(last + 3 * SECOND)
    });
    let mut second = daemon(&db, "a.toml", &text);
    let missed = second.wait_for_event("schedule_missed");
    let missed: Value = serde_json::from_str(&missed).unwrap();
    assert_eq!((&missed["schedule"], &missed["reason"]), (&"tick".into(), &"policy".into()), "{missed}");
    second.wait_for_event("schedule_fired");
    stop(second);
    let history = history(&db, "tick");
    let record = history.iter().find(|record| record["outcome"] == "Missed(Policy)").unwrap();
    assert!(record["count"].as_u64().unwrap() >= 2, "{record}");
    assert_eq!(record["count"], missed["count"]);
    assert_eq!(record["from"], last + SECOND);
}

#[test]
fn an_occurrence_is_skipped_while_the_last_item_has_not_ended() {
    let db = Database::new();
    let text = queue(&[("tick", "every = '1s'\noverlap = 'skip'")]);
    let Served { mut daemon, at } = serve(&db, &text);
    let skipped = daemon.wait_for_event("schedule_skipped");
    assert!(skipped.contains(r#""reason":"overlap""#), "{skipped}");
    // The handler leaves items alone, so the first one stays.
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
    let metrics = String::from_utf8(at.get("/metrics").body).unwrap();
    let counted = |outcome: &str| {
        let series = format!("kvqueue_schedule_occurrences_total{{queue=\"q\",outcome=\"{outcome}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok());
        line.unwrap_or_else(|| panic!("no {series} in {metrics}"))
    };
    assert_eq!((counted("fired"), counted("missed")), (1, 0));
    assert!(counted("skipped") >= 1);
    stop(daemon);
}

#[test]
fn doctor_finds_a_schedule_that_a_wrong_clock_has_put_ahead() {
    let db = Database::new();
    put_at_run_time(&db, "ahead", 48);
    put_at_run_time(&db, "well", 0);
    let mut daemon = daemon(&db, "a.toml", &queue(&[]));
    daemon.wait_for_event("ready");
    let ran = run(&db, &["doctor", "--json"]);
    let found: Vec<_> = ran.stdout.lines().filter(|line| line.contains(r#""about":"schedules""#)).collect();
    assert_eq!((ran.code, found.len()), (Some(1), 1), "{ran:?}");
    let found: Value = serde_json::from_str(found[0]).unwrap();
    let text = found["text"].as_str().unwrap();
    assert!(text.starts_with("schedule \"ahead\" of queue \"q\" does not fire before "), "{text}");
    assert_eq!(found["verdict"], "problem");
    stop(daemon);
}

#[test]
fn a_queue_that_has_only_schedules_is_deleted_with_them() {
    let db = Database::new();
    put_at_run_time(&db, "a", 0);
    put_at_run_time(&db, "b", 0);
    let deleted = run(&db, &["delete", "q", "--yes"]).ok();
    assert_eq!(deleted, "deleted q: 0 ready, 0 waiting, 0 running, 0 dead, and 2 schedules\n");
    assert!(schedules(&db).is_empty());
}
