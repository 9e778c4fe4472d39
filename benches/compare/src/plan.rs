//! In which order everything runs, and how large it is to be. Decides; runs nothing.

use std::collections::HashMap;

use crate::cell::Cell;

/// Fewest and most items of a queue that is to be processed.
const ITEMS: std::ops::RangeInclusive<u64> = 500..=1_000_000;

/// One system in one cell, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which round, from 0.
    pub round: u32,
    /// What is measured.
    pub cell: Cell,
    /// Whose turn it is: a place in the list of systems.
    pub system: usize,
}

/// Round after round; in a round cell after cell; in a cell every system once, and each time another one first: so that
/// whatever changes in the course of a run meets all of them.
pub fn schedule(
    rounds: u32,
    cells: &[Cell],
    systems: usize,
    runs: impl Fn(usize, Cell) -> bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..rounds {
        for (nth, cell) in cells.iter().copied().enumerate() {
            let first = usize::try_from(round).unwrap_or(0) + nth;
            let order = (0..systems).map(|turn| (first + turn) % systems);
            steps.extend(order.filter(|system| runs(*system, cell)).map(|system| Step {
                round,
                cell,
                system,
            }));
        }
    }
    steps
}

/// How many items a system processes in a time: what it did before, or a guess.
#[derive(Debug, Default)]
pub struct Rates(HashMap<(Cell, usize), f64>);

impl Rates {
    /// Notes what a run showed.
    pub fn learn(&mut self, step: Step, per_second: f64) {
        self.0.insert((step.cell, step.system), per_second);
    }

    /// As many items as last about `seconds`, for the system of this name.
    pub fn items(&self, step: Step, name: &str, seconds: f64) -> u64 {
        let known = self.0.get(&(step.cell, step.system)).copied();
        let rate = known.unwrap_or_else(|| guess(step.cell, name));
        // Rates are positive and bounded by the memory's speed; the range holds the rest.
        ((rate * seconds) as u64).clamp(*ITEMS.start(), *ITEMS.end())
    }

    /// Whether so few items were processed so fast that the run says little, and a better number is known by now.
    pub fn too_short(items: u64, per_second: f64, seconds: f64) -> bool {
        items < *ITEMS.end() && (items as f64) < per_second * seconds / 3.0
    }
}

/// What such a system does on a middling machine. Only the length of its first run depends on it.
fn guess(cell: Cell, name: &str) -> f64 {
    let (Cell::Burn { workers, k } | Cell::Pull { workers, k }) = cell else { return 1.0 };
    let (workers, k) = (f64::from(workers), f64::from(k));
    match name {
        // A flush for each item, whatever the batch size.
        "beanstalkd" => 5_000.0,
        "graphile" => 1_500.0 * k.powf(0.6) * workers.powf(0.2),
        _ => 3_000.0 * k.powf(0.65) * workers.powf(0.3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELLS: [Cell; 2] = [Cell::Pickup, Cell::Idle];

    #[test]
    fn every_system_runs_every_cell_once_a_round() {
        let steps = schedule(2, &CELLS, 3, |system, cell| (system, cell) != (1, Cell::Idle));
        assert_eq!(steps.len(), 2 * (3 + 2));
        for round in 0..2 {
            for system in 0..3 {
                let count = steps.iter().filter(|step| step.round == round && step.system == system).count();
                assert_eq!(count, if system == 1 { 1 } else { 2 });
            }
        }
    }

    #[test]
    fn another_system_begins_each_round() {
        let steps = schedule(3, &CELLS[..1], 3, |_, _| true);
        let first: Vec<usize> = steps.chunks(3).map(|round| round[0].system).collect();
        assert_eq!(first, [0, 1, 2]);
    }

    #[test]
    fn a_queue_is_as_long_as_its_system_needs() {
        let step = Step { round: 0, cell: Cell::Burn { workers: 1, k: 1 }, system: 0 };
        let mut rates = Rates::default();
        assert_eq!(rates.items(step, "kvqueue", 1.0), 3_000);
        rates.learn(step, 10_000.0);
        assert_eq!(rates.items(step, "kvqueue", 2.0), 20_000);
        rates.learn(step, 1.0);
        assert_eq!(rates.items(step, "kvqueue", 2.0), 500);
        assert!(Rates::too_short(1_000, 10_000.0, 1.0));
        assert!(!Rates::too_short(1_000, 2_000.0, 1.0));
    }
}
