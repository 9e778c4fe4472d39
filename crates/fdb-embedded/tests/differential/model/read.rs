//! Reads over a list of cells: every key that is stored or written, in order, and the gaps between them.

use std::cell::Cell as Flag;

use super::Range;
use super::own::{Cell, Own};
use super::store::Rows;
use crate::program::Bytes;

pub const UNREADABLE: i32 = 1036;

/// A piece of the key space that a read treats as one.
#[derive(Debug, Clone)]
pub struct Piece {
    pub range: Range,
    pub unreadable: bool,
    /// To know it the database must be looked at.
    pub stored: bool,
    /// A selector counts it, whether it shows a value or not.
    pub counts: bool,
    pub value: Option<Bytes>,
}

/// A key selector with "or equal" worked into its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    pub key: Bytes,
    pub offset: i32,
}

/// A selector that has been followed as far as it goes.
#[derive(Debug, Clone)]
struct Place {
    /// The piece it has come to.
    piece: usize,
    key: Bytes,
    /// 1 if it has arrived; otherwise what was left of it when it met something unreadable.
    offset: i64,
    /// As `offset`, but what was left also when it ran out of keys.
    left: i64,
    before_begin: bool,
    after_end: bool,
}

impl Place {
    fn selector(&self) -> Selector {
        Selector { key: self.key.clone(), offset: i32::try_from(self.offset).unwrap() }
    }
}

/// The rows of a range read, and what its conflict range depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub rows: Vec<(Bytes, Bytes)>,
    pub more: bool,
    pub to_begin: bool,
    pub through_end: bool,
    /// The key at which an inverted bound was found to lie.
    pub at: Bytes,
}

impl Found {
    fn with(self, flags: &Found) -> Found {
        Found {
            to_begin: self.to_begin || flags.to_begin,
            through_end: self.through_end || flags.through_end,
            ..self
        }
    }
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub rows: usize,
    pub bytes: usize,
}

pub struct Pieces {
    pieces: Vec<Piece>,
    max: Bytes,
    touched: Flag<bool>,
}

impl Pieces {
    /// The pieces below `max`. Without `own` the transaction's writes are not seen.
    pub fn new(stored: &Rows, own: Option<&Own>, max: &[u8]) -> Pieces {
        let mut bounds: Vec<Bytes> = vec![Vec::new(), max.to_vec()];
        for key in stored.keys() {
            bounds.extend([key.clone(), [key, &[0][..]].concat()]);
        }
        bounds.extend(own.map(Own::bounds).unwrap_or_default());
        bounds.retain(|key| key.as_slice() <= max);
        bounds.sort();
        bounds.dedup();
        let piece = |pair: &[Bytes]| {
            let range = Range { begin: pair[0].clone(), end: pair[1].clone() };
            let single = range.is_single();
            let stored = stored.get(&range.begin).filter(|_| single);
            let cell = own.map(|own| own.cell(&range.begin)).unwrap_or_default();
            Self::piece(range, &cell, stored)
        };
        let pieces = bounds.windows(2).map(piece).collect();
        Pieces { pieces, max: max.to_vec(), touched: Flag::new(false) }
    }

    /// Has a read looked at the database?
    pub fn touched(&self) -> bool {
        self.touched.get()
    }

    pub fn has_unreadable(&self) -> bool {
        self.pieces.iter().any(|piece| piece.unreadable)
    }

    fn look(&self, piece: usize) {
        self.touched.set(self.touched.get() || self.pieces[piece].stored);
    }

    fn piece(range: Range, cell: &Cell, stored: Option<&Bytes>) -> Piece {
        let unreadable = cell.unreadable;
        let value = if unreadable { None } else { cell.value(stored).unwrap() };
        let counts = !unreadable && (cell.is_operation() || value.is_some());
        Piece { range, unreadable, stored: cell.is_spoilable() && !unreadable, counts, value }
    }

    fn at(&self, key: &[u8]) -> usize {
        self.pieces.iter().rposition(|piece| piece.range.begin.as_slice() <= key).unwrap()
    }

