//! Everything, for programs.

use serde_json::{Value, json};

use super::Report;
use crate::cell::PAYLOAD;
use crate::goals;

impl Report<'_> {
    /// Machine, who took part, every run, medians and spread, goals.
    pub fn json(&self) -> Value {
        let systems: Vec<Value> = self
            .systems
            .all
            .iter()
            .map(|system| json!({ "name": system.name(), "setup": system.setup() }))
            .collect();
        let missing: Vec<Value> =
            self.systems.missing.iter().map(|(name, why)| json!({ "name": name, "why": why })).collect();
        json!({
            "machine": self.machine,
            "payload_bytes": PAYLOAD,
            "rounds": self.cells.rounds,
            "seconds": self.cells.seconds,
            "systems": systems,
            "missing": missing,
            "raw_syncs_per_second": self.summary.raw_sync(None),
            "summary": self.medians(),
            "goals": goals::judge(self.summary, &self.names(), &self.peers()),
            "runs": self.summary.runs(),
            "runs_left_out": self.left_out,
        })
    }

    fn medians(&self) -> Vec<Value> {
        let pairs =
            self.cells.cells.iter().flat_map(|cell| self.names().into_iter().map(move |name| (*cell, name)));
        pairs
            .map(|(cell, name)| (cell, name, self.summary.spreads(cell, name)))
            .filter(|(_, _, figures)| !figures.is_empty())
            .map(|(cell, name, figures)| json!({ "cell": cell.to_string(), "system": name, "figures": figures }))
            .collect()
    }
}
