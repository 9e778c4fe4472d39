//! What kvqueue is to reach, as data; and whether it did.

use serde::Serialize;

use crate::cell::Cell;
use crate::outcome::{CPU, PER_SECOND, RESIDENT, START_P50};
use crate::summary::Summary;

/// What a figure is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// The best peer in this cell.
    BestPeer,
    /// The better of Redis's list and stream.
    Redis,
    /// Appends with a flush each, per second, on the same disk.
    RawSync,
    /// The seed's algorithm on the cluster.
    Seed,
    /// A number.
    Fixed,
}

/// A bar.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Where.
    pub cell: Cell,
    /// Which of our systems.
    pub system: &'static str,
    /// Which number.
    pub figure: &'static str,
    /// How many times what it is held against; or, with [`Against::Fixed`], the number itself.
    pub times: f64,
    /// What it is held against.
    pub against: Against,
}

/// What came of a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Where.
    pub cell: String,
    /// Which of our systems.
    pub system: &'static str,
    /// Which number.
    pub figure: &'static str,
    /// The bar in words.
    pub bar: String,
    /// What it is held against.
    pub base: Option<f64>,
    /// What it is.
    pub value: Option<f64>,
    /// Value by base.
    pub ratio: Option<f64>,
    /// Whether it is reached; nothing where something was not measured.
    pub met: Option<bool>,
}

const fn goal(cell: Cell, system: &'static str, times: f64, against: Against) -> Goal {
    Goal { cell, system, figure: PER_SECOND, times, against }
}

const fn lower(cell: Cell, system: &'static str, figure: &'static str, times: f64, against: Against) -> Goal {
    Goal { cell, system, figure, times, against }
}

const fn push(clients: u32, batch: u32) -> Cell {
    Cell::Push { clients, batch }
}

const fn burn(k: u32) -> Cell {
    Cell::Burn { workers: 16, k }
}

const fn pull(k: u32) -> Cell {
    Cell::Pull { workers: 16, k }
}

/// All bars.
pub const GOALS: &[Goal] = &[
    goal(push(1, 1), "kvqueue", 0.65, Against::RawSync),
    goal(push(1, 1), "kvqueue", 1.0, Against::Redis),
    goal(push(32, 1), "kvqueue", 1.5, Against::BestPeer),
    goal(push(32, 1), "kvqueue-shared", 1.5, Against::BestPeer),
    goal(push(1, 100), "kvqueue", 1.0, Against::BestPeer),
    goal(burn(1), "kvqueue", 2.0, Against::BestPeer),
    goal(burn(10), "kvqueue", 1.0, Against::BestPeer),
    goal(burn(100), "kvqueue", 1.0, Against::BestPeer),
    goal(pull(10), "kvqueue", 2.0, Against::BestPeer),
    lower(Cell::Pickup, "kvqueue", START_P50, 0.7, Against::BestPeer),
    lower(Cell::Idle, "kvqueue", RESIDENT, 20_000.0, Against::Fixed),
    lower(Cell::Idle, "kvqueue", CPU, 0.5, Against::Fixed),
    // Single pushes at the same time, one and a half times what the seed's own program did on a cluster of this kind.
    goal(push(1_000, 1), "cluster", 33_000.0, Against::Fixed),
    goal(push(1_000, 1), "cluster-shared", 33_000.0, Against::Fixed),
    goal(push(10_000, 1), "cluster", 46_500.0, Against::Fixed),
    goal(push(10_000, 1), "cluster-shared", 46_500.0, Against::Fixed),
    goal(burn(1), "cluster-amo", 5.0, Against::Seed),
    goal(burn(1), "cluster", 2.5, Against::Seed),
    goal(burn(10), "cluster-amo", 3.0, Against::Seed),
    goal(burn(10), "cluster", 2.0, Against::Seed),
    goal(burn(100), "cluster-amo", 1.5, Against::Seed),
    goal(burn(100), "cluster", 1.0, Against::Seed),
    goal(Cell::Flood { workers: 4, k: 10 }, "cluster", 10.0, Against::Seed),
    goal(Cell::Flood { workers: 4, k: 10 }, "cluster-shared", 10.0, Against::Seed),
    lower(Cell::Pickup, "cluster", START_P50, 1.0, Against::Seed),
];

/// Whether more of a figure is better.
pub fn more_is_better(figure: &str) -> bool {
    figure.ends_with("per_second")
}

/// The best median of these systems, and whose it is.
pub fn best<'a>(summary: &Summary, cell: Cell, systems: &[&'a str], figure: &str) -> Option<(&'a str, f64)> {
    let medians = systems.iter().filter_map(|name| Some((*name, summary.spread(cell, name, figure)?.median)));
    medians.reduce(|best, other| if (other.1 > best.1) == more_is_better(figure) { other } else { best })
}