    /// Follows a selector; with `known` only as far as that needs no look at the database.
    fn follow(&self, selector: &Selector, known: bool) -> Place {
        let last = self.pieces.len() - 1;
        let stops = |piece: usize| self.pieces[piece].unreadable || known && self.pieces[piece].stored;
        let mut offset = i64::from(selector.offset);
        let mut key = selector.key.clone();
        let mut piece = self.at(&key);
        if offset <= 0 && self.pieces[piece].range.begin == key && piece > 0 {
            piece -= 1;
        }
        while offset > 1 && !stops(piece) && piece < last {
            self.look(piece);
            offset -= i64::from(self.pieces[piece].counts);
            piece += 1;
            key.clone_from(&self.pieces[piece].range.begin);
        }
        while offset < 1 && !stops(piece) && piece > 0 {
            self.look(piece);
            offset += i64::from(self.pieces[piece].counts);
            key.clone_from(&self.pieces[piece].range.begin);
            if offset < 1 {
                piece -= 1;
            }
        }
        let mut place = Place { piece, key, offset, left: offset, before_begin: false, after_end: false };
        if stops(piece) || offset == 1 {
            return place;
        }
        self.look(piece);
        place.before_begin = offset < 1;
        place.after_end = offset > 1;
        place.key = if offset < 1 { Vec::new() } else { self.max.clone() };
        place.offset = 1;
        place
    }

    /// The key that a selector names.
    pub fn key(&self, selector: &Selector, cached: bool) -> Result<Bytes, i32> {
        let one = Limits { rows: 1, bytes: usize::MAX };
        let begin = Selector { key: Vec::new(), offset: 1 };
        let end = Selector { key: self.max.clone(), offset: 1 };
        if selector.offset > 0 {
            let found = self.forward(selector, &end, one, cached)?;
            if found.to_begin {
                return Ok(Vec::new());
            }
            return Ok(found
                .rows
                .into_iter()
                .next()
                .filter(|_| !found.through_end)
                .map_or(self.max.clone(), |row| row.0));
        }
        let selector = Selector { offset: selector.offset + 1, ..selector.clone() };
        let found = self.backward(&begin, &selector, one, cached)?;
        if found.through_end {
            return Ok(self.max.clone());
        }
        Ok(found.rows.into_iter().next().filter(|_| !found.to_begin).map_or(Vec::new(), |row| row.0))
    }

    /// The fields of a range whose other bound lies at `key`.
    fn outcome(&self, key: &[u8]) -> Found {
        let (to_begin, through_end) = (key.is_empty(), key == self.max);
        Found { to_begin, through_end, at: key.to_vec(), ..Found::default() }
    }

    /// Can there be no row between the two, whatever there is?
    fn is_nothing(&self, begin: &Selector, end: &Selector) -> bool {
        let inverted = begin.offset >= end.offset && begin.key >= end.key;
        inverted || (end.offset <= 1 && end.key.is_empty()) || (begin.offset >= 1 && begin.key >= self.max)
    }

    /// What a range read gives without looking at any row, if it can.
    fn at_once(&self, begin: &Place, end: &Place, flags: &Found) -> Option<Found> {
        let flags = Found {
            to_begin: flags.to_begin || begin.before_begin || end.before_begin,
            through_end: flags.through_end || begin.after_end || end.after_end,
            ..Found::default()
        };
        if begin.left >= end.left && begin.key >= end.key {
            return Some(Found::default());
        }
        let begins_at_end = begin.offset == 1 && begin.key == self.max;
        let ends_at_begin = end.offset == 1 && end.key.is_empty();
        (begins_at_end || ends_at_begin).then_some(flags)
    }

    /// The rows from `begin` up; `cached` says that the client knew everything before.
    pub fn forward(
        &self,
        begin: &Selector,
        end: &Selector,
        limits: Limits,
        cached: bool,
    ) -> Result<Found, i32> {
        if self.is_nothing(begin, end) {
            return Ok(Found::default());
        }
        let (b, e) = (self.follow(begin, !cached), self.follow(end, !cached));
        if let Some(found) = self.at_once(&b, &e, &Found::default()) {
            return Ok(found);
        }
        let mut flags = Found::default();
        if e.offset != 1 && b.key > e.key {
            flags = self.outcome(&self.key(&e.selector(), cached)?);
            if b.offset >= 1 && b.key >= flags.at {
                return Ok(Found::default());
            }
            if flags.to_begin {
                return Ok(flags);
            }
        }
        let (b, e) = (self.follow(begin, false), self.follow(end, false));
        if let Some(found) = self.at_once(&b, &e, &flags) {
            return Ok(found);
        }
        if e.offset != 1 && b.key > e.key {
            return Err(UNREADABLE);
        }
        let mut taken = Taken::new(limits, &b, &e);
        for (index, piece) in self.pieces.iter().enumerate().skip(b.piece) {
            if taken.is_full() && taken.beyond >= 1 - e.offset {
                break;
            }
            let at_end = b.offset > 0 && e.offset == 1 && e.key == piece.range.begin;
            if index > e.piece && !piece.unreadable || index == e.piece && (!piece.unreadable || at_end) {
                if index == e.piece && !at_end {
                    self.look(index);
                }
                break;
            }
            self.look(index);
            taken.take(piece)?;
        }
        Ok(taken.finish(true, &flags))
    }

