//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::cell::Pattern;
use crate::peers::Kind;

/// Measures kvqueue next to beanstalkd, Redis, PostgreSQL and graphile-worker: one run, one machine, the same durability.
#[derive(Debug, Parser)]
#[command(name = "compare", version, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// What this program asks of itself.
    #[command(subcommand)]
    pub inner: Option<Inner>,
    /// What to measure, and how.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What to measure, and how.
#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// One short round, to see that everything works; its figures mean little
    #[arg(long)]
    pub quick: bool,
    /// Only this cell, or family of cells: push, burn, burn-16x1, pull, sustained, pickup, idle; may be repeated
    #[arg(long, value_name = "CELL")]
    pub only: Vec<Pattern>,
    /// Only these peers next to kvqueue, separated by commas; `none` for kvqueue alone
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub peers: Option<Vec<PeerName>>,
    /// How often every system runs every cell
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Seconds that a system has in a cell
    #[arg(long, default_value_t = 1.2, value_parser = seconds)]
    pub seconds: f64,
    /// No run begins after this many minutes; the table lacks the cells that are not measured by then
    #[arg(long, default_value_t = 18.5, value_parser = seconds)]
    pub minutes: f64,
    /// Also write all figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Where all databases are, in a directory of the run's own that is removed at the end [default: below the build directory]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// The kvqueue to measure [default: `target/release/kvqueue` of this checkout, built first]
    #[arg(long, value_name = "PATH")]
    pub kvqueue: Option<PathBuf>,
    /// A FoundationDB cluster: adds the table of kvqueue's default next to the seed's algorithm, on it and on the
    /// embedded engine
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// FoundationDB's client library, for --cluster [default: the system's]
    #[arg(long, value_name = "PATH", env = "FDB_CLIENT_LIB")]
    pub fdb_client_lib: Option<PathBuf>,
}

/// A peer, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PeerName {
    /// kvqueue alone.
    None,
    /// beanstalkd.
    Beanstalkd,
    /// Redis, a list.
    RedisList,
    /// Redis, a stream with a consumer group.
    RedisStream,
    /// PostgreSQL, a lease.
    Postgres,
    /// PostgreSQL, rows held by an open transaction.
    PostgresHeld,
    /// graphile-worker.
    Graphile,
}

/// What this program asks of itself.
#[derive(Debug, Subcommand)]
pub enum Inner {
    /// Workers that wait in a process of their own, so that its memory can be read
    #[command(hide = true)]
    IdleWorker {
        /// Whose.
        kind: Kind,
        /// The server's port on loopback.
        port: u16,
        /// How many.
        workers: u32,
    },
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 3_600.0 => Ok(value),
        Ok(_) => Err("not in 0..=3600".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn comma_separated_lists_are_read_and_zero_amounts_refused() {
        let args = Args::parse_from(["compare", "--peers", "redis-list,beanstalkd", "--only", "push-1x1"]);
        assert_eq!(args.run.peers.unwrap(), [PeerName::RedisList, PeerName::Beanstalkd]);
        assert!(Args::try_parse_from(["compare", "--seconds", "0"]).is_err());
        assert!(Args::try_parse_from(["compare", "--only", "nonsense"]).is_err());
        assert!(Args::try_parse_from(["compare", "--rounds", "0"]).is_err());
    }
}
