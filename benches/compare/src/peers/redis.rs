//! Redis with an append-only file that is flushed before every answer: a list, and a stream with a consumer group.

use std::fs;
use std::time::Duration;

use redis::{Client, Connection, Pipeline, Script, Value, cmd, pipe};
use rustix::process::Signal;

use super::{ANSWER_LIMIT, Address, Consumer, Kind, Peer, Place, Producer, UP_LIMIT, free_port};
use crate::error::Error;
use crate::process::{Process, Program, which};
use crate::tally;

/// The list, or the stream.
const QUEUE: &str = "queue";
/// The stream's consumer group.
const GROUP: &str = "workers";
/// The one field of a stream's entries.
const FIELD: &str = "payload";
/// Items read in one go while walking.
const WALK: isize = 10_000;

/// Moves up to ARGV[1] items to the worker's own list, in order, in one step.
const TAKE_SEVERAL: &str = "local taken = redis.call('RPOP', KEYS[1], ARGV[1]) \
    if taken then redis.call('LPUSH', KEYS[2], unpack(taken)) end \
    return taken or {}";

/// The server, with one of the two uses of it.
pub struct Redis {
    place: Place,
    kind: Kind,
    version: String,
    port: u16,
    server: Process,
}

impl Redis {
    /// Starts it, if it is installed.
    pub fn start(place: Place, kind: Kind) -> Result<Self, Error> {
        let program = which("redis-server").ok_or_else(|| Error::Unusable("not installed".to_owned()))?;
        let output = place.directory.with_extension("version");
        let version = Program::new(program, Signal::TERM, None).with(|command| {
            command.arg("--version");
        });
        let said = place.processes.run(version, &output, UP_LIMIT)?;
        let version =
            said.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?").to_owned();
        let (port, server) = serve(&place, kind)?;
        Ok(Self { place, kind, version, port, server })
    }
}

fn serve(place: &Place, kind: Kind) -> Result<(u16, Process), Error> {
    let directory = &place.directory;
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(Error::io("cannot empty Redis's directory"))?;
    }
    fs::create_dir_all(directory).map_err(Error::io("cannot make Redis's directory"))?;
    let port = free_port()?;
    let program = Program::new("redis-server", Signal::TERM, None).with(|command| {
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(directory);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        // A rewrite of the file in the middle of a cell would count against Redis.
        command.args(["--auto-aof-rewrite-percentage", "0"]);
    });
    let server = place.processes.start(program, &directory.with_extension("log"))?;
    server
        .wait_until(UP_LIMIT, || connect(port).is_ok_and(|mut redis| cmd("PING").exec(&mut redis).is_ok()))?;
    if kind == Kind::RedisStream {
        cmd("XGROUP").arg(&["CREATE", QUEUE, GROUP, "$", "MKSTREAM"]).exec(&mut connect(port)?)?;
    }
    Ok((port, server))
}

fn connect(port: u16) -> Result<Connection, Error> {
    let client = Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let connection = client.get_connection_with_timeout(ANSWER_LIMIT)?;
    connection.set_read_timeout(Some(ANSWER_LIMIT))?;
    connection.set_write_timeout(Some(ANSWER_LIMIT))?;
    Ok(connection)
}

