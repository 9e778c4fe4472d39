//! graphile-worker, from npm: a program on Node with PostgreSQL below it. A small program next to it runs the cells, since
//! its workers live in Node.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Map, Value, json};

use super::postgres::Server;
use super::{ANSWER_LIMIT, Place, Size, System, UP_LIMIT};
use crate::cell::{
    Cell, IDLE_WORKERS, PAYLOAD, PICKUP_EVERY_MS, SUSTAINED_EACH, SUSTAINED_K, SUSTAINED_RATE,
};
use crate::cells::{self, idle};
use crate::error::Error;
use crate::outcome::{CPU, Outcome, RESIDENT};
use crate::process::{Process, Processes, Program, which};

/// Its own database on PostgreSQL's server.
const DATABASE: &str = "graphile";
/// What is installed, and what drives it; committed next to the harness.
const FILES: [(&str, &str); 3] = [
    ("package.json", include_str!("../../graphile/package.json")),
    ("package-lock.json", include_str!("../../graphile/package-lock.json")),
    ("driver.mjs", include_str!("../../graphile/driver.mjs")),
];
/// Longest for npm.
const INSTALL_LIMIT: Duration = Duration::from_secs(120);

/// The program, and the server below it.
pub struct Graphile {
    processes: Processes,
    server: Arc<Server>,
    node: Process,
    talk: BufReader<UnixStream>,
    version: String,
}

impl Graphile {
    /// Installs it into `cache`, unless it is there, and starts it.
    pub fn start(place: Place, server: Arc<Server>, cache: &Path) -> Result<Self, Error> {
        let Some(node) = which("node") else { return Err(Error::Unusable("no node".to_owned())) };
        install(&place, cache)?;
        let database = server.database(DATABASE)?;
        let (ours, theirs) = UnixStream::pair().map_err(Error::io("cannot talk to node"))?;
        let input = theirs.try_clone().map_err(Error::io("cannot talk to node"))?;
        let program = Program::new(node, Signal::TERM, None).with(|command| {
            command.arg("driver.mjs").current_dir(cache).env("DATABASE_URL", database);
            command.env("NO_LOG_SUCCESS", "1").stdin(std::os::fd::OwnedFd::from(input));
        });
        let node =
            place.processes.start_with(program, &place.directory.with_extension("log"), theirs.into())?;
        let mut graphile = Self {
            processes: place.processes,
            server,
            node,
            talk: BufReader::new(ours),
            version: String::new(),
        };
        let ready = graphile.answer(UP_LIMIT)?;
        graphile.version = ready["ready"].as_str().unwrap_or("?").to_owned();
        Ok(graphile)
    }

    fn answer(&mut self, limit: Duration) -> Result<Value, Error> {
        self.talk.get_ref().set_read_timeout(Some(limit)).map_err(Error::io("cannot talk to node"))?;
        let mut line = String::new();
        self.talk.read_line(&mut line).map_err(Error::io("graphile-worker's driver did not answer"))?;
        serde_json::from_str(&line).map_err(|_| Error::Unexpected {
            peer: "graphile-worker",
            answer: line,
            expected: "a line of JSON",
        })
    }

    fn ask(&mut self, question: &Value, limit: Duration) -> Result<Map<String, Value>, Error> {
        self.talk
            .get_mut()
            .write_all(format!("{question}\n").as_bytes())
            .map_err(Error::io("node went away"))?;
        let answer = self.answer(limit)?;
        match answer {
            Value::Object(figures) if !figures.contains_key("error") => Ok(figures),
            other => Err(Error::Unexpected {
                peer: "graphile-worker",
                answer: other.to_string(),
                expected: "figures",
            }),
        }
    }

