//! The page's files and events, and `status` and `top`, which show the same in a terminal.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Background, Database, PATIENCE, Ran, event_field, kvqueue, run};

/// A daemon that listens somewhere.
struct Daemon {
    running: Background,
    address: String,
}

impl Daemon {
    fn start(db: &Database, args: &[&str]) -> Self {
        let mut command = kvqueue(db, &[&["run", "--queue", "q"], args].concat());
        command.env("KVQUEUE_HTTP__LISTEN", "127.0.0.1:0").env("KVQUEUE_HTTP__REQUIRE_TOKEN", "false");
        let mut running = Background::start(command);
        let line: Value = serde_json::from_str(&running.wait_for_event("listening")).unwrap();
        let address = line["fields"]["address"].as_str().or(line["address"].as_str()).unwrap().to_owned();
        running.wait_for_all(&[&event_field("ready")]);
        Self { running, address }
    }

    fn ask(&self, head: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{head}Host: {}\r\n\r\n", self.address).unwrap();
        BufReader::new(stream)
    }

    /// The lines of an answer's head, and its body.
    fn get(&self, path: &str, more: &str) -> (String, String) {
        let mut stream = self.ask(&format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{more}"));
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    }

    fn status(&self, db: &Database, args: &[&str]) -> Ran {
        run(db, &[args, &["--at", &self.address]].concat())
    }
}

/// Reads events until one is as wanted, and returns its name and data.
fn event(stream: &mut impl BufRead, wanted: impl Fn(&str, &Value) -> bool) -> (String, Value) {
    let mut name = String::new();
    for line in stream.lines() {
        let line = line.expect("the event comes");
        if let Some(text) = line.strip_prefix("event: ") {
            text.clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            let data = serde_json::from_str(data).unwrap();
            if wanted(&name, &data) {
                return (name, data);
            }
        }
    }
    panic!("the stream ended");
}

const SLOW: [&str; 6] = ["--handler", "log", "--consumers", "1", "-k", "1"];

#[test]
fn events_begin_with_a_snapshot_and_report_a_push_within_a_second() {
    let db = Database::new();
    let daemon = Daemon::start(&db, &SLOW);
    let mut stream = daemon.ask("GET /api/v1/events HTTP/1.1\r\n");
    let (_, server) = event(&mut stream, |name, _| name == "server");
    assert_eq!(server["read_only"], false);
    let (_, first) = event(&mut stream, |name, _| name == "snapshot");
    assert_eq!(first["queues"][0]["queue"], "q");
    run(&db, &["push", "q", "a"]).ok();
    let pushed = Instant::now();
    event(&mut stream, |_, data| data["queues"][0]["done"] == 1);
    let took = pushed.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn events_end_with_the_daemon() {
    let db = Database::new();
    let daemon = Daemon::start(&db, &SLOW);
    let mut stream = daemon.ask("GET /api/v1/events HTTP/1.1\r\n");
    event(&mut stream, |name, _| name == "snapshot");
    daemon.running.signal(Signal::TERM);
    event(&mut stream, |name, _| name == "gone");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(daemon.running.end().code, Some(0));
}

#[test]
fn event_streams_are_limited_and_closed_ones_free_their_slot() {
    let db = Database::new();
    let daemon = Daemon::start(&db, &SLOW);
    let follow = || daemon.ask("GET /api/v1/events HTTP/1.1\r\n");
    let first_line = |stream: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line
    };
    let mut followers: Vec<_> = (0..32).map(|_| follow()).collect();
    followers.iter_mut().for_each(|stream| assert!(first_line(stream).contains(" 200 ")));
    assert!(first_line(&mut follow()).contains(" 429 "));
    drop(followers);
    // It is noticed when the next event is sent.
    let began = Instant::now();
    while !first_line(&mut follow()).contains(" 200 ") {
        assert!(began.elapsed() < PATIENCE);
    }
}

#[test]
fn the_page_is_revalidated_and_sent_once() {
    let db = Database::new();
    let daemon = Daemon::start(&db, &SLOW);
    let (head, body) = daemon.get("/", "");
    assert!(head.starts_with("http/1.1 200") && body.starts_with("<!doctype html>"), "{head}");
    for wanted in [
        "content-type: text/html; charset=utf-8",
        "cache-control: no-cache",
        "content-security-policy: default-src 'none'; script-src 'self'",
    ] {
        assert!(head.contains(wanted), "{head}");
    }
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (head, body) = daemon.get("/", &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
    let (head, _) = daemon.get("/assets/app.js", "If-None-Match: \"another\"\r\n");
    assert!(head.starts_with("http/1.1 200") && head.contains("text/javascript"), "{head}");
    let (head, _) = daemon.get("/assets/..%2Fsecret", "");
    assert!(head.starts_with("http/1.1 404"), "{head}");
}

#[test]
fn status_shows_the_daemon_and_says_whether_it_is_ready() {
    let db = Database::new();
    let daemon = Daemon::start(&db, &SLOW);
    run(&db, &["push", "q", "a", "b"]).ok();
    let text = daemon.status(&db, &["status"]).ok();
    assert!(text.starts_with("kvqueue ") && text.contains(" is ready, process "), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[lines.len() - 2].starts_with("QUEUE") && lines[lines.len() - 1].starts_with("q "),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "{text:?}");
    let object: Value = serde_json::from_str(&daemon.status(&db, &["status", "--json"]).ok()).unwrap();
    assert_eq!((&object["phase"], &object["queues"][0]["queue"]), (&"ready".into(), &"q".into()));
    // Without a terminal, top prints once.
    let top = daemon.status(&db, &["top"]).ok();
    assert!(top.contains(" is ready, process ") && !top.contains('\x1b'), "{top:?}");
}

#[test]
fn without_a_daemon_status_shows_the_database() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b"]).ok();
    let Ran { code, stdout, stderr, .. } = run(&db, &["status"]);
    assert_eq!(code, Some(69));
    assert!(stderr.contains("http.listen is \"off\""), "{stderr}");
    let last: Vec<_> = stdout.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last[..2], ["q", "2"], "{stdout}");
    let Ran { code, stdout, .. } = run(&db, &["status", "--json"]);
    let object: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &object["queues"][0]["ready"], &object["phase"]), (Some(69), &2.into(), &Value::Null));
    // --at wins over the configuration.
    let stderr = run(&db, &["status", "--at", "127.0.0.1:1"]).failed(69);
    assert!(stderr.contains("no daemon answers at 127.0.0.1:1"), "{stderr}");
    assert!(run(&db, &["top", "--at", "127.0.0.1:1"]).failed(69).contains("no daemon answers"));
}
