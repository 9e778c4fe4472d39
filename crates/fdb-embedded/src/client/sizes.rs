//! Estimates the size of a range without reading all of it.
//!
//! A range of up to [`EXACT_ROWS`] rows is read, and its size is exact. For a larger one, the
//! beginning and the end are read, and then a few rows at a time in the middle of the largest
//! unknown gap. The size of a gap is estimated from the density on both sides, with keys mapped to
//! numbers. So at most [`EXACT_ROWS`] + ([`PROBES`] + 1) × [`PROBE_ROWS`] rows are read, however
//! large the range is.
//!
//! The estimate is good for keys that are spread smoothly: evenly, in clusters, or thinning out.
//! The tests require an error of at most a third. For keys laid out to mislead it, the error is not
//! bounded.

use std::ops::ControlFlow;

use super::key_scale::{Scale, shared_len};
use super::merged::Merged;
use crate::error::Result;
use crate::range_set::key_after;
use crate::rows::{Direction, FetchHint};

/// The size of a range is exact up to this many rows.
const EXACT_ROWS: usize = 2_048;
/// The number of probes into a larger range.
const PROBES: usize = 64;
/// The rows read by a probe.
const PROBE_ROWS: usize = 24;
/// A gap that is longer than its shorter neighbour by this factor is probed near that neighbour.
const LONG: f64 = 16.0;

/// A key, and the approximate bytes from it to the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeStep {
    /// A stored key.
    pub key: Vec<u8>,
    /// Bytes of keys and values.
    pub bytes: f64,
}

/// Rows that were read together, and the end of the unknown gap after them, if there is one.
#[derive(Debug)]
struct Piece {
    rows: Vec<SizeStep>,
    gap_end: Option<Vec<u8>>,
    /// Approximate bytes of the gap.
    gap_bytes: f64,
}

impl Piece {
    fn new(rows: Vec<SizeStep>, gap_end: Option<Vec<u8>>) -> Piece {
        Piece { rows, gap_end, gap_bytes: 0.0 }
    }
}

/// The range `[begin, end)` as steps.
pub fn steps(stored: &Merged<'_>, begin: &[u8], end: &[u8]) -> Result<Vec<SizeStep>> {
    let head = read(stored, begin, end, EXACT_ROWS, Direction::Forward)?;
    let Some(last) = head.last().filter(|_| head.len() == EXACT_ROWS) else { return Ok(head) };
    let unread = key_after(&last.key);
    let mut tail = read(stored, &unread, end, PROBE_ROWS, Direction::Backward)?;
    tail.reverse();
    let gap_end = (tail.len() == PROBE_ROWS).then(|| tail[0].key.clone());
    let mut pieces = vec![Piece::new(head, gap_end), Piece::new(tail, None)];
    pieces.retain(|piece| !piece.rows.is_empty());
    let rows = pieces.iter().flat_map(|piece| &piece.rows);
    let scale = &Scale::new(rows.map(|row| row.key.as_slice()));
    pieces[0].gap_bytes = gap_bytes(scale, &pieces, 0);
    for _ in 0..PROBES {
        let gaps = pieces.iter().map(|piece| piece.gap_bytes).enumerate();
        let Some((place, bytes)) = gaps.max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        if bytes <= 0.0 {
            break;
        }
        probe(stored, scale, &mut pieces, place)?;
    }
    Ok(joined(&pieces))
}

