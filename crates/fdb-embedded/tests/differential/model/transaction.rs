//! One transaction of the model.

use fdb_embedded::testing::Reply;

use super::own::{Change, Own, STAMPED_KEY, STAMPED_VALUE, Sent, Write, merged};
use super::store::{Rows, Store};
use super::{End, Range};
use crate::program::Bytes;

/// A read version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// The number of commits before it.
    At(usize),
    /// Older than five seconds.
    TooOld,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub ryw_disabled: bool,
    pub snapshot_ryw: i64,
    pub next_write_no_conflict: bool,
    pub read_system: bool,
    pub write_system: bool,
    pub raw: bool,
    pub bypass_unreadable: bool,
    pub protection_disabled: bool,
    pub lock_aware: bool,
    pub read_only: bool,
    pub retry_limit: i64,
    pub size_limit: i64,
    pub report_conflicts: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ryw_disabled: false,
            snapshot_ryw: 1,
            next_write_no_conflict: false,
            read_system: false,
            write_system: false,
            raw: false,
            bypass_unreadable: false,
            protection_disabled: false,
            lock_aware: false,
            read_only: false,
            retry_limit: -1,
            size_limit: 10_000_000,
            report_conflicts: false,
        }
    }
}

/// A future that the program holds until its end.
#[derive(Debug, Clone)]
pub enum Held {
    Destroyed,
    Ended(Reply),
    /// A watch that was cancelled when it may have fired already.
    CancelledLate,
    /// A versionstamp, or a watch whose transaction has not committed.
    Waiting {
        watch: Option<(Bytes, Option<Bytes>)>,
    },
    /// A watch of a transaction that was cancelled. FoundationDB ends one whose own read is still under way, and lets the
    /// others wait for a reset, or for a write of the same transaction, which does nothing else any more. There is no
    /// telling which it is.
    Cancelled {
        is_reset: bool,
    },
    /// A watch, and the state after whose commit it was armed.
    Armed {
        key: Bytes,
        baseline: Option<Bytes>,
        since: usize,
    },
}

impl Held {
    /// What it may be now.
    pub fn ends(&self, store: &Store) -> Option<Vec<End>> {
        match self {
            Held::Destroyed => None,
            Held::Ended(reply) => Some(vec![End::Reply(reply.clone())]),
            Held::CancelledLate => Some(vec![End::Reply(Reply::Void), End::Reply(Reply::Error(1101))]),
            Held::Waiting { .. } => Some(vec![End::Pending]),
            Held::Cancelled { is_reset } => {
                let ends = [End::Reply(Reply::Error(1025)), End::Reply(Reply::Void)];
                Some(ends.into_iter().chain((!is_reset).then_some(End::Pending)).collect())
            }
            Held::Armed { key, baseline, since } => {
                let differs = |rows: &Rows| rows.get(key) != baseline.as_ref();
                if differs(store.rows(store.latest())) {
                    return Some(vec![End::Reply(Reply::Void)]);
                }
                // A change that has been undone meanwhile may have been seen or not.
                let ever = (*since..store.latest()).any(|version| differs(store.rows(version)));
                let fired = ever.then_some(End::Reply(Reply::Void));
                Some([End::Pending].into_iter().chain(fired).collect())
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Transaction {
    pub options: Options,
    /// What every call fails with until a reset.
    pub dead: Option<i32>,
    /// The first error of a call that could not report it.
    pub deferred: Option<i32>,
    /// Its commit has begun.
    pub used: bool,
    pub version: Option<Chosen>,
    /// The real read version, where it has been seen.
    pub real_version: Option<i64>,
    pub own: Own,
    /// What was on its way before the commit.
    pub early: Sent,
    pub reads: Vec<Range>,
    /// Ranges of which some count as read, as the client happened to look at the database.
    pub maybe_reads: Vec<Range>,
    /// For the same reason the size may be another.
    pub vague_size: bool,
    /// The operations that count for the size without read-your-writes.
    pub plain_reads: Vec<Range>,
    pub size: i64,
    /// A read that failed: the commit fails with the same.
    pub failed_read: Option<i32>,
    /// Something has been read from the database.
    pub has_read: bool,
    pub has_written: bool,
    /// It has been reset after a commit.
    pub recycled: bool,
    /// The ranges of its last conflict; none if that is not known.
    pub conflicting: Option<Vec<Range>>,
    pub held: Vec<Held>,
    /// The version of the last commit.
    pub committed: Option<i64>,
    pub retries: i64,
}

impl Transaction {
    pub fn is_usable(&self) -> bool {
        self.dead.is_none() && self.deferred.is_none() && !self.used
    }

    pub fn has_stamps(&self) -> bool {
        let stamped = |code: u32| matches!(code, STAMPED_KEY | STAMPED_VALUE);
        let early = |change: &Change| matches!(change, Change::Op { code, .. } if stamped(*code));
        let own = |write: &Write| matches!(write, Write::Op { code, .. } if stamped(*code));
        self.early.changes.iter().any(early) || self.own.list.iter().any(own)
    }

    pub fn max_read(&self) -> &'static [u8] {
        if self.options.read_system { b"\xff\xff" } else { b"\xff" }
    }

    pub fn max_write(&self) -> &'static [u8] {
        if self.options.write_system { b"\xff\xff" } else { b"\xff" }
    }

    /// A call when the commit has begun is an error, and unless an option says otherwise the end.
    pub fn check_used(&mut self) -> Result<(), i32> {
        if !self.used {
            return Ok(());
        }
        if !self.options.protection_disabled {
            self.die(2017);
        }
        Err(2017)
    }

    /// What every call that returns a future checks first.
    pub fn check(&mut self) -> Result<(), i32> {
        self.deferred.map_or(Ok(()), Err)?;
        self.check_used()?;
        self.dead.map_or(Ok(()), Err)
    }

    /// What the commit sends.
    pub fn sent(&self) -> Sent {
        if self.options.ryw_disabled {
            return self.own.plain();
        }
        let mut sent = self.early.clone();
        sent.append(&mut self.own.changes(&Range::new(b"", b"\xff\xff")));
        sent
    }

    /// The bytes that are held against the size limit.
    pub fn sent_size(&self, sent: &Sent) -> i64 {
        let reads = if self.options.ryw_disabled { self.plain_reads.clone() } else { merged(&self.reads) };
        let ranges = reads.iter().chain(&sent.writes).map(|range| range.size() + 24);
        sent.changes.iter().map(Change::size).sum::<i64>() + ranges.sum::<i64>()
    }

    /// Ends the futures that wait for the transaction.
    pub fn end_held(&mut self, stamp: &Reply, watch: &Reply) {
        for held in &mut self.held {
            if let Held::Waiting { watch: watched } = held {
                *held = Held::Ended(if watched.is_some() { watch.clone() } else { stamp.clone() });
            } else if let Held::Cancelled { is_reset } = held {
                *is_reset = true;
            }
        }
    }
}
