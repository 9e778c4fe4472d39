//! Reads, versions and sizes.

use fdb_embedded::testing::{KeySelector, Reply};

use super::read::{Pieces, Selector, UNREADABLE};
use super::store::Rows;
use super::transaction::{Chosen, Held, Transaction};
use super::{Facts, Model, Range, Seen, Verdict, conflict, expect};
use crate::program::{Bytes, Call, Version};

pub const TOO_OLD: i32 = 1007;
pub const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";

/// Longest key of the key space of `key` that can be there at all.
pub fn key_limit(key: &[u8]) -> usize {
    if key.first() == Some(&0xff) { 30_008 } else { 10_008 }
}

/// A key over the limit, cut where that changes nothing.
pub fn cut(key: &[u8]) -> Bytes {
    key[..key.len().min(key_limit(key) + 1)].to_vec()
}

/// End of the keys that the client answers itself.
pub const SPECIAL_END: &[u8] = b"\xff\xff\xff";

pub fn is_special(key: &[u8]) -> bool {
    key.starts_with(b"\xff\xff") && key < SPECIAL_END
}

pub fn reply(result: Result<Reply, i32>) -> Seen {
    Seen::Reply(result.unwrap_or_else(Reply::Error))
}

pub fn plain(selector: &KeySelector) -> Selector {
    let mut key = selector.key.clone();
    if selector.or_equal {
        key.push(0);
    }
    let key = cut(&key);
    Selector { key, offset: selector.offset }
}

pub fn long_cut(selector: &KeySelector) -> KeySelector {
    KeySelector { key: cut(&selector.key), ..selector.clone() }
}

impl Model {
    pub(super) fn call(&mut self, t: &mut Transaction, call: &Call, seen: &Seen, facts: &Facts) -> Verdict {
        match call {
            Call::Get { key, snapshot } => {
                let expected = self.get(t, key, *snapshot);
                expect(seen, &reply(expected))
            }
            Call::GetKey { selector, snapshot } => {
                let expected = self.get_key(t, selector, *snapshot);
                expect(seen, &reply(expected))
            }
            Call::GetRange(arguments) => self.get_range(t, arguments, seen),
            Call::GetReadVersion => self.get_read_version(t, seen),
            Call::SetReadVersion(version) => self.set_read_version(t, version, seen, facts),
            // A cluster's client may still say the old one after a reset.
            Call::CommittedVersion if t.recycled && !self.strict => Ok(()),
            Call::CommittedVersion => expect(seen, &Seen::Reply(Reply::Int64(t.committed.unwrap_or(-1)))),
            Call::ApproximateSize if t.vague_size && !self.strict && t.deferred.is_none() => Ok(()),
            Call::ApproximateSize => {
                let size = t.deferred.map_or(Ok(Reply::Int64(t.size)), Err);
                expect(seen, &reply(size))
            }
            Call::Versionstamp => {
                let state = t.deferred.map_or(Ok(()), Err).and_then(|()| t.check_used());
                t.held.push(match (state, t.dead) {
                    (Err(code), _) | (Ok(()), Some(code)) => Held::Ended(Reply::Error(code)),
                    (Ok(()), None) => Held::Waiting { watch: None },
                });
                expect(seen, &Seen::Nothing)
            }
            Call::Watch { key } => {
                let held = match self.watch(t, key) {
                    Ok(baseline) => Held::Waiting { watch: Some((key.clone(), baseline)) },
                    Err(code) => Held::Ended(Reply::Error(code)),
                };
                t.held.push(held);
                expect(seen, &Seen::Nothing)
            }
            Call::Commit => self.commit(t, seen, facts),
            Call::OnError(code) => expect(seen, &reply(t.on_error(*code).map(|()| Reply::Void))),
            Call::ConflictingKeys => self.conflicting_keys(t, seen),
            Call::Reset => {
                t.reset(self.strict);
                expect(seen, &Seen::Nothing)
            }
            Call::Cancel => {
                t.cancel(self.strict);
                expect(seen, &Seen::Nothing)
            }
            Call::TimeOut => {
                if t.deferred.is_none() {
                    t.die(1031);
                }
                expect(seen, &Seen::Nothing)
            }
            Call::EndHeld { index, cancel } => expect(seen, &t.end_one(*index, *cancel, &self.store)),
            _ => {
                t.real_version = t.real_version.or(facts.read_version);
                expect(seen, &t.write(call))
            }
        }
    }

