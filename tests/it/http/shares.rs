//! No client takes from others what all share: memory for answers and for bodies, and requests at the database.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::tokens::{token, with};
use crate::{
    idle::memory,
    support::{Address, Database, PATIENCE, Reply, Request, Served, serve, wait_until},
};

/// How much memory answers that are not read may take, in kilobytes: the share of a token (32 MiB), the room that one answer takes while it
/// is made, and what the allocator keeps.
const UNREAD: u64 = 96 << 10;

/// The length of a body that is never sent as a whole.
const LONG_BODY: usize = 9_000_000;

/// A daemon with two clients, each with a token for everything but administration.
struct Shared {
    served: Served,
    tokens: [String; 2],
}

impl Shared {
    fn new(db: &Database) -> Self {
        let served = serve(db, "http.require-token = true\n[queues.other]\nhandler = 'log'\n");
        let tokens = ["greedy", "modest"].map(|name| token(db, name, &["push", "work", "read"], &[]));
        Self { served, tokens }
    }

    fn at(&self) -> &Address {
        &self.served.at
    }

    fn get(&self, client: usize, path: &str) -> Reply {
        with(self.at().request("GET", path), &self.tokens[client]).send()
    }

    fn post(&self, client: usize, path: &str, body: &Value) -> Reply {
        self.posting(client, path, body).send()
    }

    fn posting(&self, client: usize, path: &str, body: &Value) -> Request {
        with(self.at().request("POST", path), &self.tokens[client]).json(body)
    }

    /// Sends the head of a request.
    fn begin(&self, client: usize, line: &str, more: &str) -> TcpStream {
        let (at, token) = (self.at().tcp(), &self.tokens[client]);
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
            .unwrap();
        stream
    }

    /// Sends the head of a push with a body of this length.
    fn announce(&self, client: usize, length: usize, more: &str) -> TcpStream {
        let head = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n{more}");
        self.begin(client, "POST /api/v1/queues/q/items", &head)
    }
}

/// The status of an answer, but not of one that only asks for the body.
fn status(stream: &mut TcpStream) -> std::io::Result<u16> {
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        match head["HTTP/1.1 ".len()..][..3].parse().unwrap() {
            100 => {}
            status => return Ok(status),
        }
    }
}

/// Reads a bit of each answer, again and again, so that none of the connections is without a sign of life.
fn read_slowly(mut streams: Vec<TcpStream>, stop: &AtomicBool) {
    for _ in 0..300 {
        streams.iter_mut().for_each(|stream| _ = stream.read(&mut [0; 8_192]));
        if stop.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn answers_that_a_client_reads_slowly_take_bounded_memory_and_others_are_served() {
    let db = Database::new();
    let shared = Shared::new(&db);
    let (long, short) = ("/api/v1/queues/long", "/api/v1/queues/short");
    // A control character of an attribute is six bytes of JSON.
    let item = json!({ "payload": "", "attributes": { "a": "\u{1}".repeat(16_000) } });
    shared.post(0, &format!("{long}/items"), &json!({ "items": vec![item; 70] })).is(201);
    let page = format!("{long}/items");
    let length = |client| shared.get(client, &page).body.len();
    let whole = length(1);
    assert!(whole > 5 << 20, "the page is long");
    let lease = |client, of: &str| {
        shared.post(client, &format!("{of}/lease"), &json!({ "max": 70, "wait_ms": 5_000 }))
    };
    let before = memory(shared.served.daemon.pid(), "VmHWM");
    let mut open: Vec<_> = (0..30).map(|_| shared.begin(0, &format!("GET {page}"), "")).collect();
    let statuses: Vec<_> = open.iter_mut().map(|stream| status(stream).unwrap()).collect();
    // On a busy machine the database takes longer than it may (503), and so does the daemon until it reads a request (408).
    assert!(
        statuses.contains(&200) && statuses.iter().all(|status| [200, 408, 429, 503].contains(status)),
        "{statuses:?}"
    );
    let mut given = statuses.iter();
    open.retain(|_| given.next() == Some(&200));
    let given = open.len();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || read_slowly(open, stop));
        let taken = memory(shared.served.daemon.pid(), "VmHWM") - before;
        println!("{given} answers of 30 took {taken} kB");
        assert!(taken < UNREAD, "they took {taken} kB");
        wait_until("others are served", || length(1) == whole);
        assert_eq!(lease(0, long).error(429), "busy");
        stop.store(true, Ordering::Relaxed);
    });
    wait_until("the items of the refused lease are ready again", || length(1) == whole);
    let leased = lease(1, long).is(200);
    assert!(leased["items"].as_array().unwrap().len() > 50);
    assert!(
        leased["items"].as_array().unwrap().iter().all(|item| item["attempt"] == 1),
        "a refused lease spends no attempt"
    );
    for client in [0, 1] {
        shared.post(client, &format!("{short}/items"), &json!({ "items": [{ "payload": "a" }] })).is(201);
        assert_eq!(lease(client, short).is(200)["items"][0]["payload"], "a");
    }
    wait_until("the room of clients that have gone is free", || shared.get(0, &page).status == 200);
}

