//! The part of the database that belongs to a run.

use foundationdb::options::StreamingMode;
use foundationdb::{Database, FdbResult, RangeOption, Transaction};
use futures::TryStreamExt;
use futures::executor::block_on;
use kvqueue_queue::{Kind, Queue};

use crate::image::{Row, Rows};

/// The names of queues.
const NAMES: [u8; 2] = *b"qr";

/// Everything that belongs to a run: its queue, what handlers write, and the log.
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

    /// The queue of this number.
    pub(crate) fn queue(&self, at: usize, kind: Kind) -> Queue {
        Queue::of_kind(&self.part("queue/"), &NAMES[at..=at], kind).unwrap()
    }

    /// The key under which a handler writes the effect of an item of the queue of this number.
    pub(crate) fn effect(&self, at: usize, item: &[u8]) -> Vec<u8> {
        [&self.part("effects/"), &NAMES[at..=at], item].concat()
    }

    /// The key of a record of the log, with room for the commit's stamp, and where that goes.
    pub(crate) fn log_record(&self) -> (Vec<u8>, usize) {
        let log = self.part("log/");
        ([&log[..], &[0; 10]].concat(), log.len())
    }

    fn part(&self, name: &str) -> Vec<u8> {
        [&self.prefix, name.as_bytes()].concat()
    }

    /// What is stored of each of so many queues.
    pub(crate) fn rows(&self, db: &Database, queues: usize) -> Vec<Rows> {
        let queue = self.part("queue/");
        let all = read(db, |tr| block_on(range(tr, &queue, false)));
        let mut rows: Vec<Rows> = (0..queues).map(|_| Rows::default()).collect();
        for (key, value) in all {
            // The name as a byte string, or, for the items of a recipe, as a text.
            let (name, rest) = key.split_at(3);
            let of = &mut rows[number(name[1])];
            let part = if name[0] == 0x01 { &mut of.records } else { &mut of.items };
            part.push((rest.to_vec(), value));
        }
        let effects = self.part("effects/");
        for (key, value) in read(db, |tr| block_on(range(tr, &effects, false))) {
            rows[number(key[0])].effects.push((key[1..].to_vec(), value));
        }
        rows
    }

    /// What the transaction that committed last writes about itself into the log, and its version.
    pub(crate) fn last_logged(&self, db: &Database) -> Option<(u64, String)> {
        read(db, |tr| block_on(range(tr, &self.part("log/"), true))).pop().map(logged)
    }

    /// The whole log, in the order of commits.
    pub(crate) fn log(&self, db: &Database) -> Vec<(u64, String)> {
        read(db, |tr| block_on(range(tr, &self.part("log/"), false))).into_iter().map(logged).collect()
    }
}

/// The number of the queue with a name of this letter.
fn number(name: u8) -> usize {
    NAMES.iter().position(|other| *other == name).unwrap()
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