    fn idle(&mut self, seconds: f64) -> Result<Outcome, Error> {
        let long = seconds + idle::SETTLE.as_secs_f64() * 2.0;
        let question = json!({ "cell": "idle", "workers": IDLE_WORKERS, "seconds": long });
        let pids = [self.server.process().pid(), self.node.pid()];
        thread::scope(|scope| {
            let measured = scope.spawn(move || idle::measure(&pids, Duration::from_secs_f64(seconds)));
            self.ask(&question, Duration::from_secs_f64(long) + ANSWER_LIMIT)?;
            let (cpu, resident) = measured.join().map_err(|_| Error::Stopped)??;
            Ok(Outcome::default().with(CPU, cpu).with(RESIDENT, resident))
        })
    }
}

/// Installs the package that the committed lock names, with its exact versions and hashes.
fn install(place: &Place, cache: &Path) -> Result<(), Error> {
    let installed = cache.join("node_modules/.package-lock.json").is_file()
        && FILES[..2]
            .iter()
            .all(|(name, text)| fs::read_to_string(cache.join(name)).is_ok_and(|is| is == *text));
    fs::create_dir_all(cache).map_err(Error::io("cannot make graphile-worker's directory"))?;
    for (name, text) in FILES {
        fs::write(cache.join(name), text).map_err(Error::io("cannot write graphile-worker's package"))?;
    }
    if installed {
        return Ok(());
    }
    let Some(npm) = which("npm") else { return Err(Error::Unusable("no npm".to_owned())) };
    let program = Program::new(npm, Signal::TERM, None).with(|command| {
        command.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(cache);
    });
    let output: PathBuf = place.directory.with_extension("npm");
    place.processes.run(program, &output, INSTALL_LIMIT).map(drop)
}

fn question(cell: Cell, size: Size) -> Value {
    let Size { seconds, items } = size;
    match cell {
        Cell::Push { clients, batch } => {
            json!({ "cell": "push", "clients": clients, "batch": batch, "seconds": seconds, "payload": PAYLOAD })
        }
        Cell::Burn { workers, k } => json!({
            "cell": "burn", "workers": workers, "k": k, "items": items, "seconds": seconds, "payload": PAYLOAD,
        }),
        Cell::Sustained => json!({
            "cell": "sustained", "rate": SUSTAINED_RATE, "producers": SUSTAINED_EACH, "workers": SUSTAINED_EACH,
            "k": SUSTAINED_K, "seconds": cells::sustained_seconds(seconds), "payload": PAYLOAD,
        }),
        Cell::Pull { .. } | Cell::Pickup | Cell::Idle | Cell::Flood { .. } => json!({
            "cell": "pickup", "every_ms": PICKUP_EVERY_MS, "count": cells::pickup_count(seconds), "payload": PAYLOAD,
        }),
    }
}

impl System for Graphile {
    fn name(&self) -> &str {
        "graphile"
    }

    fn setup(&self) -> String {
        let package: Value = serde_json::from_str(FILES[0].1).unwrap_or_default();
        let version = package["dependencies"]["graphile-worker"].as_str().unwrap_or("?").to_owned();
        format!(
            "graphile-worker {version}, Node {}, PostgreSQL as above; addJob, several by addJobs; K > 1: localQueue of K, \
             completions batched",
            self.version
        )
    }

    fn runs(&self, cell: Cell) -> bool {
        !matches!(cell, Cell::Flood { .. } | Cell::Pull { .. })
    }

    fn run(&mut self, cell: Cell, size: Size) -> Result<Outcome, Error> {
        if cell == Cell::Idle {
            return self.idle(size.seconds);
        }
        let question = question(cell, size);
        let servers = [self.node.clone(), self.server.process()];
        let figures = Processes::limited(&servers, cells::LIMIT, || self.ask(&question, cells::LIMIT * 2))?;
        let mut outcome = Outcome::default();
        for (name, value) in figures {
            match (name.as_str(), value.as_f64()) {
                ("lost", _) => outcome.lost = value.as_u64().unwrap_or(0),
                ("repeated", _) => outcome.repeated = value.as_u64().unwrap_or(0),
                (_, Some(number)) => outcome = outcome.with(&name, number),
                (_, None) => {}
            }
        }
        Ok(outcome)
    }
}

impl Drop for Graphile {
    fn drop(&mut self) {
        self.processes.stop(&self.node);
    }
}
