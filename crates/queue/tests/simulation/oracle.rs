//! The judge of a run: sees every commit, in order, and everything that a worker is told.

use foundationdb::Database;
use foundationdb::options::StreamingMode;
use foundationdb::{FdbResult, RangeOption, Transaction};
use futures::TryStreamExt;
use futures::executor::block_on;
use kvqueue_queue::{Kind, Queue};

use crate::claims::{Claim, Claims};
use crate::history::History;
use crate::image::{self, Ids, Image, Row, Rows};
use crate::intent::Operation;

use crate::model::{At, Event, Model, Verdict, promise};
use crate::world::Counter;

/// The judge of one run.
pub(crate) struct Oracle {
    kind: Kind,
    ids: Ids,
    pub(crate) model: Model,
    claims: Claims,
    /// The queue as the last commit has left it.
    image: Image,
    pub(crate) history: History,
    /// The version of the last commit.
    pub(crate) version: u64,
}

impl Oracle {
    pub(crate) fn new(kind: Kind) -> Oracle {
        Oracle {
            kind,
            ids: Ids::default(),
            model: Model::new(kind),
            claims: Claims::default(),
            image: Image::default(),
            history: History::default(),
            version: 0,
        }
    }
    /// An operation committed, and left these rows. Returns what it did.
    pub(crate) fn committed(
        &mut self,
        operation: &Operation,
        at: At,
        rows: &Rows,
    ) -> Result<Vec<Event>, String> {
        let after = image::read(self.kind, &mut self.ids, rows)?;
        let events = operation.intent.events(&self.image, &after)?;
        self.history.committed(operation, &events);
        self.model.on(&events, at)?;
        let expected = self.model.image();
        promise!(expected == after, "the queue is not what it should be:\n  {}", expected.difference(&after));
        let counted = after.counters.npush.wrapping_sub(after.counters.npop);
        promise!(
            counted == after.ready.len() as u64,
            "{counted} items are counted, {} are ready",
            after.ready.len()
        );
        self.claims.committed(operation, &events, &self.model)?;
        (self.image, self.version) = (after, at.commit);
        Ok(events)
    }
    /// A worker was told something.
    pub(crate) fn told(&mut self, operation: &Operation, claim: &Claim) -> Verdict {
        self.history.told(operation, claim);
        self.claims.check(operation, claim, &self.model)
    }

    /// What a counter says.
    pub(crate) fn counted(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Ready => self.image.counters.npush,
            Counter::Later => self.image.counters.nlater,
        }
    }
}

/// Everything in the database that belongs to a run.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    prefix: Vec<u8>,
}

impl Place {
    pub(crate) fn new(seed: u64) -> Place {
        Place { prefix: format!("simulation/{seed}/").into_bytes() }
    }

    /// The whole of it.
    pub(crate) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        (self.prefix.clone(), [&self.prefix[..], &[0xff]].concat())
    }

    /// The queue.
    pub(crate) fn queue(&self, kind: Kind) -> Queue {
        Queue::of_kind(&self.part("queue/"), b"q", kind).unwrap()
    }

    /// The key under which a handler writes the effect of an item.
    pub(crate) fn effect(&self, item: &[u8]) -> Vec<u8> {
        [&self.part("effects/"), item].concat()
    }

    /// The key of a record of the log, with room for the commit's stamp, and where that goes.
    pub(crate) fn log_record(&self) -> (Vec<u8>, usize) {
        let log = self.part("log/");
        ([&log[..], &[0; 10]].concat(), log.len())
    }

    fn part(&self, name: &str) -> Vec<u8> {
        [&self.prefix, name.as_bytes()].concat()
    }

    /// What is stored.
    pub(crate) fn rows(&self, db: &Database) -> Rows {
        let queue = self.part("queue/");
        let all = read(db, |tr| block_on(range(tr, &queue, false)));
        let (mut records, mut items) = (Vec::new(), Vec::new());
        for (key, value) in all {
            // The name as a byte string, or, for the items of a recipe, as a text.
            match key.split_at(3) {
                ([0x01, ..], rest) => records.push((rest.to_vec(), value)),
                (_, rest) => items.push((rest.to_vec(), value)),
            }
        }
        let effects = self.part("effects/");
        Rows { records, items, effects: read(db, |tr| block_on(range(tr, &effects, false))) }
    }

    /// What the transaction that committed last says of itself in the log, and its version.
    pub(crate) fn last_logged(&self, db: &Database) -> Option<(u64, String)> {
        read(db, |tr| block_on(range(tr, &self.part("log/"), true))).pop().map(logged)
    }

    /// The whole log, in the order of commits.
    pub(crate) fn log(&self, db: &Database) -> Vec<(u64, String)> {
        read(db, |tr| block_on(range(tr, &self.part("log/"), false))).into_iter().map(logged).collect()
    }
}

fn logged((stamp, entry): Row) -> (u64, String) {
    (u64::from_be_bytes(stamp[..8].try_into().unwrap()), String::from_utf8(entry).unwrap())
}

/// The rows that begin with `part`, without it; or only the last.
async fn range(tr: &Transaction, part: &[u8], only_last: bool) -> FdbResult<Vec<Row>> {
    let option = RangeOption {
        limit: only_last.then_some(1),
        reverse: only_last,
        mode: StreamingMode::WantAll,
        ..RangeOption::from((part.to_vec(), [part, &[0xff]].concat()))
    };
    let pages: Vec<_> = tr.get_ranges(option, true).try_collect().await?;
    let rows = pages.iter().flat_map(|page| page.iter());
    Ok(rows.map(|row| (row.key()[part.len()..].to_vec(), row.value().to_vec())).collect())
}

/// Reads again where a fault is in the way.
fn read<T>(db: &Database, reading: impl Fn(&Transaction) -> FdbResult<T>) -> T {
    loop {
        match reading(&db.create_trx().unwrap()) {
            Ok(value) => return value,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}