impl Peer for Redis {
    fn name(&self) -> &'static str {
        if self.kind == Kind::RedisStream { "redis-stream" } else { "redis-list" }
    }

    fn setup(&self) -> String {
        let commands = match self.kind {
            Kind::RedisStream => "XADD (several: MULTI); XREADGROUP COUNT K; XACK and XDEL in one pipeline",
            _ => {
                "LPUSH; LMOVE or BLMOVE to a list per worker (several: a script of RPOP and LPUSH); LREM (several: a pipeline)"
            }
        };
        format!("Redis {}, `--appendonly yes --appendfsync always --save \"\"`; {commands}", self.version)
    }

    fn address(&self) -> Address {
        Address { kind: self.kind, port: self.port }
    }

    fn server(&self) -> Process {
        self.server.clone()
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.place.processes.stop(&self.server);
        (self.port, self.server) = serve(&self.place, self.kind)?;
        Ok(())
    }

    fn walk(&self, saw: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut redis = connect(self.port)?;
        if self.kind == Kind::RedisStream {
            return walk_stream(&mut redis, saw);
        }
        for first in (0..).step_by(WALK.unsigned_abs()) {
            let items: Vec<Vec<u8>> =
                cmd("LRANGE").arg(QUEUE).arg(first).arg(first + WALK - 1).query(&mut redis)?;
            items.iter().try_for_each(|item| saw(item))?;
            if items.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

fn walk_stream(redis: &mut Connection, saw: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut from = b"-".to_vec();
    loop {
        let found = cmd("XRANGE").arg(QUEUE).arg(&from).arg("+").arg("COUNT").arg(WALK).query(redis)?;
        let entries = entries(found)?;
        for (_, payload) in &entries {
            saw(payload)?;
        }
        match entries.last() {
            None => return Ok(()),
            Some((id, _)) => from = [b"(", id.as_slice()].concat(),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.place.processes.stop(&self.server);
    }
}

/// A client of the list.
pub struct List {
    redis: Connection,
    several: Script,
    mine: String,
    held: Vec<Vec<u8>>,
}

impl List {
    /// Connects as the worker number `worker`.
    pub fn connect(port: u16, worker: u32) -> Result<Self, Error> {
        let (redis, several) = (connect(port)?, Script::new(TAKE_SEVERAL));
        Ok(Self { redis, several, mine: format!("processing:{worker}"), held: Vec::new() })
    }

    fn one(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let item: Option<Vec<u8>> =
            cmd("LMOVE").arg(&[QUEUE, &self.mine, "RIGHT", "LEFT"]).query(&mut self.redis)?;
        Ok(item.into_iter().collect())
    }

    fn several(&mut self, k: usize) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.several.key(QUEUE).key(&self.mine).arg(k).invoke(&mut self.redis)?)
    }

    fn wait(&mut self, wait: Duration) -> Result<Vec<Vec<u8>>, Error> {
        let mut request = cmd("BLMOVE");
        request.arg(&[QUEUE, &self.mine, "RIGHT", "LEFT"]).arg(wait.as_secs_f64());
        let item: Option<Vec<u8>> = request.query(&mut self.redis)?;
        Ok(item.into_iter().collect())
    }
}

impl Producer for List {
    fn push(&mut self, payloads: &[Vec<u8>]) -> Result<(), Error> {
        Ok(cmd("LPUSH").arg(QUEUE).arg(payloads).exec(&mut self.redis)?)
    }
}

impl Consumer for List {
    fn take(&mut self, k: usize, wait: Option<Duration>, numbers: &mut Vec<u64>) -> Result<(), Error> {
        self.held = match (k, wait) {
            (1, None) => self.one()?,
            (1, Some(wait)) => self.wait(wait)?,
            (k, _) => self.several(k)?,
        };
        if let (true, Some(wait)) = (self.held.is_empty() && k > 1, wait) {
            self.held = self.wait(wait)?;
        }
        for item in &self.held {
            numbers.push(tally::number_of(item)?);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut all = pipe();
        for item in &self.held {
            // The oldest is at the end.
            all.cmd("LREM").arg(&self.mine).arg(-1).arg(item);
        }
        let removed: Vec<u64> = all.query(&mut self.redis)?;
        if removed.iter().all(|removed| *removed == 1) {
            return Ok(());
        }
        Err(Error::Unexpected { peer: "redis", answer: format!("{removed:?}"), expected: "1 for every LREM" })
    }
}

/// A client of the stream.
pub struct Stream {
    redis: Connection,
    name: String,
    held: Vec<Vec<u8>>,
}

impl Stream {
    /// Connects as the worker number `worker`.
    pub fn connect(port: u16, worker: u32) -> Result<Self, Error> {
        Ok(Self { redis: connect(port)?, name: format!("worker-{worker}"), held: Vec::new() })
    }
}

impl Producer for Stream {
    fn push(&mut self, payloads: &[Vec<u8>]) -> Result<(), Error> {
        let mut all = Pipeline::with_capacity(payloads.len());
        if payloads.len() > 1 {
            all.atomic();
        }
        for payload in payloads {
            all.cmd("XADD").arg(QUEUE).arg("*").arg(FIELD).arg(payload).ignore();
        }
        Ok(all.exec(&mut self.redis)?)
    }
}

impl Consumer for Stream {
    fn take(&mut self, k: usize, wait: Option<Duration>, numbers: &mut Vec<u64>) -> Result<(), Error> {
        self.held.clear();
        let mut request = cmd("XREADGROUP");
        request.arg(&["GROUP", GROUP, &self.name, "COUNT"]).arg(k);
        if let Some(wait) = wait {
            request.arg("BLOCK").arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        let found: Value = request.arg(&["STREAMS", QUEUE, ">"]).query(&mut self.redis)?;
        for (id, payload) in entries(of_first_stream(found)?)? {
            numbers.push(tally::number_of(&payload)?);
            self.held.push(id);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut both = pipe();
        both.cmd("XACK").arg(QUEUE).arg(GROUP).arg(&self.held);
        both.cmd("XDEL").arg(QUEUE).arg(&self.held);
        let (acknowledged, deleted): (usize, usize) = both.query(&mut self.redis)?;
        if (acknowledged, deleted) == (self.held.len(), self.held.len()) {
            return Ok(());
        }
        let answer = format!("{acknowledged} and {deleted}");
        Err(Error::Unexpected { peer: "redis", answer, expected: "every entry acknowledged and deleted" })
    }
}

fn unexpected(value: &Value) -> Error {
    Error::Unexpected { peer: "redis", answer: format!("{value:?}"), expected: "entries of a stream" }
}

/// The entries in an answer of XREADGROUP about one stream.
fn of_first_stream(answer: Value) -> Result<Value, Error> {
    match answer {
        Value::Nil => Ok(Value::Array(Vec::new())),
        Value::Array(mut streams) => match streams.pop() {
            Some(Value::Array(mut stream)) if stream.len() == 2 => Ok(stream.remove(1)),
            other => Err(unexpected(&other.unwrap_or(Value::Nil))),
        },
        other => Err(unexpected(&other)),
    }
}

/// Id and payload.
type Entry = (Vec<u8>, Vec<u8>);

/// Ids and payloads of entries, which have one field each.
fn entries(value: Value) -> Result<Vec<Entry>, Error> {
    let Value::Array(entries) = value else { return Err(unexpected(&value)) };
    entries.into_iter().map(entry).collect()
}

fn entry(value: Value) -> Result<Entry, Error> {
    let Value::Array(mut parts) = value else { return Err(unexpected(&value)) };
    match (parts.pop(), parts.pop(), parts.pop()) {
        (Some(Value::Array(mut fields)), Some(Value::BulkString(id)), None) if fields.len() == 2 => {
            match fields.pop() {
                Some(Value::BulkString(payload)) => Ok((id, payload)),
                other => Err(unexpected(&other.unwrap_or(Value::Nil))),
            }
        }
        (last, ..) => Err(unexpected(&last.unwrap_or(Value::Nil))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn xreadgroup_reply_is_parsed_into_entries() {
        let entry = Value::Array(vec![text("1-0"), Value::Array(vec![text(FIELD), text("x")])]);
        let answer = Value::Array(vec![Value::Array(vec![text(QUEUE), Value::Array(vec![entry])])]);
        let found = entries(of_first_stream(answer).unwrap()).unwrap();
        assert_eq!(found, [(b"1-0".to_vec(), b"x".to_vec())]);
        assert_eq!(entries(of_first_stream(Value::Nil).unwrap()).unwrap(), []);
        assert!(of_first_stream(Value::Okay).is_err());
    }
}
