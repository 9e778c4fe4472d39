//! What a read conflicts with: where a write by another transaction could have changed it, as FoundationDB reckons.

use super::Range;
use super::own::Own;
use super::read::{Found, Selector};
use crate::program::Bytes;

fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat()
}

/// The range of a key selector that named `found`.
pub fn of_key(selector: &Selector, found: &[u8]) -> Range {
    if selector.offset <= 0 {
        Range::new(found, &selector.key)
    } else {
        Range { begin: selector.key.clone(), end: after(found) }
    }
}

/// The range of a range read.
pub fn of_range(begin: &Selector, end: &Selector, found: &Found, reverse: bool, max: &[u8]) -> Range {
    let (mut from, mut to) = (begin.key.clone().min(end.key.clone()), begin.key.clone().max(end.key.clone()));
    if begin.key < end.key && found.more {
        if !reverse && end.offset > 0 {
            to.clone_from(&begin.key);
        }
        if reverse && begin.offset <= 1 {
            from.clone_from(&end.key);
        }
    }
    if found.to_begin && begin.offset <= 0 {
        from.clear();
    }
    if found.through_end && end.offset > 0 {
        to = max.to_vec();
    }
    if let (Some((first, _)), Some((last, _))) = (found.rows.first(), found.rows.last()) {
        if reverse || begin.offset <= 0 {
            from = from.min(if reverse { last.clone() } else { first.clone() });
        }
        let highest = if reverse { first } else { last };
        if (!reverse || end.offset > 0) && to <= *highest {
            to = after(highest);
        }
    }
    Range { begin: from, end: to }
}

/// The same without read-your-writes: the parts that were read are reckoned by another part of the client.
pub fn of_plain_range(begin: &Selector, end: &Selector, found: &Found, reverse: bool) -> Range {
    let (first, last) = (found.rows.first(), found.rows.last());
    let (lowest, highest) = if reverse { (last, first) } else { (first, last) };
    let mut from = match lowest {
        _ if found.to_begin => Vec::new(),
        Some((lowest, _)) if begin.offset <= 0 || (reverse && found.more && begin.offset <= 1) => {
            lowest.clone()
        }
        _ => begin.key.clone(),
    };
    if end.offset > begin.offset && end.key < from {
        from.clone_from(&end.key);
    }
    let mut to = match highest {
        _ if found.through_end => b"\xff\xff".to_vec(),
        Some((highest, _)) if end.offset > 1 || (!reverse && found.more && end.offset > 0) => after(highest),
        _ => end.key.clone(),
    };
    if begin.offset < end.offset && begin.key > to {
        to.clone_from(&begin.key);
    }
    Range { begin: from, end: to }
}

/// The parts of a range whose content does not come from the transaction itself.
pub fn spoilable(own: &Own, range: &Range) -> Vec<Range> {
    let mut bounds = own.bounds();
    bounds.extend([range.begin.clone(), range.end.clone()]);
    bounds.retain(|key| range.begin <= *key && *key <= range.end);
    bounds.sort();
    bounds.dedup();
    let mut parts: Vec<(Range, bool)> = Vec::new();
    let mut before = None;
    for pair in bounds.windows(2) {
        let part = Range { begin: pair[0].clone(), end: pair[1].clone() };
        let cell = own.cell(&part.begin);
        let state = (cell.is_operation(), cell.cleared, cell.conflict, cell.unreadable);
        match parts.last_mut() {
            Some((last, _)) if before == Some(state) && !state.0 => last.end = part.end,
            _ => parts.push((part, cell.is_spoilable())),
        }
        before = Some(state);
    }
    parts.into_iter().filter_map(|(part, spoilable)| spoilable.then_some(part)).collect()
}
