//! Clients of the table: prepared statements, a connection each.

use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Row, Statement};

use super::{DATABASE, connect};
use crate::error::Error;
use crate::peers::{Consumer, Producer};
use crate::tally;

const INSERT: &str = "insert into item (payload) select unnest($1::bytea[])";
const INSERT_AND_NOTIFY: &str =
    "with pushed as (insert into item (payload) select unnest($1::bytea[]) returning id)
    select pg_notify('item', '') from (select from pushed limit 1) as one";
const LEASE: &str = "update item set state = 1 where id = any(array(
    select id from item where state = 0 order by id for update skip locked limit $1)) returning id, payload";
const FINISH: &str = "delete from item where id = any($1)";
const HOLD: &str = "delete from item where id = any(array(
    select id from item where state = 0 order by id for update skip locked limit $1)) returning payload";

/// Inserts.
pub struct Inserter {
    client: Client,
    insert: Statement,
}

impl Inserter {
    /// Connects; `notify`: an insert also wakes listeners, which makes such inserts commit one by one.
    pub fn connect(port: u16, notify: bool) -> Result<Self, Error> {
        let mut client = connect(port, DATABASE)?;
        let insert = client.prepare(if notify { INSERT_AND_NOTIFY } else { INSERT })?;
        Ok(Self { client, insert })
    }
}

impl Producer for Inserter {
    fn push(&mut self, payloads: &[Vec<u8>]) -> Result<(), Error> {
        self.client.execute(&self.insert, &[&payloads])?;
        Ok(())
    }
}

/// Leases: takes by changing the rows' state, finishes by deleting them.
pub struct Leaser {
    client: Client,
    lease: Statement,
    finish: Statement,
    held: Vec<i64>,
}

impl Leaser {
    /// Connects; `listen`: it will wait for items.
    pub fn connect(port: u16, listen: bool) -> Result<Self, Error> {
        let mut client = connect(port, DATABASE)?;
        if listen {
            client.batch_execute("listen item")?;
        }
        let (lease, finish) = (client.prepare(LEASE)?, client.prepare(FINISH)?);
        Ok(Self { client, lease, finish, held: Vec::new() })
    }
}

impl Consumer for Leaser {
    fn take(&mut self, k: usize, wait: Option<Duration>, numbers: &mut Vec<u64>) -> Result<(), Error> {
        let rows =
            take_or_wait(&mut self.client, wait, |client| Ok(client.query(&self.lease, &[&limit(k)])?))?;
        self.held.clear();
        for row in &rows {
            self.held.push(row.get(0));
            numbers.push(tally::number_of(row.get(1))?);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.held.is_empty() {
            return Ok(());
        }
        let deleted = self.client.execute(&self.finish, &[&self.held])?;
        if usize::try_from(deleted) == Ok(self.held.len()) {
            return Ok(());
        }
        let answer = format!("{deleted} rows");
        Err(Error::Unexpected { peer: "postgres", answer, expected: "every row that was leased" })
    }
}

/// Holds: takes by deleting in a transaction that is committed when the items are handled.
pub struct Holder {
    client: Client,
    hold: Statement,
    open: bool,
}

impl Holder {
    /// Connects; `listen`: it will wait for items.
    pub fn connect(port: u16, listen: bool) -> Result<Self, Error> {
        let mut client = connect(port, DATABASE)?;
        if listen {
            client.batch_execute("listen item")?;
        }
        let hold = client.prepare(HOLD)?;
        Ok(Self { client, hold, open: false })
    }
}

impl Consumer for Holder {
    fn take(&mut self, k: usize, wait: Option<Duration>, numbers: &mut Vec<u64>) -> Result<(), Error> {
        let rows = take_or_wait(&mut self.client, wait, |client| {
            client.batch_execute("begin")?;
            let rows = client.query(&self.hold, &[&limit(k)])?;
            if rows.is_empty() {
                client.batch_execute("rollback")?;
            }
            Ok(rows)
        })?;
        self.open = !rows.is_empty();
        for row in &rows {
            numbers.push(tally::number_of(row.get(0))?);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.open) {
            self.client.batch_execute("commit")?;
        }
        Ok(())
    }
}

fn limit(k: usize) -> i64 {
    i64::try_from(k).unwrap_or(i64::MAX)
}

/// Takes; while there is nothing, waits for a notification, and takes again.
fn take_or_wait(
    client: &mut Client,
    wait: Option<Duration>,
    mut take: impl FnMut(&mut Client) -> Result<Vec<Row>, Error>,
) -> Result<Vec<Row>, Error> {
    let begin = Instant::now();
    loop {
        let rows = take(client)?;
        let left = wait.and_then(|wait| wait.checked_sub(begin.elapsed()));
        let (true, Some(left)) = (rows.is_empty(), left) else { return Ok(rows) };
        if client.notifications().timeout_iter(left).next()?.is_none() {
            return Ok(rows);
        }
        // What else came by now speaks of items that the next take finds.
        while client.notifications().iter().next()?.is_some() {}
    }
}
