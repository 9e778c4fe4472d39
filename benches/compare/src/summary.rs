//! All runs, and what they come to: medians and spread.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cell::Cell;
use crate::outcome::Outcome;

/// One run of one system in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Which round, from 0.
    pub round: u32,
    /// What was measured.
    #[serde(serialize_with = "as_text")]
    pub cell: Cell,
    /// Whose.
    pub system: String,
    /// What came of it, or what went wrong.
    #[serde(flatten)]
    pub result: Result<Outcome, String>,
}

fn as_text<S: serde::Serializer>(cell: &Cell, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(cell)
}

/// Median and spread of a figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number of values the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// Of these values; none of none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max, count) = (*values.first()?, *values.last()?, values.len());
        let median = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
        Some(Self { median, min, max, count })
    }
}

/// What all runs come to.
#[derive(Default)]
pub struct Summary {
    runs: Vec<Run>,
    raw_sync: Vec<(Cell, f64)>,
}

impl Summary {
    /// Adds a run.
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Adds the disk's own rate, from before a cell.
    pub fn add_raw_sync(&mut self, cell: Cell, per_second: f64) {
        self.raw_sync.push((cell, per_second));
    }

    /// All runs, in their order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Appends with a flush each that the disk did in a second, before this cell or before all.
    pub fn raw_sync(&self, cell: Option<Cell>) -> Option<Spread> {
        let of = self.raw_sync.iter().filter(|(of, _)| cell.is_none_or(|cell| *of == cell));
        Spread::of(of.map(|(_, per_second)| *per_second).collect())
    }

    fn outcomes(&self, cell: Cell, system: &str) -> impl Iterator<Item = &Outcome> {
        let of = move |run: &&Run| run.cell == cell && run.system == system;
        self.runs.iter().filter(of).filter_map(|run| run.result.as_ref().ok())
    }

    /// One figure of one system in one cell.
    pub fn spread(&self, cell: Cell, system: &str, figure: &str) -> Option<Spread> {
        Spread::of(
            self.outcomes(cell, system).filter_map(|outcome| outcome.figures.get(figure)).copied().collect(),
        )
    }

    /// All figures of one system in one cell.
    pub fn spreads(&self, cell: Cell, system: &str) -> BTreeMap<String, Spread> {
        let names: BTreeSet<&String> =
            self.outcomes(cell, system).flat_map(|outcome| outcome.figures.keys()).collect();
        names.into_iter().filter_map(|name| Some((name.clone(), self.spread(cell, system, name)?))).collect()
    }

    /// Items lost and repeated over all runs of a system, and how many runs there were.
    pub fn faults(&self, system: &str) -> (u64, u64, usize) {
        let of = self.runs.iter().filter(|run| run.system == system);
        of.filter_map(|run| run.result.as_ref().ok()).fold((0, 0, 0), |(lost, repeated, runs), outcome| {
            (lost + outcome.lost, repeated + outcome.repeated, runs + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_median_minimum_and_maximum() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0, count: 3 });
        assert!((Spread::of(vec![4.0, 1.0]).unwrap().median - 2.5).abs() < 1e-9);
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_failed_run_counts_for_nothing() {
        let mut summary = Summary::default();
        let run = |result| Run { round: 0, cell: Cell::Pickup, system: "a".to_owned(), result };
        summary.add(run(Err("broken".to_owned())));
        summary.add(run(Ok(Outcome { lost: 2, ..Outcome::default() }.with("x", 5.0))));
        assert_eq!(summary.spread(Cell::Pickup, "a", "x").unwrap().count, 1);
        assert_eq!(summary.spreads(Cell::Pickup, "a").len(), 1);
        assert_eq!(summary.faults("a"), (2, 0, 1));
        assert_eq!(summary.spread(Cell::Idle, "a", "x"), None);
    }

    #[test]
    fn the_disk_is_known_by_cell() {
        let mut summary = Summary::default();
        summary.add_raw_sync(Cell::Pickup, 10.0);
        summary.add_raw_sync(Cell::Idle, 20.0);
        assert_eq!(summary.raw_sync(Some(Cell::Idle)).map(|spread| spread.median), Some(20.0));
        assert_eq!(summary.raw_sync(None).map(|spread| spread.count), Some(2));
        assert_eq!(summary.raw_sync(Some(Cell::Sustained)), None);
    }
}
