//! beanstalkd with its binlog flushed at every write. Its protocol is lines of text.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use super::{
    ANSWER_LIMIT, Address, Consumer, Kind, Peer, Place, Producer, UP_LIMIT, free_port, listens, loopback,
};
use crate::error::Error;
use crate::process::{Process, Program, which};
use crate::tally;

/// Seconds after which a reserved job returns to the queue: longer than any cell.
const TIME_TO_RUN: u32 = 600;
/// Jobs reserved in one go while walking.
const WALK: usize = 200;

/// The server.
pub struct Beanstalkd {
    place: Place,
    version: String,
    port: u16,
    server: Process,
}

impl Beanstalkd {
    /// Starts it, if it is installed.
    pub fn start(place: Place) -> Result<Self, Error> {
        let program = which("beanstalkd").ok_or_else(|| Error::Unusable("not installed".to_owned()))?;
        let output = place.directory.with_extension("version");
        let version = Program::new(program, Signal::TERM, None).with(|command| {
            command.arg("-v");
        });
        let version = place.processes.run(version, &output, UP_LIMIT)?.trim().to_owned();
        let (port, server) = serve(&place)?;
        Ok(Self { place, version, port, server })
    }
}

fn serve(place: &Place) -> Result<(u16, Process), Error> {
    let directory = &place.directory;
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(Error::io("cannot empty beanstalkd's directory"))?;
    }
    fs::create_dir_all(directory).map_err(Error::io("cannot make beanstalkd's directory"))?;
    let port = free_port()?;
    let program = Program::new("beanstalkd", Signal::TERM, None).with(|command| {
        command.args(["-l", "127.0.0.1", "-f", "0", "-p"]).arg(port.to_string()).arg("-b").arg(directory);
    });
    let server = place.processes.start(program, &directory.with_extension("log"))?;
    server.wait_until(UP_LIMIT, || listens(port))?;
    Ok((port, server))
}

impl Peer for Beanstalkd {
    fn name(&self) -> &'static str {
        "beanstalkd"
    }

    fn setup(&self) -> String {
        format!("{}, `-b DIR -f 0`; put, reserve, delete; several at a time by pipelining", self.version)
    }

    fn address(&self) -> Address {
        Address { kind: Kind::Beanstalkd, port: self.port }
    }

    fn server(&self) -> Process {
        self.server.clone()
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.place.processes.stop(&self.server);
        (self.port, self.server) = serve(&self.place)?;
        Ok(())
    }

    /// By reserving everything: there is no other way to read a queue. The reset before the next cell empties it.
    fn walk(&self, saw: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut client = Client::connect(self.port)?;
        loop {
            let mut none = true;
            client.reserve(WALK, 0, |payload| {
                none = false;
                saw(payload)
            })?;
            if none {
                return Ok(());
            }
        }
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        self.place.processes.stop(&self.server);
    }
}

/// A connection.
pub struct Client {
    reader: BufReader<TcpStream>,
    line: String,
    request: Vec<u8>,
    held: Vec<u64>,
}

impl Client {
    /// Connects.
    pub fn connect(port: u16) -> Result<Self, Error> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&loopback(port), ANSWER_LIMIT)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_LIMIT))?;
            Ok(stream)
        };
        let stream = connect().map_err(Error::io("cannot connect to beanstalkd"))?;
        Ok(Self {
            reader: BufReader::new(stream),
            line: String::new(),
            request: Vec::new(),
            held: Vec::new(),
        })
    }

    fn send(&mut self) -> Result<(), Error> {
        self.reader.get_mut().write_all(&self.request).map_err(Error::io("beanstalkd went away"))?;
        self.request.clear();
        Ok(())
    }

    fn answer(&mut self) -> Result<&str, Error> {
        self.line.clear();
        self.reader.read_line(&mut self.line).map_err(Error::io("beanstalkd did not answer"))?;
        Ok(self.line.trim_end())
    }

    fn expect(&mut self, expected: &'static str) -> Result<(), Error> {
        let answer = self.answer()?;
        if answer.starts_with(expected) {
            return Ok(());
        }
        Err(Error::Unexpected { peer: "beanstalkd", answer: answer.to_owned(), expected })
    }

    /// Asks for `count` jobs at once; the first request waits for up to `wait` seconds.
    fn reserve(
        &mut self,
        count: usize,
        wait: u64,
        mut saw: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for nth in 0..count {
            let wait = if nth == 0 { wait } else { 0 };
            self.request.extend_from_slice(format!("reserve-with-timeout {wait}\r\n").as_bytes());
        }
        self.send()?;
        for _ in 0..count {
            let answer = self.answer()?;
            if answer == "TIMED_OUT" {
                continue;
            }
            let (id, bytes) = reserved(answer).ok_or_else(|| Error::Unexpected {
                peer: "beanstalkd",
                answer: answer.to_owned(),
                expected: "RESERVED",
            })?;
            let mut payload = vec![0; bytes + 2];
            self.reader.read_exact(&mut payload).map_err(Error::io("beanstalkd went away"))?;
            self.held.push(id);
            saw(&payload[..bytes])?;
        }
        Ok(())
    }
}

/// The id and the length that follow `RESERVED`.
fn reserved(answer: &str) -> Option<(u64, usize)> {
    let (id, bytes) = answer.strip_prefix("RESERVED ")?.split_once(' ')?;
    Some((id.parse().ok()?, bytes.parse().ok()?))
}

impl Producer for Client {
    fn push(&mut self, payloads: &[Vec<u8>]) -> Result<(), Error> {
        for payload in payloads {
            let head = format!("put 0 0 {TIME_TO_RUN} {}\r\n", payload.len());
            self.request.extend_from_slice(head.as_bytes());
            self.request.extend_from_slice(payload);
            self.request.extend_from_slice(b"\r\n");
        }
        self.send()?;
        payloads.iter().try_for_each(|_| self.expect("INSERTED "))
    }
}

impl Consumer for Client {
    fn take(&mut self, k: usize, wait: Option<Duration>, numbers: &mut Vec<u64>) -> Result<(), Error> {
        self.held.clear();
        // A request that waits keeps those behind it on the same connection waiting, so one is asked for.
        let (k, wait) = match wait {
            Some(wait) => (1, wait.as_secs().max(1)),
            None => (k, 0),
        };
        self.reserve(k, wait, |payload| {
            numbers.push(tally::number_of(payload)?);
            Ok(())
        })
    }

    fn finish(&mut self) -> Result<(), Error> {
        let held = std::mem::take(&mut self.held);
        for id in &held {
            self.request.extend_from_slice(format!("delete {id}\r\n").as_bytes());
        }
        self.send()?;
        held.iter().try_for_each(|_| self.expect("DELETED"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_reply_has_id_and_length() {
        assert_eq!(reserved("RESERVED 12 100"), Some((12, 100)));
        assert_eq!(reserved("RESERVED 12"), None);
        assert_eq!(reserved("TIMED_OUT"), None);
    }
}
