//! How many items overtake one that waits in a long queue, where several processes spread: a model of the queue, with the real
//! [`Spread`] of each process.
//!
//! In every round each process looks at the same state of the queue and takes by its own place; then they commit one after the other,
//! and of the processes that chose the same item only the first one succeeds.

use super::Spread;
use crate::model::id::ItemId;
use crate::model::place::{Extent, Place};
use crate::model::rng::Rng;
use crate::model::session_id::SessionId;
use crate::model::stamp::Stamp;

/// No item is overtaken by more runs of K items than this, for each process.
const BOUND: usize = 1_000;

/// Items that wait, with their number up to any place: a Fenwick tree.
struct ReadyItems(Vec<usize>);

impl ReadyItems {
    fn full(items: usize) -> ReadyItems {
        ReadyItems((0..=items).map(|at| at & at.wrapping_neg()).collect())
    }

    fn remove(&mut self, item: usize) {
        let mut at = item + 1;
        while at < self.0.len() {
            self.0[at] -= 1;
            at += at & at.wrapping_neg();
        }
    }

    /// How many wait before an item.
    fn before(&self, item: usize) -> usize {
        let (mut at, mut sum) = (item, 0);
        while at > 0 {
            sum += self.0[at];
            at &= at - 1;
        }
        sum
    }

    /// The item at the head of this many waiting items.
    fn nth(&self, mut n: usize) -> usize {
        let (mut at, mut step) = (0, self.0.len().next_power_of_two());
        while step > 0 {
            if at + step < self.0.len() && self.0[at + step] <= n {
                at += step;
                n -= self.0[at];
            }
            step /= 2;
        }
        at
    }
}

fn id(item: usize) -> ItemId {
    let mut stamp = [0; 12];
    stamp[4..].copy_from_slice(&(item as u64).to_be_bytes());
    Stamp::from(stamp).into()
}

/// The items at a place, by their number.
fn items(waiting: &ReadyItems, place: &Place, ids: &[ItemId], k: usize) -> Vec<usize> {
    let behind = place.behind.as_ref().map(|id| ids.partition_point(|other| other <= id));
    let first = behind.map_or(place.skip, |item| waiting.before(item));
    (first..first + k).map(|n| waiting.nth(n)).collect()
}

/// When each item was taken, as a number in the order of takes; and conflicts for a hundred takes.
fn run(processes: usize, k: usize, taken: usize, seed: u64) -> (Vec<usize>, f64) {
    // The queue stays long to the end.
    let all = taken + 40_000;
    let ids: Vec<ItemId> = (0..all).map(id).collect();
    let (mut waiting, mut taken_at, mut next) = (ReadyItems::full(all), vec![usize::MAX; all], 0);
    let (mut takes, mut conflicts) = (0.0, 0.0);
    let mut rng = Rng::of(SessionId((u128::from(seed) << 64 | 1).to_be_bytes()));
    let mut spreads: Vec<(Spread, Rng)> = (0..processes).map(|_| (Spread::default(), rng.split())).collect();
    while next < taken {
        let chosen: Vec<Vec<usize>> =
            spreads.iter_mut().map(|(spread, rng)| items(&waiting, &spread.place(k, rng), &ids, k)).collect();
        let first = rng.below(processes);
        for process in (0..processes).map(|n| (first + n) % processes) {
            let (spread, items) = (&mut spreads[process].0, &chosen[process]);
            takes += 1.0;
            if items.iter().any(|item| taken_at[*item] != usize::MAX) {
                conflicts += 1.0;
                spread.conflicted(Extent::Long);
                continue;
            }
            for item in items {
                taken_at[*item] = next;
                next += 1;
                waiting.remove(*item);
            }
            spread.committed(Extent::Long, &ids[*items.last().unwrap()]);
        }
    }
    (taken_at, conflicts * 100.0 / takes)
}

/// By how many later items the most unlucky item was overtaken.
fn most_overtaken(taken_at: &[usize]) -> usize {
    let taken = taken_at.iter().filter(|at| **at != usize::MAX).count();
    // From the last item on: how many of those behind each were taken before it.
    let mut not_yet = ReadyItems::full(taken);
    let mut most = 0;
    for at in taken_at.iter().rev().map(|at| (*at).min(taken)) {
        most = most.max(at - not_yet.before(at));
        if at < taken {
            not_yet.remove(at);
        }
    }
    most
}

#[test]
fn an_item_is_overtaken_by_a_bounded_number_of_items() {
    for (processes, k, taken) in [(4, 1, 150_000), (16, 1, 300_000), (4, 10, 600_000), (16, 10, 1_500_000)] {
        let (taken_at, conflicts) = run(processes, k, taken, 7);
        let most = most_overtaken(&taken_at);
        println!(
            "{processes} processes, K = {k}: {conflicts:.2} conflicts for 100 takes, overtaken by {most}"
        );
        assert!(most <= BOUND * processes * k, "an item was overtaken by {most} items");
        assert!(conflicts < 2.0, "{conflicts} conflicts for 100 takes");
    }
}