/// Reads up to `limit` rows in the given direction.
fn read(
    stored: &Merged<'_>,
    begin: &[u8],
    end: &[u8],
    limit: usize,
    direction: Direction,
) -> Result<Vec<SizeStep>> {
    let mut rows = Vec::new();
    let stored = Merged { want: FetchHint::rows(limit), ..*stored };
    stored.scan(begin, end, direction, &mut |key, value| {
        let bytes = u32::try_from(key.len() + value.len()).unwrap_or(u32::MAX);
        rows.push(SizeStep { key: key.to_vec(), bytes: bytes.into() });
        if rows.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(rows)
}

/// Reads a few rows of the gap after a piece.
fn probe(stored: &Merged<'_>, scale: &Scale, pieces: &mut Vec<Piece>, place: usize) -> Result<()> {
    let Some(gap_end) = pieces[place].gap_end.clone() else { return Ok(()) };
    let at = probe_at(scale, pieces, place, &gap_end);
    let rows = read(stored, &at, &gap_end, PROBE_ROWS, Direction::Forward)?;
    let is_cut = rows.len() == PROBE_ROWS;
    let is_next = pieces[place].rows.last().is_some_and(|last| at == key_after(&last.key));
    pieces[place].gap_end = (!is_next).then_some(at);
    if !rows.is_empty() {
        pieces.insert(place + 1, Piece::new(rows, is_cut.then_some(gap_end)));
    }
    for place in place.saturating_sub(1)..pieces.len().min(place + 2) {
        pieces[place].gap_bytes = gap_bytes(scale, pieces, place);
    }
    Ok(())
}

/// The key at which to probe a gap: the middle, or nearer to a much shorter neighbour, which may be
/// a cluster that ends soon.
fn probe_at(scale: &Scale, pieces: &[Piece], place: usize, gap_end: &[u8]) -> Vec<u8> {
    let gap = Gap::of(scale, pieces, place, gap_end);
    let offset = if gap.length > LONG * gap.left_span {
        (gap.left_span * gap.length).sqrt()
    } else if gap.length > LONG * gap.right_span {
        gap.length - (gap.right_span * gap.length).sqrt()
    } else {
        gap.length / 2.0
    };
    let key = scale.advance(gap.begin, offset, gap.shared);
    let first = key_after(gap.begin);
    if first < key && key.as_slice() < gap_end { key } else { first }
}

/// Approximate bytes of the gap after a piece, from the average density on both sides.
fn gap_bytes(scale: &Scale, pieces: &[Piece], place: usize) -> f64 {
    let Some(gap_end) = &pieces[place].gap_end else { return 0.0 };
    let gap = Gap::of(scale, pieces, place, gap_end);
    let density = |rows: &[SizeStep], span: f64| {
        (span > 0.0).then(|| rows.iter().skip(1).map(|row| row.bytes).sum::<f64>() / span)
    };
    let left = density(gap.left, gap.left_span);
    let right = density(gap.right, gap.right_span);
    match (left, right) {
        (Some(left), Some(right)) => gap.length * f64::midpoint(left, right),
        (Some(one), None) | (None, Some(one)) => gap.length * one,
        (None, None) => 0.0,
    }
}

/// The steps of all pieces. The bytes of a gap count for the last row before it.
fn joined(pieces: &[Piece]) -> Vec<SizeStep> {
    let mut steps = Vec::new();
    for piece in pieces {
        steps.extend_from_slice(&piece.rows);
        if let Some(last) = steps.last_mut() {
            last.bytes += piece.gap_bytes;
        }
    }
    steps
}

/// A gap and its neighbours.
struct Gap<'p> {
    /// The last row before the gap.
    begin: &'p [u8],
    /// The length of the common prefix of all its keys.
    shared: usize,
    length: f64,
    left: &'p [SizeStep],
    /// The distance that the rows before the gap span.
    left_span: f64,
    right: &'p [SizeStep],
    /// The distance that the rows after the gap span.
    right_span: f64,
}

impl<'p> Gap<'p> {
    fn of(scale: &Scale, pieces: &'p [Piece], place: usize, gap_end: &'p [u8]) -> Gap<'p> {
        let rows = &pieces[place].rows;
        // In a long piece, the rows next to the gap tell more about it than others.
        let left = &rows[rows.len().saturating_sub(PROBE_ROWS)..];
        let right = pieces.get(place + 1).map_or(&[][..], |piece| &piece.rows);
        let begin = rows.last().map_or(&[][..], |row| &row.key);
        let shared = shared_len(begin, gap_end);
        let first = left.first().map_or(begin, |row| &row.key);
        let last = right.last().map_or(gap_end, |row| &row.key);
        Gap {
            begin,
            shared,
            length: scale.distance(begin, gap_end, shared),
            left,
            left_span: scale.distance(first, begin, shared),
            right,
            right_span: scale.distance(gap_end, last, shared),
        }
    }
}
