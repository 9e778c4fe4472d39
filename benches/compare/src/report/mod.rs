//! What a run came to, for people (Markdown) and for programs (JSON).

mod format;
mod json;
mod markdown;

use crate::machine::Machine;
use crate::run::Cells;
use crate::start::Systems;
use crate::summary::Summary;

/// All there is to report.
pub struct Report<'a> {
    /// On what.
    pub machine: Machine,
    /// What was measured.
    pub cells: &'a Cells,
    /// Who took part.
    pub systems: &'a Systems,
    /// What came of it.
    pub summary: &'a Summary,
    /// Runs that there was no time for.
    pub left_out: usize,
}

impl Report<'_> {
    fn names(&self) -> Vec<&str> {
        self.systems.all.iter().map(|system| system.name()).collect()
    }

    fn peers(&self) -> Vec<&str> {
        self.systems.peers.iter().map(String::as_str).collect()
    }
}
