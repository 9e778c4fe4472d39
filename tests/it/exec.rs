//! The `exec` handler: the payload on stdin, failures that say why, commands that are killed in time.

use crate::support::{Database, Ran, kvqueue, run};

/// Processes queue `q` with a shell script per item, which it tries once.
fn with_script(db: &Database, script: &str, more: &str) -> Ran {
    let config = db.file("kvqueue.toml");
    let text = format!(
        "[queues.q]\nhandler = 'exec'\nretry.max-attempts = 1\n{more}\n[queues.q.handler-config]\ncommand = ['sh', '-c', '''{script}''']\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--until-empty", "--config", config.to_str().unwrap()]);
    command.current_dir(db.directory.path()).env("KVQUEUE_LOG__FORMAT", "json").output().unwrap().into()
}

fn read(db: &Database, name: &str) -> String {
    std::fs::read_to_string(db.file(name)).unwrap()
}

#[test]
fn the_command_gets_payload_queue_and_stamp() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two"]).ok();
    let stamps = run(&db, &["peek", "q", "-k", "2", "--json"]).ok();
    with_script(&db, "cat >> payloads; echo >> payloads; echo $KVQUEUE_QUEUE $KVQUEUE_ITEM >> items", "")
        .ok();
    assert_eq!(read(&db, "payloads"), "one\ntwo\n");
    for line in read(&db, "items").lines() {
        let stamp = line.strip_prefix("q ").unwrap();
        assert!(stamps.contains(stamp), "{stamp} is not in {stamps}");
    }
}

#[test]
fn the_command_learns_when_any_item_was_pushed() {
    let db = Database::new();
    run(&db, &["push", "q", "plain"]).ok();
    run(&db, &["push", "q", "with attributes", "--attr", "a=b"]).ok();
    with_script(&db, "echo $KVQUEUE_ENQUEUED_AT >> times", "").ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i128;
    let times: Vec<i128> = read(&db, "times").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(times.len(), 2);
    // Versions and clocks need not agree to the second.
    assert!(times.iter().all(|time| (now - time).abs() < 600_000), "{times:?} {now}");
}

#[test]
fn a_failed_command_is_logged_with_its_stderr() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two"]).ok();
    let ran = with_script(&db, "echo no such mailbox >&2; cat >> payloads; exit 3", "");
    assert_eq!(ran.stderr.matches("sh failed with exit status: 3: no such mailbox").count(), 2, "{ran:?}");
    ran.ok();
    assert_eq!(read(&db, "payloads"), "onetwo", "a failure does not stop the next item");
}

#[test]
fn logged_stderr_of_a_command_is_limited() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let ran = with_script(&db, "printf %02000d 0 >&2; exit 3", "");
    assert!(ran.stderr.contains(&"0".repeat(2_000)), "{ran:?}");
    ran.ok();
    let letter: serde_json::Value =
        serde_json::from_str(&run(&db, &["dead", "list", "q", "--json"]).ok()).unwrap();
    assert_eq!(letter["reason"].as_str().unwrap().len(), 500);
}

#[test]
fn a_command_need_not_read_its_input() {
    let db = Database::new();
    run(&db, &["push", "q", &"x".repeat(100_000)]).ok();
    let ran = with_script(&db, "exit 0", "");
    assert_eq!(ran.events("item_failed") + ran.events("item_dead"), 0, "{ran:?}");
    ran.ok();
}

#[test]
fn a_process_left_by_a_command_does_not_delay_the_item() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    // The sleeper inherits all pipes.
    let ran = with_script(&db, "sleep 1000 & echo $! > sleeper; exit 1", "");
    assert!(ran.stderr.contains("sh failed with exit status: 1"), "{ran:?}");
    std::process::Command::new("kill").arg(read(&db, "sleeper").trim()).status().unwrap();
    ran.ok();
}

#[test]
fn a_command_over_its_timeout_is_killed_with_its_children() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let ran = with_script(&db, "sleep 1000 & echo $! > sleeper; wait", "handler-timeout = '200ms'");
    assert!(ran.stderr.contains("not done after 200 ms (handler-timeout)"), "{ran:?}");
    ran.ok();
    let sleeper = std::path::PathBuf::from(format!("/proc/{}/stat", read(&db, "sleeper").trim()));
    let state = std::fs::read_to_string(sleeper).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "still alive: {state}");
}
