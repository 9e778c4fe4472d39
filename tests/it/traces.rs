//! Spans to a collector.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, Receiver},
    thread,
};

use crate::support::{Database, PATIENCE, Ran, first_id, kvqueue, run};

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

/// A collector that takes what it gets, and hands it on: the path and the body of each request.
fn collector() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (sender, Ok(stream)) = (sender.clone(), stream) else { return };
            // One that breaks off has nothing more to say.
            thread::spawn(move || {
                while let Some(request) = request(&stream) {
                    if sender.send(request).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (endpoint, requests)
}

/// Reads one request, and answers it.
fn request(mut stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if header.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
        .ok()?;
    Some((path, body))
}

fn has(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[test]
fn items_continue_their_trace() {
    let db = Database::new();
    let parent = format!("00-{TRACE:032x}-{PARENT:016x}-01");
    run(&db, &["push", "q", "secret-payload", "--trace-parent", &parent]).ok();
    let id = first_id(&db, "q");
    let (endpoint, requests) = collector();
    let config = db.file("kvqueue.toml");
    let command = "command = ['sh', '-c', 'echo $TRACEPARENT > trace-parent']";
    std::fs::write(&config, format!("[queues.q]\nhandler = 'exec'\nhandler-config = {{ {command} }}"))
        .unwrap();
    let mut daemon = kvqueue(&db, &["run", "--until-empty", "--config", config.to_str().unwrap()]);
    daemon.current_dir(db.directory.path()).env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    Ran::from(daemon.output().unwrap()).ok();
    let (path, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(path, "/v1/traces");
    // The command goes on from the span that was sent.
    let given = std::fs::read_to_string(db.file("trace-parent")).unwrap();
    let [_, trace, span, flags] = given.trim_end().split('-').collect::<Vec<_>>()[..] else {
        panic!("{given}")
    };
    assert_eq!((trace, flags), (format!("{TRACE:032x}").as_str(), "01"));
    let span = u64::from_str_radix(span, 16).unwrap().to_be_bytes();
    // Protobuf has texts and ids as they are.
    for part in [
        &TRACE.to_be_bytes()[..],
        &PARENT.to_be_bytes(),
        &span,
        id.as_bytes(),
        b"kvqueue",
        b"outcome",
        b"done",
    ] {
        assert!(has(&body, part), "{part:?} is not in {}", String::from_utf8_lossy(&body));
    }
    assert_ne!(span, PARENT.to_be_bytes());
    assert!(!has(&body, b"secret-payload"));
}

#[test]
fn without_an_endpoint_no_trace_is_sent_or_logged() {
    let db = Database::new();
    run(&db, &["push", "q", "x"]).ok();
    let ran: Ran = kvqueue(&db, &["run", "--queue", "q", "--handler", "stdout", "--until-empty"])
        .output()
        .unwrap()
        .into();
    assert!(ran.code == Some(0) && !ran.stderr.contains("trace"), "{ran:?}");
}

/// An item does not wait for a collector, nor does a stop for long.
#[test]
fn an_unreachable_collector_delays_no_item() {
    let db = Database::new();
    run(&db, &["push", "q", "x"]).ok();
    let mut daemon = kvqueue(&db, &["run", "--queue", "q", "--handler", "stdout", "--until-empty"]);
    let begun = std::time::Instant::now();
    let ran: Ran = daemon.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9").output().unwrap().into();
    ran.ok();
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}
