//! Which systems take part: kvqueue is built or found, peers that are installed are started, others are named as missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::args::{PeerName, RunArgs};
use crate::cells::Threads;
use crate::error::Error;
use crate::peers::beanstalkd::Beanstalkd;
use crate::peers::graphile::Graphile;
use crate::peers::kvqueue::{Cluster, KvQueue, Mode};
use crate::peers::postgres::{Postgres, Server};
use crate::peers::redis::Redis;
use crate::peers::{Kind, Peer, Place, System};
use crate::process::{Processes, Program};

/// This package's directory, in the checkout that it was built from.
const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// Longest for building kvqueue.
const BUILD_LIMIT: Duration = Duration::from_secs(1_800);

/// All that take part.
pub struct Systems {
    /// The peers that run.
    pub all: Vec<Box<dyn System>>,
    /// The names of the other peers, without kvqueue.
    pub peers: Vec<String>,
    /// The peers that do not run, and why.
    pub missing: Vec<(String, String)>,
}

/// Where the databases go without --scratch.
pub fn build_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(HERE).join("target"), PathBuf::from)
}

/// Starts them.
pub fn start(args: &RunArgs, scratch: &Path, processes: &Processes) -> Result<Systems> {
    let program = match &args.kvqueue {
        Some(path) => {
            path.canonicalize().with_context(|| format!("--kvqueue {}: not there", path.display()))?
        }
        None => build(scratch, processes)?,
    };
    let place = |name: &str| Place { directory: scratch.join(name), processes: processes.clone() };
    let mut systems = Systems { all: Vec::new(), peers: Vec::new(), missing: Vec::new() };
    let mut ours = |mode, cluster| -> Result<()> {
        systems.all.push(Box::new(KvQueue::new(place("kvqueue"), &program, mode, cluster)?));
        Ok(())
    };
    for mode in [Mode::Default, Mode::Shared, Mode::AtMostOnce, Mode::ExactlyOnce] {
        ours(mode, None)?;
    }
    if let Some(file) = &args.cluster {
        let file = file.canonicalize().with_context(|| format!("--cluster {}: not there", file.display()))?;
        let cluster = Cluster { file, library: args.fdb_client_lib.clone() };
        ours(Mode::Seed, None)?;
        for mode in [Mode::Default, Mode::Shared, Mode::AtMostOnce, Mode::Seed] {
            ours(mode, Some(cluster.clone()))?;
        }
    }
    start_peers(args, processes, &place, &mut systems)?;
    Ok(systems)
}

fn start_peers(
    args: &RunArgs,
    processes: &Processes,
    place: &dyn Fn(&str) -> Place,
    systems: &mut Systems,
) -> Result<()> {
    let wanted = |name| args.peers.as_ref().is_none_or(|list| list.contains(&name));
    let mut add = |name, started| systems.add(processes, name, started);
    if wanted(PeerName::Beanstalkd) {
        add("beanstalkd", Beanstalkd::start(place("beanstalkd")).map(|peer| threads(peer, processes)))?;
    }
    for (peer, kind, name) in [
        (PeerName::RedisList, Kind::RedisList, "redis-list"),
        (PeerName::RedisStream, Kind::RedisStream, "redis-stream"),
    ] {
        if wanted(peer) {
            add(name, Redis::start(place(name), kind).map(|peer| threads(peer, processes)))?;
        }
    }
    let tables = [
        (PeerName::Postgres, Kind::Postgres, "postgres"),
        (PeerName::PostgresHeld, Kind::PostgresHeld, "postgres-held"),
    ];
    if !tables.iter().any(|(peer, ..)| wanted(*peer)) && !wanted(PeerName::Graphile) {
        return Ok(());
    }
    let server = match Server::start(place("postgres")) {
        Ok(server) => Arc::new(server),
        Err(error) => return add("postgres", Err(error)),
    };
    for (peer, kind, name) in tables {
        if wanted(peer) {
            add(name, Ok(threads(Postgres::new(Arc::clone(&server), kind), processes)))?;
        }
    }
    if wanted(PeerName::Graphile) {
        let graphile = Graphile::start(place("graphile"), server, &build_directory().join("graphile"));
        add("graphile", graphile.map(|graphile| Box::new(graphile) as Box<dyn System>))?;
    }
    Ok(())
}

fn threads(peer: impl Peer + 'static, processes: &Processes) -> Box<dyn System> {
    Box::new(Threads::new(peer, processes.clone()))
}

impl Systems {
    fn add(
        &mut self,
        processes: &Processes,
        name: &str,
        started: Result<Box<dyn System>, Error>,
    ) -> Result<()> {
        match started {
            Ok(system) => {
                self.peers.push(name.to_owned());
                self.all.push(system);
            }
            // A server that is being stopped fails in its own way.
            Err(_) if processes.is_closing() => bail!(Error::Stopped),
            Err(error) => {
                eprintln!("{name} is missing: {error}");
                self.missing.push((name.to_owned(), error.to_string()));
            }
        }
        Ok(())
    }
}

/// Builds `target/release/kvqueue` and `kvqueue-bench` of this checkout.
fn build(scratch: &Path, processes: &Processes) -> Result<PathBuf> {
    let root = Path::new(HERE)
        .join("../..")
        .canonicalize()
        .context("cannot find the checkout; give --kvqueue PATH")?;
    eprintln!("building kvqueue");
    // cargo itself says what it built where.
    let cargo = Program::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), Signal::TERM, None);
    let cargo = cargo.with(|command| {
        command.args(["build", "--release", "--locked", "--bins", "--message-format", "json"]);
        command.current_dir(&root);
    });
    let said = processes.run(cargo, &scratch.join("build"), BUILD_LIMIT).context("cannot build kvqueue")?;
    let built = executable(&said).context("cargo names no executable; give --kvqueue PATH")?;
    fs::canonicalize(&built).with_context(|| format!("{built} is not there"))
}

/// The executable `kvqueue` that cargo names in its messages. `kvqueue-bench` is in the same directory.
fn executable(messages: &str) -> Option<String> {
    let messages =
        messages.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut built = messages.filter_map(|message| message.get("executable")?.as_str().map(str::to_owned));
    built.find(|file| file.ends_with("/kvqueue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_path_is_read_from_cargo_messages() {
        let messages =
            "{\"executable\":null}\n{\"executable\":\"/t/kvqueue\"}\n{\"executable\":\"/t/kvqueue-bench\"}\n";
        assert_eq!(executable(messages).as_deref(), Some("/t/kvqueue"));
        assert_eq!(executable("{\"executable\":null}\n"), None);
    }
}
