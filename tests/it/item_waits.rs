//! Waiting for an item's end: `GET /api/v1/queues/{queue}/items/{id}?wait_ms=`, and `kvqueue item wait`.

use std::{
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Address, Background, Database, Served, event_field, first_id, kvqueue, pipe, run, serve, wait_until,
};

/// Items are handled as long as nothing comes through the pipe, which is one line for each.
const SCRIPT: &str = "read line < gate; cat > /dev/null; test \"$line\" = done";

/// A daemon whose handler waits at a pipe, and the id of the item that was pushed.
fn waiting(settings: &str) -> (Database, Served, String) {
    let db = Database::new();
    pipe(&db, "gate");
    let at = db.directory.path().display();
    let config = format!(
        "[queues.q]\nhandler = 'exec'\n{settings}\n[queues.q.handler-config]\ncommand = ['sh', '-c', '''cd '{at}'; {SCRIPT}''']\n"
    );
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    let served = serve(&db, &config);
    (db, served, id)
}

fn path(id: &str, wait_ms: u32) -> String {
    format!("/api/v1/queues/q/items/{id}?wait_ms={wait_ms}")
}

/// Asks for the item, does something half a second later, and returns the answer and how long it took since then.
fn asked(at: &Address, path: &str, act: impl FnOnce()) -> (Value, Duration) {
    thread::scope(|scope| {
        let asked = scope.spawn(|| at.get(path).is(200));
        thread::sleep(Duration::from_millis(500));
        assert!(!asked.is_finished(), "it waits");
        let began = Instant::now();
        act();
        (asked.join().unwrap(), began.elapsed())
    })
}

fn end(db: &Database, line: &str) {
    std::fs::write(db.file("gate"), format!("{line}\n")).unwrap();
}

#[test]
fn a_request_waits_until_the_item_has_ended() {
    let (db, served, id) = waiting("history = '1h'");
    let (item, took) = asked(&served.at, &path(&id, 30_000), || end(&db, "done"));
    assert_eq!((&item["state"], &item["outcome"]), (&json!("finished"), &json!("done")), "{item}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    // One that has ended is answered at once, and so is one that was never there.
    assert_eq!(served.at.get(&path(&id, 30_000)).is(200), item);
    served.at.get(&path("000000000000000100020003", 30_000)).is(404);
    for wrong in ["60001", "-1", "1s", ""] {
        served.at.get(&format!("/api/v1/queues/q/items/{id}?wait_ms={wrong}")).is(400);
    }
}

#[test]
fn a_request_for_an_item_without_a_history_reports_that_it_has_ended() {
    let (db, served, id) = waiting("");
    let waited = served.at.get(&path(&id, 300)).is(200);
    assert_eq!(waited["state"], "running", "{waited}");
    let (item, _) = asked(&served.at, &path(&id, 30_000), || end(&db, "done"));
    assert_eq!(item, json!({"id": id, "state": "finished"}));
    served.at.get(&path(&id, 30_000)).is(404);
}

#[test]
fn an_item_that_is_tried_again_is_waited_for_until_it_is_a_dead_letter() {
    let (db, served, id) = waiting("[queues.q.retry]\nmax-attempts = 2\nbase = '100ms'");
    let (item, _) = asked(&served.at, &path(&id, 30_000), || {
        end(&db, "no");
        let attempt = || served.at.get(&path(&id, 0)).is(200)["attempt"].clone();
        wait_until("the second attempt runs", || attempt() == 2);
        end(&db, "no");
    });
    assert_eq!(item["state"], "dead", "{item}");
    // A dead letter is an end.
    assert_eq!(served.at.get(&path(&id, 30_000)).is(200)["state"], "dead");
    let requeued = || served.at.post(&format!("/api/v1/queues/q/items/{id}/requeue"), &json!({})).is(200);
    requeued();
    let (item, _) = asked(&served.at, &path(&id, 30_000), || end(&db, "done"));
    assert_eq!(item["state"], "finished", "{item}");
}

#[test]
fn an_item_that_waits_for_its_time_is_waited_for() {
    let (db, served, _first) = waiting("history = '1h'");
    run(&db, &["push", "q", "later", "--delay", "1h"]).ok();
    let peeked = run(&db, &["peek", "q", "--state", "scheduled", "--json"]).ok();
    let id = serde_json::from_str::<Value>(&peeked).unwrap()["id"].as_str().unwrap().to_owned();
    let cancel = || {
        run(&db, &["item", "cancel", "q", &id]).ok();
    };
    let (item, _) = asked(&served.at, &path(&id, 30_000), cancel);
    assert_eq!(item["outcome"], "cancelled", "{item}");
}

#[test]
fn the_deletion_of_the_queue_and_a_stop_of_the_daemon_end_a_wait() {
    let (db, served, id) = waiting("");
    thread::scope(|scope| {
        let asked = scope.spawn(|| served.at.get(&path(&id, 60_000)));
        thread::sleep(Duration::from_millis(500));
        run(&db, &["delete", "q", "--yes"]).ok();
        let answer = asked.join().unwrap().is(404);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("was deleted"), "{message}");
    });
    run(&db, &["push", "q", "x", "--delay", "1h"]).ok();
    let peeked = run(&db, &["peek", "q", "--state", "scheduled", "--json"]).ok();
    let id = serde_json::from_str::<Value>(&peeked).unwrap()["id"].as_str().unwrap().to_owned();
    let (item, took) = asked(&served.at, &path(&id, 60_000), || {
        served.daemon.signal(Signal::TERM);
        end(&db, "done");
    });
    assert_eq!(item["state"], "scheduled", "{item}");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_client_that_goes_away_ends_its_wait() {
    let db = Database::new();
    let config = db.file("gone.toml");
    std::fs::write(&config, "[queues.q]\nhandler = 'pull'\n").unwrap();
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    let mut served =
        crate::support::serve_with(kvqueue(&db, &["run", "-v", "--config", config.to_str().unwrap()]), false);
    let mut stream = TcpStream::connect(served.at.tcp()).unwrap();
    let host = served.at.tcp();
    write!(stream, "GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", path(&id, 60_000)).unwrap();
    thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    drop(stream);
    served.daemon.wait_for("items/{id}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(served.daemon.said(&event_field("request")) > 0);
}

#[test]
fn a_command_waits_until_the_item_has_ended() {
    let (db, _served, id) = waiting("history = '1h'");
    let early = run(&db, &["item", "wait", "q", &id, "--for", "300ms", "--json"]);
    assert_eq!(early.code, Some(75), "{}", early.stderr);
    assert_eq!(serde_json::from_str::<Value>(&early.stdout).unwrap()["state"], "running");
    let waits = Background::start(kvqueue(&db, &["item", "wait", "q", &id]));
    thread::sleep(Duration::from_millis(300));
    end(&db, "done");
    let text = waits.end().ok();
    assert!(text.contains("state        finished") && text.contains("outcome      done"), "{text}");
    let ended = run(&db, &["item", "wait", "q", &id, "--json"]).ok();
    assert_eq!(ended, run(&db, &["item", "show", "q", &id, "--json"]).ok());
    run(&db, &["item", "wait", "q", "000000000000000100020003"]).failed(1);
}
