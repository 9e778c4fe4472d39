//! How suspect an item is, and which items of a page one lease gets.

use std::ops::Range;

/// After its first crash an item is fetched with this many times fewer items than others.
const GROUPS: usize = 16;

/// How suspect an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suspicion {
    /// It has never crashed.
    None,
    /// It crashed once.
    Once,
    /// It crashed more than once.
    Often,
}

impl Suspicion {
    /// The suspicion of an item with this many crashes.
    pub(crate) fn of(crashes: u32) -> Suspicion {
        match crashes {
            0 => Suspicion::None,
            1 => Suspicion::Once,
            _ => Suspicion::Often,
        }
    }

    /// How many such items a take of `k` items gets at most.
    pub(crate) fn group(self, k: usize) -> usize {
        match self {
            Suspicion::None => k,
            Suspicion::Once => (k / GROUPS).max(1),
            Suspicion::Often => 1,
        }
    }
}

/// Rows that a take gets, all of them equally suspect, as ranges of neighbours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) runs: Vec<Range<usize>>,
    pub(crate) len: usize,
}

impl Picked {
    pub(crate) fn add(&mut self, at: usize) {
        self.len += 1;
        match self.runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => self.runs.push(at..at + 1),
        }
    }

    /// The rows' places, in order.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        self.runs.iter().cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_suspects_shrink_with_each_crash() {
        let group = |crashes| [1, 16, 160, 2_000].map(|k| Suspicion::of(crashes).group(k));
        assert_eq!([0, 1, 2, 9].map(group), [[1, 16, 160, 2_000], [1, 1, 10, 125], [1; 4], [1; 4]]);
    }

    #[test]
    fn adjacent_picked_items_form_one_run() {
        let mut picked = Picked::default();
        [0, 1, 2, 5, 7, 8].iter().for_each(|at| picked.add(*at));
        assert_eq!((picked.runs.as_slice(), picked.len), (&[0..3, 5..6, 7..9][..], 6));
        assert_eq!(picked.places().collect::<Vec<_>>(), [0, 1, 2, 5, 7, 8]);
    }
}