/// What came of the goals for systems that took part.
pub fn judge(summary: &Summary, systems: &[&str], peers: &[&str]) -> Vec<Verdict> {
    GOALS
        .iter()
        .filter(|goal| systems.contains(&goal.system))
        .map(|goal| goal.judge(summary, peers))
        .collect()
}

impl Goal {
    fn judge(&self, summary: &Summary, peers: &[&str]) -> Verdict {
        let of = |systems: &[&str]| best(summary, self.cell, systems, self.figure).map(|(_, median)| median);
        let base = match self.against {
            Against::BestPeer => of(peers),
            Against::Redis => of(&["redis-list", "redis-stream"]),
            Against::RawSync => summary.raw_sync(Some(self.cell)).map(|spread| spread.median),
            Against::Seed => of(&["cluster-seed"]),
            Against::Fixed => Some(self.times),
        };
        let value = summary.spread(self.cell, self.system, self.figure).map(|spread| spread.median);
        let ratio = value.zip(base).map(|(value, base)| value / base);
        let times = if self.against == Against::Fixed { 1.0 } else { self.times };
        let met =
            ratio.map(|ratio| if more_is_better(self.figure) { ratio >= times } else { ratio <= times });
        Verdict {
            cell: self.cell.to_string(),
            system: self.system,
            figure: self.figure,
            bar: self.bar(),
            base,
            value,
            ratio,
            met,
        }
    }

    fn bar(&self) -> String {
        let side = if more_is_better(self.figure) { "at least" } else { "at most" };
        let of = match self.against {
            Against::BestPeer => "x the best peer",
            Against::Redis => "x Redis",
            Against::RawSync => "x the raw flush rate",
            Against::Seed => "x the seed's algorithm",
            Against::Fixed => "",
        };
        format!("{side} {} {of}", self.times).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::summary::Run;

    fn summary(runs: &[(Cell, &str, &str, f64)]) -> Summary {
        let mut summary = Summary::default();
        summary.add_raw_sync(push(1, 1), 1_000.0);
        for (cell, system, figure, value) in runs {
            let result = Ok(Outcome::default().with(figure, *value));
            summary.add(Run { round: 0, cell: *cell, system: (*system).to_owned(), result });
        }
        summary
    }

    fn verdict(runs: &[(Cell, &str, &str, f64)], cell: Cell, against: Against) -> Verdict {
        let goal = GOALS.iter().find(|goal| goal.cell == cell && goal.against == against).unwrap();
        goal.judge(&summary(runs), &["redis-list", "beanstalkd"])
    }

    #[test]
    fn more_is_better_for_rates() {
        let cell = push(32, 1);
        let peers = [(cell, "redis-list", PER_SECOND, 100.0), (cell, "beanstalkd", PER_SECOND, 50.0)];
        let judged = |ours| {
            let runs = [peers[0], peers[1], (cell, "kvqueue", PER_SECOND, ours)];
            verdict(&runs, cell, Against::BestPeer)
        };
        assert_eq!(judged(149.0).met, Some(false));
        assert_eq!(judged(150.0).met, Some(true));
        assert_eq!(judged(150.0).base, Some(100.0));
    }

    #[test]
    fn less_is_better_for_latencies() {
        let peers =
            [(Cell::Pickup, "redis-list", START_P50, 100.0), (Cell::Pickup, "beanstalkd", START_P50, 50.0)];
        let judged = |ours| {
            let runs = [peers[0], peers[1], (Cell::Pickup, "kvqueue", START_P50, ours)];
            verdict(&runs, Cell::Pickup, Against::BestPeer).met
        };
        assert_eq!(judged(35.0), Some(true));
        assert_eq!(judged(36.0), Some(false));
    }

    #[test]
    fn a_goal_without_figures_has_no_verdict() {
        assert_eq!(verdict(&[], push(32, 1), Against::BestPeer).met, None);
        let alone = [(push(1, 1), "kvqueue", PER_SECOND, 700.0)];
        assert_eq!(verdict(&alone, push(1, 1), Against::RawSync).met, Some(true));
        assert_eq!(verdict(&alone, push(1, 1), Against::Redis).met, None);
    }

    #[test]
    fn every_goal_is_of_a_cell_that_runs() {
        let mut cells = crate::cell::next_to_peers();
        cells.extend(crate::cell::next_to_seed());
        assert!(GOALS.iter().all(|goal| cells.contains(&goal.cell)));
    }
}
