//! PostgreSQL, with `FOR UPDATE SKIP LOCKED`: rows leased by a change of their state, and rows held by an open transaction.

mod client;
mod server;

use std::sync::Arc;

use super::{Address, Kind, Peer};
use crate::error::Error;
use crate::process::Process;

pub use client::{Holder, Inserter, Leaser};
pub use server::{Server, connect};

/// The database that both uses share, one after the other.
const DATABASE: &str = "postgres";

const SCHEMA: &str = "create table item (
    id bigint generated always as identity primary key,
    payload bytea not null,
    state smallint not null default 0
);
create index item_ready on item (id) where state = 0;";

/// One of the two uses.
pub struct Postgres {
    server: Arc<Server>,
    kind: Kind,
}

impl Postgres {
    /// On this server.
    pub fn new(server: Arc<Server>, kind: Kind) -> Self {
        Self { server, kind }
    }
}

impl Peer for Postgres {
    fn name(&self) -> &'static str {
        if self.kind == Kind::PostgresHeld { "postgres-held" } else { "postgres" }
    }

    fn setup(&self) -> String {
        let statements = match self.kind {
            Kind::PostgresHeld => {
                "begin; delete .. (select .. for update skip locked limit K) returning; commit when handled"
            }
            _ => {
                "insert .. unnest; update .. (select .. for update skip locked limit K) returning; delete .. = any"
            }
        };
        format!("{}; {statements}; NOTIFY only where workers wait", self.server.setup())
    }

    fn address(&self) -> Address {
        Address { kind: self.kind, port: self.server.port() }
    }

    fn server(&self) -> Process {
        self.server.process()
    }

    fn reset(&mut self) -> Result<(), Error> {
        let mut client = connect(self.server.port(), DATABASE)?;
        client.batch_execute(&format!("drop table if exists item; {SCHEMA}"))?;
        // What came before is not to be written out in the middle of a cell.
        Ok(client.batch_execute("checkpoint")?)
    }

    fn walk(&self, saw: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut client = connect(self.server.port(), DATABASE)?;
        for row in client.query("select payload from item", &[])? {
            saw(row.get(0))?;
        }
        Ok(())
    }
}
