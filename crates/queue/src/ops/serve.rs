//! Serving requests: each gets a lease on the items that it asks for, in the order of the requests.
//!
//! Everything is read at snapshot isolation; the transaction conflicts on the items that it hands out and on the requests that
//! it serves, and on nothing else.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use mutant::bound;

use crate::keys::Space;
use crate::keys::leases::PICK_UP;
use crate::model::error::QueueError;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::model::suspicion::{Picked, Suspicion};
use crate::ops::claim::{cost_of, pick, take_picked};
use crate::ops::lease;
use crate::ops::scan::Row;
use crate::ops::want::{Line, remove};

/// The most items that one transaction hands out, unless the first request asks for more.
fn max_items() -> usize {
    bound("items-served", 1_000)
}

/// How many items a transaction that serves this line has to read.
pub(crate) fn demand(line: &Line) -> NonZeroUsize {
    let asked = |want: NonZeroUsize| want.get();
    let first = line.first.first().map_or(1, |waiting| asked(waiting.want.k));
    let all = line.first.iter().map(|waiting| asked(waiting.want.k)).fold(0, usize::saturating_add);
    NonZeroUsize::new(all.min(first.max(max_items()))).unwrap_or(NonZeroUsize::MIN)
}

/// Hands the first rows to the first of the line, and takes those out of it. Returns the rows of the own request, if its turn has
/// come; for these no lease is written yet.
pub(crate) fn serve(
    space: &Space,
    tr: &Transaction,
    line: &Line,
    rows: Vec<Row>,
    now: u64,
) -> Result<Option<Vec<Row>>, QueueError> {
    let shares = shares(space, &rows, line.first.iter().map(|waiting| waiting.want.k))?;
    let mut all: Vec<usize> = shares.iter().flatten().copied().collect();
    all.sort_unstable();
    let mut picked = Picked::default();
    all.iter().for_each(|at| picked.add(*at));
    let rows = take_picked(space, tr, rows, &picked)?;
    let row_at = |at: &usize| all.binary_search(at).ok().map(|nth| rows[nth].clone());
    let mut own = None;
    for (waiting, share) in line.first.iter().zip(&shares) {
        remove(tr, &waiting.key)?;
        let rows: Vec<Row> = share.iter().filter_map(row_at).collect();
        if Some(waiting) == line.own.as_ref() {
            own = Some(rows);
            continue;
        }
        let length = if waiting.want.length == 0 { PICK_UP } else { waiting.want.length };
        let deadline = now.saturating_add(PICK_UP);
        lease::put_served(space, tr, waiting.want.lease, (deadline, length), &lease::hold(rows));
    }
    Ok(own)
}

/// Which rows each request gets: what a take of its own would have got, while there are rows and they fit into a transaction.
///
/// No request gets an item that crashed more than once: the server does not know which leases the process of another session holds.
fn shares(
    space: &Space,
    rows: &[Row],
    wanted: impl Iterator<Item = NonZeroUsize>,
) -> Result<Vec<Vec<usize>>, QueueError> {
    let (mut shares, mut bytes, mut free): (Vec<Vec<usize>>, _, _) = (Vec::new(), 0, vec![true; rows.len()]);
    for k in wanted {
        let (picked, _) = pick(space, rows, k, |at| free[at], || Suspicion::Once)?;
        let share: Vec<usize> = picked.places().collect();
        for run in picked.runs {
            bytes += cost_of(space, &rows[run])?;
        }
        if share.is_empty() || (!shares.is_empty() && bytes > MAX_TAKE_BYTES) {
            break;
        }
        share.iter().for_each(|at| free[*at] = false);
        shares.push(share);
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::meta;
    use crate::model::id::ItemId;
    use crate::model::kind::Kind;
    use crate::model::meta::Meta;

    fn row(number: u8, len: usize, crashes: u32) -> Row {
        let meta = meta::encode(&Meta { crashes, ..Meta::default() });
        Row { id: ItemId::new(vec![number].into()), value: vec![0; len].into(), meta: meta.into() }
    }

    fn shares_of(rows: &[Row], wanted: &[usize]) -> Vec<Vec<usize>> {
        let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
        shares(&space, rows, wanted.iter().map(|k| NonZeroUsize::new(*k).unwrap())).unwrap()
    }

    fn ranges<const N: usize>(ranges: [std::ops::Range<usize>; N]) -> Vec<Vec<usize>> {
        ranges.into_iter().map(Iterator::collect).collect()
    }

    #[test]
    fn earlier_requests_get_earlier_items() {
        let rows: Vec<Row> = (0..10).map(|number| row(number, 10, 0)).collect();
        assert_eq!(shares_of(&rows, &[3, 1, 4]), ranges([0..3, 3..4, 4..8]));
        // The last one for whom there is something gets what is left.
        assert_eq!(shares_of(&rows, &[8, 5, 5]), ranges([0..8, 8..10]));
        assert!(shares_of(&[], &[1]).is_empty() && shares_of(&rows, &[]).is_empty());
    }

    #[test]
    fn crashed_items_are_served_apart_from_others() {
        let rows = [row(0, 1, 0), row(1, 1, 1), row(2, 1, 0), row(3, 1, 2), row(4, 1, 1)];
        assert_eq!(shares_of(&rows, &[3, 3, 3, 3]), [vec![0, 2], vec![1], vec![4]]);
        assert_eq!(shares_of(&rows[1..], &[32, 3]), [vec![0, 3], vec![1]]);
    }

    #[test]
    fn served_items_fit_into_a_transaction() {
        let rows: Vec<Row> = (0..100).map(|number| row(number, 22_000, 0)).collect();
        let shares = shares_of(&rows, &[20; 5]);
        assert_eq!(shares, ranges([0..20, 20..40]));
        // One request alone gets as much as a take does.
        let alone: Vec<_> = shares_of(&rows, &[100]).into_iter().map(|share| share.len()).collect();
        assert_eq!(alone, [45]);
    }

    #[test]
    fn a_serving_transaction_reads_as_many_items_as_it_can_serve() {
        let line = |wanted: &[usize]| {
            let first = wanted.iter().map(|k| waiting(NonZeroUsize::new(*k).unwrap())).collect();
            Line { first, ..Line::default() }
        };
        assert_eq!(demand(&line(&[3, 4])).get(), 7);
        assert_eq!(demand(&line(&[100; 100])).get(), max_items());
        assert_eq!(demand(&line(&[5_000, 1])).get(), 5_000);
    }

    fn waiting(k: NonZeroUsize) -> crate::ops::want::WaitingRequest {
        let lease = crate::model::lease_id::LeaseId {
            session: crate::model::session_id::SessionId([1; 16]),
            number: 1,
        };
        let want = crate::keys::wants::Want { lease, k, length: 1, deadline: 1, last: false };
        crate::ops::want::WaitingRequest { key: Vec::new(), want }
    }
}