    /// The same rows, remembering whether a bound had run out of keys.
    pub fn with_run_offs(&self, begin: &Selector, end: &Selector, found: Found) -> Found {
        let (b, e) = (self.follow(begin, false), self.follow(end, false));
        let to_begin = found.to_begin || b.before_begin || e.before_begin;
        let through_end = found.through_end || (b.after_end || e.after_end) && !found.more;
        Found { to_begin, through_end, ..found }
    }

    /// The rows from `end` down, likewise.
    pub fn backward(
        &self,
        begin: &Selector,
        end: &Selector,
        limits: Limits,
        cached: bool,
    ) -> Result<Found, i32> {
        if self.is_nothing(begin, end) {
            return Ok(Found::default());
        }
        let (b, e) = (self.follow(begin, !cached), self.follow(end, !cached));
        if let Some(found) = self.at_once(&b, &e, &Found::default()) {
            return Ok(found);
        }
        let mut flags = Found::default();
        if b.offset != 1 && b.key > e.key {
            flags = self.outcome(&self.key(&b.selector(), cached)?);
            if flags.at >= e.key && e.offset <= 1 {
                return Ok(Found::default());
            }
            if flags.through_end {
                return Ok(flags);
            }
        }
        let (b, e) = (self.follow(begin, false), self.follow(end, false));
        if let Some(found) = self.at_once(&b, &e, &flags) {
            return Ok(found);
        }
        if b.offset != 1 && b.key > e.key {
            return Err(UNREADABLE);
        }
        let mut taken = Taken::new(limits, &b, &e);
        let mut index = e.piece;
        loop {
            let satisfied = taken.beyond >= b.offset - 1;
            if satisfied && (taken.is_full() || index < b.piece && !self.pieces[index].unreadable) {
                break;
            }
            if e.offset == 1 && e.key == self.pieces[index].range.begin {
                if satisfied && index == b.piece || index == 0 {
                    break;
                }
                index -= 1;
            }
            self.look(index);
            taken.take(&self.pieces[index])?;
            if index == b.piece || index == 0 {
                break;
            }
            index -= 1;
        }
        Ok(taken.finish(false, &flags))
    }
}

struct Taken {
    found: Found,
    limits: Limits,
    bytes: usize,
    /// Rows met after the limit was reached.
    beyond: i64,
}

impl Taken {
    fn new(limits: Limits, begin: &Place, end: &Place) -> Taken {
        let found = Found {
            to_begin: begin.before_begin || end.before_begin,
            through_end: begin.after_end || end.after_end,
            ..Found::default()
        };
        Taken { found, limits, bytes: 0, beyond: 0 }
    }

    fn is_full(&self) -> bool {
        !self.found.rows.is_empty()
            && (self.found.rows.len() >= self.limits.rows || self.bytes >= self.limits.bytes)
    }

    fn take(&mut self, piece: &Piece) -> Result<(), i32> {
        if piece.unreadable {
            return Err(UNREADABLE);
        }
        let Some(value) = &piece.value else { return Ok(()) };
        if self.is_full() {
            self.beyond += 1;
            return Ok(());
        }
        self.bytes += piece.range.begin.len() + value.len() + 24;
        self.found.rows.push((piece.range.begin.clone(), value.clone()));
        Ok(())
    }

    fn finish(mut self, forward: bool, flags: &Found) -> Found {
        self.found = self.found.with(flags);
        self.found.more = self.is_full();
        if forward {
            self.found.through_end &= !self.found.more;
        } else {
            self.found.to_begin &= !self.found.more;
        }
        self.found
    }
}
