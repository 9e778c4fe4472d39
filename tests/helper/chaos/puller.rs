//! A worker over HTTP for the chaos test: leases items from any daemon, treats them as they ask to be, and closes connections at the
//! worst moments.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    daemon::{Recorder, now},
    payload::Name,
    records::{Act, Record},
};
use crate::support::{Random, argument};

/// How long a request waits for items.
const WAIT: Duration = Duration::from_millis(1_500);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// The pause after a request that came to nothing.
const PAUSE: Duration = Duration::from_millis(20);

/// How often an acknowledgement is sent: at first, and until it is answered.
const TRIES: usize = 10;

/// How many of a thousand requests are given up before their answer is read.
const GIVEN_UP: u64 = 60;

/// A worker.
struct Puller {
    /// The directory with the sockets of daemons.
    daemons: PathBuf,
    queue: String,
    /// The length of its leases.
    lease: Duration,
    recorder: Recorder,
    random: Random,
}

/// Arguments: the directory of the daemons' sockets, the queue, the length of leases in milliseconds, the directory of records, a seed.
pub(crate) fn puller() {
    let number = |index| argument(index).unwrap().parse::<u64>().unwrap();
    let puller = Puller {
        daemons: argument(0).unwrap().into(),
        queue: argument(1).unwrap(),
        lease: Duration::from_millis(number(2)),
        recorder: Recorder::of_worker(argument(3).unwrap().into(), number(2)),
        random: Random::seeded(number(4)),
    };
    puller.work()
}

impl Puller {
    fn work(mut self) -> ! {
        let mut next = Value::Null;
        loop {
            if next["lease"].is_null() {
                let wanted = self.wanted();
                next = self.ask("lease", &wanted).map_or(Value::Null, |(_, answer)| answer);
            }
            let Some(lease) = next["lease"].as_str() else {
                sleep(PAUSE);
                continue;
            };
            let (lease, items) = (lease.to_owned(), next["items"].as_array().unwrap().clone());
            next = self.handle(&lease, &items);
        }
    }

    fn wanted(&mut self) -> Value {
        let max = 1 + self.random.below(5);
        json!({"max": max, "wait_ms": WAIT.as_millis() as u64, "lease_ms": self.lease.as_millis() as u64})
    }

    /// Handles the items of a lease, and returns the next lease, if the daemon has given one.
    fn handle(&mut self, lease: &str, items: &[Value]) -> Value {
        let outcomes: Vec<Value> = items.iter().map(|item| self.outcome(item)).collect();
        if self.random.chance(200) {
            // It may be lost; the acknowledgement finds out.
            let _ = self.ask(&format!("leases/{lease}/extend"), &json!({}));
        }
        let mut body = json!({"outcomes": outcomes});
        if self.random.chance(700) {
            body["next"] = self.wanted();
        }
        for _ in 0..TRIES {
            match self.ask(&format!("leases/{lease}/acknowledge"), &body) {
                Some((200, answer)) => return answer["next"].clone(),
                Some((409, _)) => return Value::Null,
                _ => sleep(PAUSE),
            }
        }
        Value::Null
    }

    fn outcome(&mut self, item: &Value) -> Value {
        let payload = item["payload"].as_str().unwrap_or_default();
        let attempt = item["attempt"].as_u64().unwrap() as u32;
        let act = match payload.parse::<Name>() {
            Ok(name) => {
                let (act, time) = self.recorder.decide(name, attempt);
                sleep(time);
                // How many failures there were an answer does not tell.
                let id = item["id"].as_str().unwrap().to_owned();
                self.recorder.note(&Record::Handled { name, attempt, failures: 0, act, at: now(), id });
                act
            }
            Err(_) => {
                self.recorder.note(&Record::Nonsense(payload.chars().take(100).collect()));
                Act::Done
            }
        };
        let outcome = match act {
            Act::Done | Act::Crash => "done",
            Act::Fail => "retry",
            Act::Bury => "dead",
            Act::Release => "release",
        };
        json!({"id": item["id"], "outcome": outcome})
    }

    /// A connection to any running daemon. A killed daemon has left its socket.
    fn connect(&mut self) -> Option<UnixStream> {
        let sockets = std::fs::read_dir(&self.daemons).unwrap();
        let mut sockets: Vec<PathBuf> = sockets.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let first = self.random.below(sockets.len().max(1) as u64) as usize;
        sockets.rotate_left(first);
        sockets.iter().find_map(|socket| UnixStream::connect(socket).ok())
    }

    /// The status and the body of an answer of some daemon; `None` if there is none, or the worker does not wait for it.
    fn ask(&mut self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        let body = body.to_string();
        let head = format!(
            "POST /api/v1/queues/{}/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.queue,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).ok()?;
        if self.random.chance(GIVEN_UP) {
            sleep(self.random.time_below(2 * PAUSE));
            return None;
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_slice(&answer[end + 4..]).ok()?))
    }
}
