//! Commits, retries, resets and cancels.

use fdb_embedded::testing::Reply;

use super::calls::TOO_OLD;
use super::own::{Sent, merged};
use super::store::Store;
use super::transaction::{Chosen, Held, Options, Transaction};
use super::{End, Facts, Model, Range, Seen, Verdict, expect};
use crate::program::{Bytes, CONFLICTING_KEYS};

/// What `on_error` waits for and starts again after.
const RETRYABLE: &[i32] = &[1020, 1021, 1007, 1009, 1038, 1042, 1078, 1037, 1051, 1213, 1223, 1079];

const CONFLICT: Seen = Seen::Reply(Reply::Error(1020));

impl Model {
    pub(super) fn commit(&mut self, t: &mut Transaction, seen: &Seen, facts: &Facts) -> Verdict {
        let outcome = t.check().and_then(|()| {
            t.used = true;
            // What failed before the commit got under way leaves the futures that wait for it as they are.
            t.failed_read.map_or(Ok(()), Err)?;
            self.try_commit(t, seen, facts)
        });
        if outcome.is_ok() && t.committed.is_some() {
            self.check_version(t, facts)?;
        }
        expect(seen, &Seen::Reply(outcome.map_or_else(Reply::Error, |()| Reply::Void)))
    }

    /// A commit's version lies after those of the commits before it and of everybody who has read, and its stamp begins with it.
    fn check_version(&self, t: &Transaction, facts: &Facts) -> Verdict {
        if let [.., before, last] = self.versions[..]
            && before >= last
        {
            return Err(format!("a committed version after {before}"));
        }
        let readers = self.transactions.iter().chain([t]);
        let readers = readers.filter(|reader| matches!(reader.version, Some(Chosen::At(_))));
        let newest = readers.filter_map(|reader| reader.real_version).max();
        if let Some(read) = newest
            && read >= facts.committed
        {
            return Err(format!("a committed version after {read}, which was read at"));
        }
        if let Some(stamp) = &facts.stamp
            && stamp[..8] != facts.committed.to_be_bytes()
        {
            return Err(format!("a stamp of {}, not {stamp:?}", facts.committed));
        }
        Ok(())
    }

    /// The read ranges that conflict, where the transaction wants to know them; unless it is not clear what it read.
    fn conflicting(&self, t: &Transaction, version: usize) -> Option<Vec<Range>> {
        let reads = merged(&t.reads);
        let hit = |read: &Range| self.store.conflicts(version, std::slice::from_ref(read));
        let conflicting = reads.into_iter().filter(|read| t.options.report_conflicts && hit(read)).collect();
        t.maybe_reads.is_empty().then_some(conflicting)
    }

    /// The rows that tell of the last conflict.
    pub(super) fn conflicting_keys(&self, t: &Transaction, seen: &Seen) -> Verdict {
        let Some(conflicting) = &t.conflicting else { return Ok(()) };
        let row = |key: &Bytes, value: &[u8]| ([CONFLICTING_KEYS, key].concat(), value.to_vec());
        let rows =
            conflicting.iter().flat_map(|range| [row(&range.begin, b"1"), row(&range.end, b"0")]).collect();
        let rows = Reply::Rows { rows, more: false };
        expect(seen, &Seen::Reply(t.deferred.map_or(rows, Reply::Error)))
    }

    fn try_commit(&mut self, t: &mut Transaction, seen: &Seen, facts: &Facts) -> Result<(), i32> {
        let Sent { changes, writes } = t.sent();
        if changes.is_empty() && writes.is_empty() {
            t.committed = None;
            let since = match t.version {
                Some(Chosen::At(version)) => version,
                _ => self.store.latest(),
            };
            self.arm(t, &Reply::Error(2021), since);
            return Ok(());
        }
        let size = t.sent_size(&Sent { changes: changes.clone(), writes: writes.clone() });
        let version = *t.version.get_or_insert(Chosen::At(self.store.latest()));
        let refusal = match version {
            _ if t.options.read_only => Some(2023),
            _ if size > t.options.size_limit => Some(2101),
            Chosen::TooOld => Some(TOO_OLD),
            Chosen::At(version) if self.store.conflicts(version, &t.reads) => {
                t.conflicting = self.conflicting(t, version);
                Some(1020)
            }
            Chosen::At(version) if self.store.conflicts(version, &t.maybe_reads) => {
                (*seen == CONFLICT).then_some(1020)
            }
            Chosen::At(_) => None,
        };
        if let Some(code) = refusal {
            t.end_held(&Reply::Error(2020), &Reply::Error(code));
            return Err(code);
        }
        self.store.commit(&changes, writes, facts.stamp.as_deref());
        self.versions.push(facts.committed);
        t.committed = Some(facts.committed);
        t.recycled = false;
        let stamp = facts.stamp.clone().map_or(Reply::Void, Reply::Key);
        self.arm(t, &stamp, self.store.latest());
        Ok(())
    }