    /// The state that a read sees; the version is fixed by the first read that needs it.
    pub(super) fn state<'s>(&'s self, t: &Transaction) -> Result<&'s Rows, i32> {
        match t.version {
            Some(Chosen::TooOld) => Err(TOO_OLD),
            Some(Chosen::At(version)) => Ok(self.store.rows(version)),
            None => Ok(self.store.rows(self.store.latest())),
        }
    }

    pub(super) fn touch(&self, t: &mut Transaction) {
        t.has_read = true;
        t.version.get_or_insert(Chosen::At(self.store.latest()));
    }

    pub(super) fn sees_own(t: &Transaction, snapshot: bool) -> bool {
        !t.options.ryw_disabled && (!snapshot || t.options.snapshot_ryw > 0)
    }

    fn get(&self, t: &mut Transaction, key: &[u8], snapshot: bool) -> Result<Reply, i32> {
        t.deferred.map_or(Ok(()), Err)?;
        if is_special(key) {
            return if key.len() == 2 { Ok(Reply::Value(None)) } else { Err(2113) };
        }
        t.check()?;
        if key >= t.max_read() && key != METADATA_VERSION {
            return Err(2004);
        }
        if key.len() > key_limit(key) {
            return Ok(Reply::Value(None));
        }
        let value = self.value(t, key, snapshot);
        if let Err(code) = value {
            t.failed_read.get_or_insert(code);
        }
        value.map(Reply::Value)
    }

    /// Reads one key, and adds what that conflicts with.
    fn value(&self, t: &mut Transaction, key: &[u8], snapshot: bool) -> Result<Option<Bytes>, i32> {
        if !Self::sees_own(t, snapshot) {
            let value = self.state(t)?.get(key).cloned();
            self.touch(t);
            if !snapshot {
                t.plain_reads.push(Range::key(key));
                t.read_plain(Range::key(key));
            }
            return Ok(value);
        }
        let cell = t.own.cell(key);
        if cell.unreadable && !t.options.bypass_unreadable {
            return Err(UNREADABLE);
        }
        let value = if cell.is_spoilable() {
            let stored = self.state(t)?.get(key).cloned();
            self.touch(t);
            cell.value(stored.as_ref())?
        } else {
            cell.value(None)?
        };
        if !snapshot && cell.is_spoilable() {
            t.size += 2 * i64::try_from(key.len()).unwrap() + 25;
            t.reads.push(Range::key(key));
        }
        Ok(value)
    }

    fn watch(&self, t: &mut Transaction, key: &[u8]) -> Result<Option<Bytes>, i32> {
        t.check()?;
        if t.options.ryw_disabled {
            return Err(1034);
        }
        if key >= t.max_read() && key != METADATA_VERSION {
            return Err(2004);
        }
        if key.len() > t.key_limit(key) {
            return Err(2102);
        }
        self.value(t, key, false)
    }

    pub(super) fn pieces(&self, t: &Transaction, snapshot: bool) -> Result<Pieces, i32> {
        // Where the version is too old, what needs no look at the database can be read all the same.
        let nothing = Rows::new();
        let rows = if t.version == Some(Chosen::TooOld) { &nothing } else { self.state(t)? };
        Ok(Pieces::new(rows, Self::sees_own(t, snapshot).then_some(&t.own), t.max_read()))
    }

    fn get_key(&mut self, t: &mut Transaction, selector: &KeySelector, snapshot: bool) -> Result<Reply, i32> {
        t.check()?;
        let given = long_cut(selector);
        if given.key.as_slice() > t.max_read() {
            return Err(2004);
        }
        let selector = plain(&given);
        let found = self.pieces(t, snapshot).and_then(|pieces| {
            let key = pieces.key(&selector, self.strict);
            readable(t, &pieces)?;
            Ok((key?, pieces.touched()))
        });
        match found {
            Ok((key, touched)) => {
                if touched {
                    self.touch(t);
                }
                if !snapshot {
                    // Here a key that has been cut is not cut again.
                    let uncut = [&given.key[..], if given.or_equal { &[0] } else { &[] }].concat();
                    t.read(&conflict::of_key(&Selector { key: uncut, ..selector }, &key));
                }
                Ok(Reply::Key(key))
            }
            Err(code) => Err(self.failed(t, code)),
        }
    }

    /// A read that failed. Whether it had looked at the database before is not worth knowing.
    pub(super) fn failed(&mut self, t: &mut Transaction, code: i32) -> i32 {
        t.failed_read.get_or_insert(code);
        if t.version.is_none() {
            self.stopped = true;
        }
        code
    }

    fn get_read_version(&mut self, t: &mut Transaction, seen: &Seen) -> Verdict {
        if let Err(code) = t.deferred.or(t.dead).map_or(Ok(()), Err) {
            return expect(seen, &reply(Err(code)));
        }
        let version = *t.version.get_or_insert(Chosen::At(self.store.latest()));
        let Seen::Reply(Reply::Int64(real)) = seen else { return Err("a version".to_owned()) };
        if *t.real_version.get_or_insert(*real) != *real {
            return Err(format!("version {:?} as before", t.real_version));
        }
        match version {
            Chosen::At(version) if *real < self.versions[version] => {
                Err(format!("a version from {} on", self.versions[version]))
            }
            Chosen::At(version) if self.versions.get(version + 1).is_some_and(|next| next <= real) => {
                Err(format!("a version before {}", self.versions[version + 1]))
            }
            _ => Ok(()),
        }
    }

    fn set_read_version(
        &mut self,
        t: &mut Transaction,
        version: &Version,
        seen: &Seen,
        facts: &Facts,
    ) -> Verdict {
        let (real, chosen) = match version {
            Version::Number(number) => (*number, Chosen::TooOld),
            Version::Of(other) => {
                // The transaction itself has been taken out; its own version it has already.
                let theirs = self.transactions[*other].version.or(t.version);
                match (facts.read_version, theirs) {
                    (Some(real), Some(chosen)) => (real, chosen),
                    _ => return expect(seen, &Seen::LeftOut),
                }
            }
        };
        t.apply(|t| {
            if t.version.is_some() {
                return Err(2010);
            }
            if real <= 0 {
                return Err(2011);
            }
            t.version = Some(chosen);
            t.real_version = Some(real);
            Ok(())
        });
        expect(seen, &Seen::Nothing)
    }
}

/// A version that is too old stops what has to look at the database.
pub fn readable(t: &Transaction, pieces: &Pieces) -> Result<(), i32> {
    let too_old = t.version == Some(Chosen::TooOld) && pieces.touched();
    if too_old { Err(TOO_OLD) } else { Ok(()) }
}
