//! Range reads.

use fdb_embedded::testing::{Range as Arguments, Reply};

use super::calls::{SPECIAL_END, is_special, long_cut, plain, readable, reply};
use super::read::{Found, Limits, Pieces, Selector, UNREADABLE};
use super::transaction::Transaction;
use super::{Model, Range, Seen, Verdict, conflict, expect};
use crate::program::Bytes;

/// One range read of a transaction, with "or equal" worked into its bounds.
struct Asked {
    begin: Selector,
    end: Selector,
    limits: Limits,
    reverse: bool,
}

impl Asked {
    /// What the read finds; `cached` says that the client knew everything before.
    fn read(&self, pieces: &Pieces, limits: Limits, cached: bool) -> Result<Found, i32> {
        if self.reverse {
            pieces.backward(&self.begin, &self.end, limits, cached)
        } else {
            pieces.forward(&self.begin, &self.end, limits, cached)
        }
    }

    fn conflict(&self, t: &Transaction, found: &Found) -> Range {
        if t.options.ryw_disabled {
            conflict::of_plain_range(&self.begin, &self.end, found, self.reverse)
        } else {
            conflict::of_range(&self.begin, &self.end, found, self.reverse, t.max_read())
        }
    }
}

impl Model {
    pub(super) fn get_range(&mut self, t: &mut Transaction, arguments: &Arguments, seen: &Seen) -> Verdict {
        let asked = match self.legal_range(t, arguments) {
            Ok(Some(asked)) => asked,
            Ok(None) => return if self.stopped { Ok(()) } else { expect(seen, &rows(&Found::default())) },
            Err(code) => return expect(seen, &reply(Err(code))),
        };
        let pieces = match self.pieces(t, arguments.snapshot) {
            Ok(pieces) => pieces,
            Err(code) => return expect(seen, &reply(Err(self.failed(t, code)))),
        };
        // The engine reads as if it knew everything before.
        let fresh = asked.read(&pieces, asked.limits, self.strict);
        let touched = pieces.touched();
        let fresh = readable(t, &pieces).and(fresh);
        let mut possible = vec![fresh.clone()];
        if !self.strict {
            possible.extend(self.loosely(t, &asked, &pieces, seen));
        }
        if self.stopped {
            return Ok(());
        }
        possible.retain(|found| answer(found) == *seen);
        let Some(chosen) = possible.first() else {
            // With a bound to search for, what a cluster's client has read before decides whether it meets it.
            let is_searched = asked.begin.offset != 1 || asked.end.offset != 1;
            let is_met = fresh == Err(UNREADABLE) || *seen == reply(Err(UNREADABLE));
            if !self.strict && is_searched && is_met && pieces.has_unreadable() {
                self.stopped = true;
                return Ok(());
            }
            return expect(seen, &answer(&fresh));
        };
        match chosen {
            Ok(_) => {}
            Err(code) => return expect(seen, &reply(Err(self.failed(t, *code)))),
        }
        if touched {
            // A read that bytes limit may have stopped before it had to look at the database.
            let is_vague = asked.limits.bytes < usize::MAX
                && matches!(seen, Seen::Reply(Reply::Rows { more: true, .. }));
            self.stopped |= !self.strict && is_vague && t.version.is_none();
            self.touch(t);
        }
        if !arguments.snapshot {
            let ranges: Vec<Range> =
                possible.iter().flatten().map(|found| asked.conflict(t, found)).collect();
            t.read_one_of(&ranges);
        }
        Ok(())
    }

    /// The read, if it is legal; nothing if it is empty whatever there is.
    fn legal_range(&mut self, t: &mut Transaction, arguments: &Arguments) -> Result<Option<Asked>, i32> {
        let limits = limits(arguments)?;
        let special = is_special(&arguments.begin.key)
            && arguments.end.key.starts_with(b"\xff\xff")
            && arguments.end.key.as_slice() <= SPECIAL_END;
        if special && t.deferred.is_none() {
            self.stopped = true;
            return Ok(None);
        }
        t.check()?;
        let (begin, end) = (long_cut(&arguments.begin), long_cut(&arguments.end));
        if begin.key.as_slice() > t.max_read() || end.key.as_slice() > t.max_read() {
            return Err(2004);
        }
        let limits = limits.ok_or(2012)?;
        let (begin, end) = (plain(&begin), plain(&end));
        let empty = begin.offset >= end.offset && begin.key >= end.key;
        Ok((!empty).then_some(Asked { begin, end, limits, reverse: arguments.reverse }))
    }

    /// What a cluster's client may find too: it depends on what it has read before, and in what pieces.
    fn loosely(
        &mut self,
        t: &Transaction,
        asked: &Asked,
        pieces: &Pieces,
        seen: &Seen,
    ) -> Vec<Result<Found, i32>> {
        let mut possible = Vec::new();
        if t.has_read {
            let cached = asked.read(pieces, asked.limits, true);
            let run_off = cached.clone().map(|found| pieces.with_run_offs(&asked.begin, &asked.end, found));
            possible.extend([cached, run_off]);
        }
        let (rows, more) = match seen {
            _ if asked.limits.bytes == usize::MAX => return possible,
            Seen::Reply(Reply::Rows { rows, more }) => (rows.as_slice(), *more),
            _ => (&[][..], false),
        };
        for cached in [false, true] {
            let unlimited = Limits { bytes: usize::MAX, ..asked.limits };
            match asked.read(pieces, unlimited, cached) {
                Ok(whole) => possible.extend(beginning(whole, rows, more, asked.reverse).map(Ok)),
                // It may have stopped before what cannot be read.
                Err(UNREADABLE) if more && !rows.is_empty() => self.stopped = true,
                Err(code) => possible.push(Err(code)),
            }
        }
        possible
    }
}

/// A cluster reads in pieces and may end a read that bytes limit after any of them: what was seen, if it can be
/// the beginning of the whole.
fn beginning(whole: Found, rows: &[(Bytes, Bytes)], more: bool, reverse: bool) -> Option<Found> {
    let is_part =
        !rows.is_empty() && whole.rows.starts_with(rows) && (more || rows.len() == whole.rows.len());
    let to_begin = whole.to_begin && !(reverse && more);
    let through_end = whole.through_end && (reverse || !more);
    is_part.then(|| Found { rows: rows.to_vec(), more, to_begin, through_end, ..whole })
}

fn rows(found: &Found) -> Seen {
    Seen::Reply(Reply::Rows { rows: found.rows.clone(), more: found.more })
}

fn answer(found: &Result<Found, i32>) -> Seen {
    found.as_ref().map_or_else(|code| reply(Err(*code)), rows)
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