    /// Settles what waited for a commit that succeeded.
    fn arm(&self, t: &mut Transaction, stamp: &Reply, since: usize) {
        for held in &mut t.held {
            if let Held::Waiting { watch } = held {
                *held = match watch.take() {
                    Some((key, baseline)) => Held::Armed { key, baseline, since },
                    None => Held::Ended(stamp.clone()),
                };
            }
        }
    }
}

impl Transaction {
    /// Every call fails from now on; versionstamps end with it, watches wait for a reset.
    pub fn die(&mut self, code: i32) {
        if self.dead.is_some() {
            return;
        }
        self.dead = Some(code);
        for held in &mut self.held {
            if matches!(held, Held::Waiting { watch: None }) {
                *held = Held::Ended(Reply::Error(code));
            }
        }
    }

    /// By the client, not by a failure. The engine (`strict`) ends the watches at once.
    pub fn cancel(&mut self, strict: bool) {
        let was_dead = self.dead.is_some();
        self.die(1025);
        for held in self.held.iter_mut().filter(|_| !was_dead) {
            if matches!(held, Held::Waiting { watch: Some(_) }) {
                *held = if strict {
                    Held::Ended(Reply::Error(1025))
                } else {
                    Held::Cancelled { is_reset: false }
                };
            }
        }
    }

    pub fn on_error(&mut self, code: i32) -> Result<(), i32> {
        self.dead.map_or(Ok(()), Err)?;
        let limit = self.options.retry_limit;
        let exhausted = limit >= 0 && self.retries >= limit;
        self.retries += 1;
        if exhausted || !RETRYABLE.contains(&code) {
            self.die(1025);
            return Err(if exhausted || code != 0 { code } else { 2000 });
        }
        let kept = Transaction {
            committed: self.committed,
            retries: self.retries,
            conflicting: self.conflicting.take(),
            recycled: self.recycled,
            ..Transaction::default()
        };
        self.restart(kept, Options { retry_limit: limit, ..Options::default() });
        Ok(())
    }

    /// The engine (`strict`) shows the last conflict until the next.
    pub fn reset(&mut self, strict: bool) {
        let recycled = self.recycled || self.committed.is_some();
        let conflicting = self.conflicting.take().filter(|_| strict);
        self.restart(Transaction { recycled, conflicting, ..Transaction::default() }, Options::default());
    }

    fn restart(&mut self, new: Transaction, options: Options) {
        // A versionstamp that can never come is a promise that was broken.
        self.end_held(&Reply::Error(1100), &Reply::Error(1025));
        let held = std::mem::take(&mut self.held);
        *self = Transaction { options, held, ..new };
    }

    /// Cancels or destroys a held future.
    pub fn end_one(&mut self, index: usize, cancel: bool, store: &Store) -> Seen {
        match self.held.get_mut(index) {
            None | Some(Held::Destroyed) => Seen::LeftOut,
            Some(held) if !cancel => {
                *held = Held::Destroyed;
                Seen::Nothing
            }
            Some(held @ Held::Armed { .. }) if held.ends(store) != Some(vec![End::Pending]) => {
                *held = Held::CancelledLate;
                Seen::Nothing
            }
            Some(held @ (Held::Waiting { .. } | Held::Armed { .. })) => {
                *held = Held::Ended(Reply::Error(1101));
                Seen::Nothing
            }
            Some(held @ Held::Cancelled { .. }) => {
                // One of several ends: not looked at again.
                *held = Held::Destroyed;
                Seen::Nothing
            }
            Some(Held::Ended(_) | Held::CancelledLate) => Seen::Nothing,
        }
    }
}
