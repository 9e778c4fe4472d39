//! Reads, versions and sizes.

use fdb_embedded::testing::{KeySelector, Range as Arguments, Reply};

use super::read::{Found, Limits, Pieces, Selector, UNREADABLE};
use super::store::Rows;
use super::transaction::{Chosen, Held, Transaction};
use super::{Facts, Model, Range, Seen, Verdict, conflict, expect};
use crate::program::{Bytes, Call, Version};

pub const TOO_OLD: i32 = 1007;
pub const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";

/// Longest key of the key space of `key`.
pub fn key_limit(key: &[u8]) -> usize {
    if key.first() == Some(&0xff) { 30_000 } else { 10_000 }
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

fn reply(result: Result<Reply, i32>) -> Seen {
    Seen::Reply(result.unwrap_or_else(Reply::Error))
}

fn plain(selector: &KeySelector) -> Selector {
    let mut key = selector.key.clone();
    if selector.or_equal {
        key.push(0);
    }
    Selector { key, offset: selector.offset }
}

fn long_cut(selector: &KeySelector) -> KeySelector {
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
            Call::CommittedVersion => expect(seen, &Seen::Reply(Reply::Int64(t.committed.unwrap_or(-1)))),
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
            Call::Reset => {
                t.reset();
                expect(seen, &Seen::Nothing)
            }
            Call::Cancel => {
                t.die(1025);
                expect(seen, &Seen::Nothing)
            }
            Call::TimeOut => {
                if t.deferred.is_none() {
                    t.die(1031);
                }
                expect(seen, &Seen::Nothing)
            }
            Call::EndHeld { index, cancel } => expect(seen, &t.end_one(*index, *cancel)),
            _ => expect(seen, &t.write(call)),
        }
    }

    /// The state that a read sees; the version is fixed by the first read that needs it.
    fn state<'s>(&'s self, t: &Transaction) -> Result<&'s Rows, i32> {
        match t.version {
            Some(Chosen::TooOld) => Err(TOO_OLD),
            Some(Chosen::At(version)) => Ok(self.store.rows(version)),
            None => Ok(self.store.rows(self.store.latest())),
        }
    }

    fn touch(&self, t: &mut Transaction) {
        t.has_read = true;
        t.version.get_or_insert(Chosen::At(self.store.latest()));
    }

    fn sees_own(t: &Transaction, snapshot: bool) -> bool {
        !t.options.ryw_disabled && (!snapshot || t.options.snapshot_ryw > 0)
    }

    fn get(&self, t: &mut Transaction, key: &[u8], snapshot: bool) -> Result<Reply, i32> {
        t.deferred.map_or(Ok(()), Err)?;
        if is_special(key) {
            return Err(2113);
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

    fn pieces(&self, t: &Transaction, snapshot: bool) -> Result<Pieces, i32> {
        Ok(Pieces::new(self.state(t)?, Self::sees_own(t, snapshot).then_some(&t.own), t.max_read()))
    }

    fn get_key(&mut self, t: &mut Transaction, selector: &KeySelector, snapshot: bool) -> Result<Reply, i32> {
        t.check()?;
        let selector = long_cut(selector);
        if selector.key.as_slice() > t.max_read() {
            return Err(2004);
        }
        let selector = plain(&selector);
        let found =
            self.pieces(t, snapshot).and_then(|pieces| Ok((pieces.key(&selector)?, pieces.touched())));
        match found {
            Ok((key, touched)) => {
                if touched {
                    self.touch(t);
                }
                if !snapshot {
                    t.read(&conflict::of_key(&selector, &key));
                }
                Ok(Reply::Key(key))
            }
            Err(code) => Err(self.failed(t, code)),
        }
    }

    /// A read that failed. Whether it had looked at the database before is not worth knowing.
    fn failed(&mut self, t: &mut Transaction, code: i32) -> i32 {
        t.failed_read.get_or_insert(code);
        if t.version.is_none() {
            self.stopped = true;
        }
        code
    }

    fn get_range(&mut self, t: &mut Transaction, arguments: &Arguments, seen: &Seen) -> Verdict {
        let limits = match limits(arguments) {
            Ok(limits) => limits,
            Err(code) => return expect(seen, &reply(Err(code))),
        };
        let legal = t.check().and_then(|()| {
            let keys = [long_cut(&arguments.begin).key, long_cut(&arguments.end).key];
            if keys.iter().any(|key| key.as_slice() > t.max_read()) { Err(2004) } else { Ok(()) }
        });
        let special = is_special(&arguments.begin.key)
            && arguments.end.key.starts_with(b"\xff\xff")
            && arguments.end.key.as_slice() <= SPECIAL_END;
        if special && t.deferred.is_none() {
            self.stopped = true;
            return Ok(());
        }
        if let Err(code) = legal {
            return expect(seen, &reply(Err(code)));
        }
        let Some(limits) = limits else { return expect(seen, &reply(Err(2012))) };
        let (begin, end) = (plain(&long_cut(&arguments.begin)), plain(&long_cut(&arguments.end)));
        if begin.offset >= end.offset && begin.key >= end.key {
            return expect(seen, &rows(&Found::default()));
        }
        let pieces = match self.pieces(t, arguments.snapshot) {
            Ok(pieces) => pieces,
            Err(code) => return expect(seen, &reply(Err(self.failed(t, code)))),
        };
        let read = |limits| {
            if arguments.reverse {
                pieces.backward(&begin, &end, limits)
            } else {
                pieces.forward(&begin, &end, limits)
            }
        };
        let found = match read(limits) {
            Ok(found) => found,
            Err(code) => return expect(seen, &reply(Err(self.failed(t, code)))),
        };
        if pieces.touched() {
            self.touch(t);
        }
        if !arguments.snapshot {
            let range = if t.options.ryw_disabled {
                conflict::of_plain_range(&begin, &end, &found, arguments.reverse)
            } else {
                conflict::of_range(&begin, &end, &found, arguments.reverse, t.max_read())
            };
            t.read(&range);
        }
        expect(seen, &rows(&found))
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

fn rows(found: &Found) -> Seen {
    Seen::Reply(Reply::Rows { rows: found.rows.clone(), more: found.more })
}

/// The limits of the C API's arguments; none of them if they are not valid, which is said later.
fn limits(a: &Arguments) -> Result<Option<Limits>, i32> {
    let unlimited = |n: i32| if n <= 0 { usize::MAX } else { usize::try_from(n).unwrap() };
    let open = |n: i32| n == 0 || n == -1;
    if a.mode == 0 && open(a.limit) && open(a.target_bytes) {
        return Err(2210);
    }
    let by_mode = match a.mode {
        -1 if a.iteration <= 0 => return Err(2000),
        -1 => [4096, 6144, 9216, 13_824][usize::try_from(a.iteration).unwrap() - 1],
        0 => usize::MAX,
        1 => 256,
        2 => 1000,
        3 => 4096,
        -2 | 4 => 80_000,
        _ => return Err(2000),
    };
    if a.limit < -1 || a.target_bytes < -1 {
        return Ok(None);
    }
    Ok(Some(Limits { rows: unlimited(a.limit), bytes: unlimited(a.target_bytes).min(by_mode) }))
}
