//! Workers that wait: what they cost, and which of them a push wakes.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde_json::{Value, json};

use crate::{
    idle::{expect_wakeups, memory},
    support::{Database, PATIENCE, run, serve},
};

/// Workers that wait.
const WORKERS: usize = 1_000;

/// The memory that each takes in the daemon, as `docs/LIMITS.md` has it, in kilobytes.
const EACH: u64 = 32;

/// How often its threads may wake in five seconds meanwhile. If each of the workers looked once a second, it would be ten times as often.
const WAKEUPS: u64 = 500;

/// How long nobody else must be woken by a push.
const QUIET: Duration = Duration::from_millis(300);

/// Room for the connections of a test.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < 2 * WORKERS as u64) {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    }
}

/// Workers' requests that are answered, or whose connection is closed.
fn answered(workers: &[TcpStream], wait: Duration) -> Vec<usize> {
    let mut polled: Vec<_> = workers.iter().map(|worker| PollFd::new(worker, PollFlags::IN)).collect();
    poll(&mut polled, Some(&Timespec::try_from(wait).unwrap())).unwrap();
    (0..workers.len()).filter(|at| !polled[*at].revents().is_empty()).collect()
}

fn request(at: &str) -> String {
    let body = json!({"wait_ms": 60_000, "lease_ms": 60_000}).to_string();
    format!(
        "POST /api/v1/queues/q/lease HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads the answer to a lease, and returns the payloads.
fn payloads(worker: &mut TcpStream) -> Vec<String> {
    worker.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    loop {
        let mut some = [0; 4_096];
        let len = worker.read(&mut some).unwrap();
        assert!(len > 0, "the daemon closed the connection: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&some[..len]);
        let Some(end) = answer.windows(4).position(|it| it == b"\r\n\r\n") else { continue };
        if let Ok(body) = serde_json::from_slice::<Value>(&answer[end + 4..]) {
            let items = body["items"].as_array().unwrap();
            return items.iter().map(|item| item["payload"].as_str().unwrap().to_owned()).collect();
        }
    }
}

#[test]
fn a_thousand_waiting_workers_cost_memory_only_and_a_push_wakes_one() {
    raise_open_files();
    let db = Database::new();
    let config = format!("[queues.q]\nhandler = 'pull'\n[http]\nmax-connections = {}\n", WORKERS + 16);
    let served = serve(&db, &config);
    let (at, daemon) = (served.at.tcp(), served.daemon.pid());
    // The first request of all has the daemon take what it needs anyway.
    let connect = || {
        let mut worker = TcpStream::connect(at).unwrap();
        worker.write_all(request(at).as_bytes()).unwrap();
        worker
    };
    let first = connect();
    thread::sleep(QUIET);
    let before = memory(daemon, "VmRSS");
    let mut workers = vec![first];
    workers.extend((1..WORKERS).map(|_| connect()));
    assert_eq!(answered(&workers, QUIET), [0; 0]);
    // Not to wait for something: all requests have arrived by then, and the span is measured.
    thread::sleep(Duration::from_secs(1));
    let grown = memory(daemon, "VmRSS") - before;
    println!("{WORKERS} waiting workers: {grown} kB");
    assert!(grown <= EACH * WORKERS as u64, "{grown} kB for {WORKERS} workers");
    expect_wakeups(daemon, WAKEUPS);
    for number in 0..5 {
        let payload = format!("item {number}");
        run(&db, &["push", "q", &payload]).ok();
        let woken = answered(&workers, PATIENCE);
        assert_eq!(woken.len(), 1, "{payload} woke {woken:?}");
        let mut worker = workers.remove(woken[0]);
        assert_eq!(payloads(&mut worker), [payload]);
        assert_eq!(answered(&workers, QUIET), [0; 0]);
    }
    // Several items at once are shared out: one for each that asked for one.
    run(&db, &["push", "q", "a", "b", "c"]).ok();
    let deadline = Instant::now() + PATIENCE;
    let mut woken = answered(&workers, PATIENCE);
    while woken.len() < 3 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
        woken = answered(&workers, QUIET);
    }
    let mut got: Vec<_> = woken.iter().flat_map(|at| payloads(&mut workers[*at])).collect();
    got.sort_unstable();
    assert_eq!(got, ["a", "b", "c"]);
}
