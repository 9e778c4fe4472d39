//! The systems that are compared. A *system* runs whole cells; a *peer* is a system whose producers and workers are
//! threads of the harness, which `cells` drives.

pub mod beanstalkd;
pub mod graphile;
pub mod kvqueue;
pub mod postgres;
pub mod redis;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use crate::cell::Cell;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::process::{Process, Processes};

/// Longest wait for a server to come up.
pub const UP_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for one answer of a server.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How much a cell is to do.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How long it may go on.
    pub seconds: f64,
    /// How many items a queue holds that is to be processed.
    pub items: u64,
}

/// Something that is compared.
pub trait System {
    /// Name in tables and on the command line.
    fn name(&self) -> &str;
    /// Version and settings, for the reader.
    fn setup(&self) -> String;
    /// Whether the cell has a meaning for it.
    fn runs(&self, cell: Cell) -> bool;
    /// Runs a cell.
    fn run(&mut self, cell: Cell, size: Size) -> Result<Outcome, Error>;
}

/// A server on loopback whose clients are threads of the harness.
pub trait Peer: Send + Sync {
    /// Name in tables and on the command line.
    fn name(&self) -> &'static str;
    /// Version and settings, for the reader.
    fn setup(&self) -> String;
    /// How its clients reach it.
    fn address(&self) -> Address;
    /// Its server, to read its cost and to end it when it hangs.
    fn server(&self) -> Process;
    /// Makes its queue empty, and its server as good as new.
    fn reset(&mut self) -> Result<(), Error>;
    /// Calls `saw` with the payload of every item in the queue.
    fn walk(&self, saw: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error>;
}

/// Which protocol, and which use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
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
}

/// How clients reach a server.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// What answers there.
    pub kind: Kind,
    /// The port on loopback.
    pub port: u16,
}

/// Pushes, one call after the other.
pub trait Producer: Send {
    /// Pushes all in one transaction, or as near to one as the system comes. All are durable when it returns.
    fn push(&mut self, payloads: &[Vec<u8>]) -> Result<(), Error>;
}

/// Takes, and finishes what it took.
pub trait Consumer: Send {
    /// Takes up to `k` items and puts their numbers into `numbers`; when there are none it waits for one for up to `wait`.
    fn take(&mut self, k: usize, wait: Option<Duration>, numbers: &mut Vec<u64>) -> Result<(), Error>;
    /// Finishes what the last take gave. That is durable when it returns.
    fn finish(&mut self) -> Result<(), Error>;
}

impl Address {
    /// A producer; `notify`: it also wakes workers that wait, where that is extra work.
    pub fn producer(self, notify: bool) -> Result<Box<dyn Producer>, Error> {
        Ok(match self.kind {
            Kind::Beanstalkd => Box::new(beanstalkd::Client::connect(self.port)?),
            Kind::RedisList => Box::new(redis::List::connect(self.port, 0)?),
            Kind::RedisStream => Box::new(redis::Stream::connect(self.port, 0)?),
            Kind::Postgres | Kind::PostgresHeld => Box::new(postgres::Inserter::connect(self.port, notify)?),
        })
    }

    /// The worker number `worker`; `wakes`: it will wait for items.
    pub fn consumer(self, worker: u32, wakes: bool) -> Result<Box<dyn Consumer>, Error> {
        Ok(match self.kind {
            Kind::Beanstalkd => Box::new(beanstalkd::Client::connect(self.port)?),
            Kind::RedisList => Box::new(redis::List::connect(self.port, worker)?),
            Kind::RedisStream => Box::new(redis::Stream::connect(self.port, worker)?),
            Kind::Postgres => Box::new(postgres::Leaser::connect(self.port, wakes)?),
            Kind::PostgresHeld => Box::new(postgres::Holder::connect(self.port, wakes)?),
        })
    }
}

/// Where a peer lives, and what starts its server.
#[derive(Clone)]
pub struct Place {
    /// A directory of its own.
    pub directory: PathBuf,
    /// Starts and ends it.
    pub processes: Processes,
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16, Error> {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("cannot find a free port"))?;
    Ok(taken.local_addr().map_err(Error::io("cannot find a free port"))?.port())
}

/// A port on loopback.
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Whether something listens there.
pub fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&loopback(port), Duration::from_millis(200)).is_ok()
}
