//! A worker: a connection, and as little around it as a worker can have.

use std::{
    borrow::Cow,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::tally::Tally;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);

/// The bytes that are read at once, at first.
const PAGE: usize = 16 << 10;

/// A lease, or none.
#[derive(Debug, Deserialize)]
struct Leased<'a> {
    lease: Option<Cow<'a, str>>,
    #[serde(borrow)]
    items: Vec<Item<'a>>,
}

#[derive(Debug, Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    payload: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Acknowledged<'a> {
    open: usize,
    #[serde(borrow)]
    next: Option<Leased<'a>>,
}

/// A worker at a daemon.
pub(super) struct Worker {
    stream: TcpStream,
    host: SocketAddr,
    /// The path of the queue.
    queue: String,
    k: u16,
    /// The bytes that were read last.
    answer: Vec<u8>,
}

impl Worker {
    /// Connects.
    pub(super) fn connect(host: SocketAddr, queue: &str, k: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(host).context("cannot connect to the daemon")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Self { stream, host, queue: format!("/api/v1/queues/{queue}"), k, answer: vec![0; PAGE] })
    }

    /// Leases, notes and acknowledges until nothing is ready, and returns how many items that were.
    pub(super) fn work(mut self, tally: &Tally, separate: bool) -> anyhow::Result<u64> {
        let next = format!(r#"{{"max":{}}}"#, self.k);
        let (mut held, mut finished) = (Held::default(), 0);
        held.handle(&parse(self.post("/lease", &next)?)?, tally);
        while !held.lease.is_empty() {
            let Held { lease, outcomes, items } = &held;
            let path = format!("/leases/{lease}/acknowledge");
            let body = match separate {
                true => format!(r#"{{"outcomes":[{outcomes}]}}"#),
                false => format!(r#"{{"outcomes":[{outcomes}],"next":{next}}}"#),
            };
            let answer: Acknowledged<'_> = parse(self.post(&path, &body)?)?;
            if answer.open > 0 {
                bail!("{} items of a lease are left", answer.open);
            }
            finished += items;
            if separate {
                held.handle(&parse(self.post("/lease", &next)?)?, tally);
            } else {
                held.handle(&answer.next.context("the answer has no next lease")?, tally);
            }
        }
        Ok(finished)
    }

    /// Sends a request, and returns the body of its answer.
    fn post(&mut self, path: &str, body: &str) -> anyhow::Result<&[u8]> {
        let request = format!(
            "POST {}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.queue,
            self.host,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).context("the daemon went away")?;
        let mut len = 0;
        loop {
            if len == self.answer.len() {
                self.answer.resize(2 * len, 0);
            }
            let read = self.stream.read(&mut self.answer[len..]).context("the daemon did not answer")?;
            if read == 0 {
                bail!("the daemon closed the connection");
            }
            len += read;
            let Some((body, bytes)) = head(&self.answer[..len])? else { continue };
            if len >= body + bytes {
                return Ok(&self.answer[body..body + bytes]);
            }
        }
    }
}

/// Where the body of an answer begins, and how long it is; `None` while the head is not whole.
fn head(answer: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&answer[..end]);
    if !head.starts_with("HTTP/1.1 200") {
        bail!("the daemon answered {}", String::from_utf8_lossy(answer));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Ok(Some((end + 4, length.context("an answer has no content-length")?)))
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body)
        .with_context(|| format!("the daemon answered {}", String::from_utf8_lossy(body)))
}

/// What a worker holds.
#[derive(Debug, Default)]
struct Held {
    /// Empty without a lease.
    lease: String,
    /// Those of its items, as JSON.
    outcomes: String,
    items: u64,
}

impl Held {
    /// Handles the items of a lease: notes them, and writes down their outcomes.
    fn handle(&mut self, leased: &Leased<'_>, tally: &Tally) {
        *self = Self::default();
        self.lease.extend(leased.lease.as_deref());
        self.items = leased.items.len() as u64;
        tally.handled(leased.items.iter().map(|item| item.payload.as_bytes()));
        for item in &leased.items {
            let comma = if self.outcomes.is_empty() { "" } else { "," };
            self.outcomes.extend([comma, r#"{"id":""#, &*item.id, r#"","outcome":"done"}"#]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_its_head_is_whole() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{";
        assert_eq!(head(&answer[..30]).unwrap(), None);
        assert_eq!(head(answer).unwrap(), Some((39, 12)));
        assert!(head(b"HTTP/1.1 409 Conflict\r\n\r\n").is_err());
    }

    #[test]
    fn a_lease_becomes_its_acknowledgement() {
        let tally = Tally::new();
        tally.number(2);
        let body =
            br#"{"lease":"a-1","expires_in_ms":5,"items":[{"id":"x0","attempt":1,"payload":"00000001"}]}"#;
        let mut held = Held::default();
        held.handle(&parse(body).unwrap(), &tally);
        assert_eq!((held.lease.as_str(), held.items), ("a-1", 1));
        assert_eq!(held.outcomes, r#"{"id":"x0","outcome":"done"}"#);
        assert_eq!(tally.count(), 1);
        held.handle(&parse(br#"{"lease":null,"items":[]}"#).unwrap(), &tally);
        assert!(held.lease.is_empty() && held.outcomes.is_empty());
    }
}