#[test]
fn the_long_bodies_of_a_client_leave_room_for_those_of_others_and_for_its_short_ones() {
    let db = Database::new();
    let shared = Shared::new(&db);
    let almost = vec![b' '; LONG_BODY - 1];
    let held: Vec<_> = (0..7)
        .map(|_| {
            let mut stream = shared.announce(0, LONG_BODY, "");
            // A refused one is not read.
            let _ = stream.write_all(&almost);
            stream
        })
        .collect();
    let soon = Duration::from_millis(300);
    for more in ["", "Expect: 100-continue\r\n"] {
        wait_until("a further body is refused before it is sent", || {
            let mut stream = shared.announce(0, LONG_BODY, more);
            stream.set_read_timeout(Some(soon)).unwrap();
            status(&mut stream).is_ok_and(|status| status == 429)
        });
    }
    let push = |client, length| {
        let items = json!({ "items": [{ "payload": "x".repeat(length) }] });
        shared.post(client, "/api/v1/queues/q/items", &items)
    };
    push(1, 5_000_000).is(201);
    push(0, 10).is(201);
    push(1, 10).is(201);
    drop(held);
    wait_until("the room of clients that have gone is free", || push(0, 5_000_000).status == 201);
}

#[test]
fn a_body_that_is_announced_to_be_too_long_is_refused_before_it_is_sent() {
    let db = Database::new();
    let shared = Shared::new(&db);
    for more in ["", "Expect: 100-continue\r\n"] {
        for length in [99_999_999_999, (9 << 20) + 1] {
            let began = Instant::now();
            let status = status(&mut shared.announce(0, length, more)).unwrap();
            // Waiting for the body would take 10 s, and end with 408.
            assert_eq!(status, 413, "{length} {more}after {:?}", began.elapsed());
        }
    }
}

#[test]
fn the_requests_of_a_client_at_the_database_leave_room_for_those_of_others() {
    let db = Database::new();
    let shared = Shared::new(&db);
    let (stop, refused) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let items = "/api/v1/queues/q/items";
    let pair = &json!({ "items": [{ "payload": "a" }, { "payload": "b" }] });
    thread::scope(|scope| {
        for _ in 0..30 {
            let push = shared.posting(0, items, pair);
            scope.spawn(move || {
                for _ in 0..300 {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    refused.fetch_add(usize::from(push.send().status == 429), Ordering::Relaxed);
                }
            });
        }
        wait_until("the client asks too much", || refused.load(Ordering::Relaxed) > 0);
        let replies: Vec<_> = (0..30)
            .flat_map(|_| {
                [shared.post(1, items, pair).status, shared.get(1, &format!("{items}?limit=1")).status]
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert!(replies.iter().all(|status| [200, 201].contains(status)), "{replies:?}");
    });
    println!("{} refused", refused.load(Ordering::Relaxed));
}
