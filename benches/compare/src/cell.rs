//! What is measured: cells, their names, and which belong to a run.

use std::fmt;
use std::str::FromStr;

/// Bytes of every payload.
pub const PAYLOAD: usize = 100;

/// One thing that is measured, the same for every system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cell {
    /// Clients that push as fast as they are acknowledged, `batch` items in a transaction.
    Push {
        /// How many push at once.
        clients: u32,
        /// Items in a transaction.
        batch: u32,
    },
    /// A queue that is full from the start, processed: `workers` take up to `k` items, handle and finish them.
    Burn {
        /// How many take at once.
        workers: u32,
        /// Items in a take.
        k: u32,
    },
    /// The same, and kvqueue's workers are other programs, which lease over HTTP.
    Pull {
        /// How many take at once.
        workers: u32,
        /// Items in a take.
        k: u32,
    },
    /// Producers at a fixed rate, whatever the answers, next to workers.
    Sustained,
    /// One item at a time to workers that wait.
    Pickup,
    /// Workers that wait, and nothing to do.
    Idle,
    /// Producers at full speed next to workers.
    Flood {
        /// How many take at once.
        workers: u32,
        /// Items in a take.
        k: u32,
    },
}

/// Items a second in the sustained cell.
pub const SUSTAINED_RATE: u32 = 1_000;
/// Producers, and as many workers, in the sustained cell.
pub const SUSTAINED_EACH: u32 = 4;
/// Most items of a take in the sustained cell.
pub const SUSTAINED_K: u32 = 10;
/// Milliseconds between two items of the pickup cell.
pub const PICKUP_EVERY_MS: u64 = 200;
/// Clients that push at full speed next to the workers of the flood cell.
pub const FLOOD_PRODUCERS: u32 = 1_000;
/// Workers that wait in the idle cell.
pub const IDLE_WORKERS: u32 = 4;

/// The cells in which kvqueue is next to its peers.
pub fn next_to_peers() -> Vec<Cell> {
    let pushes = [1, 32]
        .into_iter()
        .flat_map(|clients| [1, 10, 100].into_iter().map(move |batch| Cell::Push { clients, batch }));
    let burns = [1, 4, 16]
        .into_iter()
        .flat_map(|workers| [1, 10, 100].into_iter().map(move |k| Cell::Burn { workers, k }));
    let pulls = [10, 100].into_iter().map(|k| Cell::Pull { workers: 16, k });
    pushes.chain(burns).chain(pulls).chain([Cell::Sustained, Cell::Pickup, Cell::Idle]).collect()
}

/// The cells in which kvqueue is next to the algorithm of the program it follows, on either engine.
pub fn next_to_seed() -> Vec<Cell> {
    let burns = [1, 10, 100].into_iter().map(|k| Cell::Burn { workers: 16, k });
    let pushes = [1_000, 10_000].into_iter().map(|clients| Cell::Push { clients, batch: 1 });
    pushes.chain(burns).chain([Cell::Flood { workers: 4, k: 10 }, Cell::Pickup]).collect()
}

impl Cell {
    /// The first word of the name, which is that of `kvqueue bench`, too.
    pub fn family(self) -> &'static str {
        match self {
            Self::Push { .. } => "push",
            Self::Burn { .. } => "burn",
            Self::Pull { .. } => "pull",
            Self::Sustained => "sustained",
            Self::Pickup => "pickup",
            Self::Idle => "idle",
            Self::Flood { .. } => "flood",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = self.family();
        match self {
            Self::Push { clients: one, batch: other }
            | Self::Burn { workers: one, k: other }
            | Self::Pull { workers: one, k: other }
            | Self::Flood { workers: one, k: other } => write!(f, "{family}-{one}x{other}"),
            Self::Sustained | Self::Pickup | Self::Idle => f.write_str(family),
        }
    }
}

/// What `--only` names: a family, or one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Whether it names this cell.
    pub fn matches(&self, cell: Cell) -> bool {
        self.0 == cell.family() || self.0 == cell.to_string()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pattern = Self(text.to_owned());
        let mut all = next_to_peers();
        all.extend(next_to_seed());
        if all.iter().any(|cell| pattern.matches(*cell)) {
            return Ok(pattern);
        }
        let mut names: Vec<String> = all.iter().map(Cell::to_string).collect();
        names.sort();
        names.dedup();
        Err(format!("no such cell; there are push, burn, pull, flood, and {}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = next_to_peers().iter().map(Cell::to_string).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(count, 6 + 9 + 2 + 3);
    }

    #[test]
    fn a_pattern_is_a_family_or_a_cell() {
        let cell = Cell::Burn { workers: 16, k: 1 };
        assert!("burn".parse::<Pattern>().unwrap().matches(cell));
        assert!("burn-16x1".parse::<Pattern>().unwrap().matches(cell));
        assert!(!"burn-16x10".parse::<Pattern>().unwrap().matches(cell));
        assert!("burn-16".parse::<Pattern>().unwrap_err().contains("burn-16x1"));
    }
}
