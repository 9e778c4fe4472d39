//! The tables, for people.

use super::Report;
use super::format::{number, spread, table};
use crate::cell::{Cell, next_to_seed};
use crate::goals::{self, Verdict};
use crate::outcome::{CONFLICTS, CPU, PER_SECOND, PUSHES_PER_SECOND, RESIDENT, START_P50};

/// A column: what it is called, and which figure it shows.
type Column<'a> = (&'a str, &'a str);

/// Of the systems that are kvqueue.
fn is_ours(name: &str) -> bool {
    name.starts_with("kvqueue") || name.starts_with("cluster")
}

impl Report<'_> {
    /// All tables, in Markdown.
    pub fn markdown(&self) -> String {
        let peers = self.next_to_peers();
        let parts = [
            self.head(),
            self.rates("Push: acknowledged items a second (clients x items a transaction)", "push", &peers),
            self.rates("Burn-down: finished items a second (workers x K)", "burn", &peers),
            self.rates("Pull: the same, by workers that are other programs (workers x K)", "pull", &peers),
            self.each(
                "Sustained: 1,000 items a second; microseconds from when the push was due",
                Cell::Sustained,
                &[
                    ("start p50", START_P50),
                    ("p99", "start_p99_us"),
                    ("p99.9", "start_p99_9_us"),
                    ("end p50", "ack_p50_us"),
                    ("p99", "ack_p99_us"),
                    ("p99.9", "ack_p99_9_us"),
                ],
                &peers,
            ),
            self.each(
                "Idle pickup: microseconds from the push call to the handler's start",
                Cell::Pickup,
                &[("p50", START_P50), ("p99", "start_p99_us")],
                &peers,
            ),
            self.each(
                "Idle cost: server and workers",
                Cell::Idle,
                &[("CPU, % of a core", CPU), ("memory, KiB", RESIDENT)],
                &peers,
            ),
            self.next_to_seed(),
            self.goals(),
            self.faults(),
        ];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn head(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{}; {}, {} cores, {} GiB, Linux {}, {}; {} rounds, {}s a cell; {} raw flushes a second.\n\n",
            machine.date,
            machine.processor,
            machine.cores,
            machine.memory_gib,
            machine.kernel,
            machine.file_system,
            self.cells.rounds,
            self.cells.seconds,
            spread(self.summary.raw_sync(None)),
        );
        for system in &self.systems.all {
            text += &format!("- {}: {}\n", system.name(), system.setup());
        }
        for (name, why) in &self.systems.missing {
            text += &format!("- {name} is missing: {why}\n");
        }
        if self.left_out > 0 {
            text += &format!("- there was no time for the last {} runs\n", self.left_out);
        }
        text
    }

    /// kvqueue on the embedded engine, and its peers.
    fn next_to_peers(&self) -> Vec<&str> {
        let peers = self.peers();
        let ours = ["kvqueue", "kvqueue-shared", "kvqueue-amo", "kvqueue-eo"];
        self.names().into_iter().filter(|name| ours.contains(name) || peers.contains(name)).collect()
    }

    fn has(&self, cell: Cell, name: &str) -> bool {
        !self.summary.spreads(cell, name).is_empty()
    }

    /// A row for each cell of a family, a column for each system.
    fn rates(&self, title: &str, family: &str, names: &[&str]) -> String {
        let cells: Vec<Cell> = crate::cell::next_to_peers()
            .into_iter()
            .filter(|cell| cell.family() == family && self.cells.cells.contains(cell))
            .collect();
        let taking_part = |name: &&str| cells.iter().any(|cell| self.has(*cell, name));
        let names: Vec<&str> = names.iter().copied().filter(taking_part).collect();
        if names.is_empty() {
            return String::new();
        }
        let last = if self.peers().is_empty() { None } else { Some("kvqueue / best peer") };
        let head = ["cell"].into_iter().chain(names.iter().copied()).chain(last);
        let rows: Vec<Vec<String>> = cells.iter().map(|cell| self.rate_row(*cell, &names)).collect();
        format!("### {title}\n\n{}", table(&head.map(str::to_owned).collect::<Vec<_>>(), &rows))
    }

    fn rate_row(&self, cell: Cell, names: &[&str]) -> Vec<String> {
        let mut row = vec![cell.to_string()];
        row.extend(names.iter().map(|name| spread(self.summary.spread(cell, name, PER_SECOND))));
        if !self.peers().is_empty() {
            row.push(self.against_best(cell, PER_SECOND));
        }
        row
    }

    fn against_best(&self, cell: Cell, figure: &str) -> String {
        let ours = self.summary.spread(cell, "kvqueue", figure);
        match (ours, goals::best(self.summary, cell, &self.peers(), figure)) {
            (Some(ours), Some((name, best))) => format!("{} ({name})", number(ours.median / best)),
            _ => "-".to_owned(),
        }
    }

    /// A row for each system, a column for each figure.
    fn each(&self, title: &str, cell: Cell, columns: &[Column<'_>], names: &[&str]) -> String {
        let rows: Vec<Vec<String>> = names
            .iter()
            .filter(|name| self.has(cell, name))
            .map(|name| {
                let values =
                    columns.iter().map(|(_, figure)| spread(self.summary.spread(cell, name, figure)));
                std::iter::once((*name).to_owned()).chain(values).collect()
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let head = std::iter::once("system").chain(columns.iter().map(|(title, _)| *title));
        format!("### {title}\n\n{}", table(&head.map(str::to_owned).collect::<Vec<_>>(), &rows))
    }

    /// Our default next to the seed's algorithm, on both engines.
    fn next_to_seed(&self) -> String {
        if !self.names().contains(&"cluster") {
            return String::new();
        }
        let names: Vec<&str> =
            self.names().into_iter().filter(|name| is_ours(name) && *name != "kvqueue-eo").collect();
        let cells = next_to_seed().into_iter().filter(|cell| self.cells.cells.contains(cell));
        let rows: Vec<Vec<String>> = cells.flat_map(|cell| self.seed_rows(cell, &names)).collect();
        let head = ["cell", "figure"].into_iter().chain(names.iter().copied()).map(str::to_owned);
        format!("### Next to the seed's algorithm\n\n{}", table(&head.collect::<Vec<_>>(), &rows))
    }

    fn seed_rows(&self, cell: Cell, names: &[&str]) -> Vec<Vec<String>> {
        let columns: &[Column<'_>] = match cell {
            Cell::Pickup => &[("p50, us", START_P50)],
            Cell::Flood { .. } => &[
                ("pops/s", PER_SECOND),
                ("pushes/s", PUSHES_PER_SECOND),
                ("conflicts / 100 takes", CONFLICTS),
            ],
            Cell::Burn { .. } => &[("items/s", PER_SECOND), ("conflicts / 100 takes", CONFLICTS)],
            _ => &[("items/s", PER_SECOND)],
        };
        columns
            .iter()
            .map(|(title, figure)| {
                let values = names.iter().map(|name| spread(self.summary.spread(cell, name, figure)));
                [cell.to_string(), (*title).to_owned()].into_iter().chain(values).collect()
            })
            .collect()
    }

    fn goals(&self) -> String {
        let measured =
            |verdict: &Verdict| self.cells.cells.iter().any(|cell| cell.to_string() == verdict.cell);
        let verdicts = goals::judge(self.summary, &self.names(), &self.peers());
        let rows: Vec<Vec<String>> =
            verdicts.iter().filter(|verdict| measured(verdict)).map(goal_row).collect();
        if rows.is_empty() {
            return String::new();
        }
        let head =
            ["cell", "system", "figure", "goal", "held against", "is", "ratio", "met"].map(str::to_owned);
        format!("### Goals\n\n{}", table(&head, &rows))
    }

    fn faults(&self) -> String {
        let all = self.names().into_iter().map(|name| (name, self.summary.faults(name)));
        let rows: Vec<Vec<String>> = all
            .map(|(name, (lost, repeated, runs))| {
                vec![name.to_owned(), runs.to_string(), lost.to_string(), repeated.to_string()]
            })
            .collect();
        let head = ["system", "runs", "lost", "repeated"].map(str::to_owned);
        let mut text = format!("### Items lost and repeated, in all cells\n\n{}", table(&head, &rows));
        for run in self.summary.runs() {
            if let Err(error) = &run.result {
                text += &format!("\n{} {} failed: {error}\n", run.system, run.cell);
            }
        }
        text
    }
}

fn goal_row(verdict: &Verdict) -> Vec<String> {
    let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let met = match verdict.met {
        Some(true) => "met",
        Some(false) => "not met",
        None => "-",
    };
    vec![
        verdict.cell.clone(),
        verdict.system.to_owned(),
        verdict.figure.to_owned(),
        verdict.bar.clone(),
        value(verdict.base),
        value(verdict.value),
        value(verdict.ratio),
        met.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::peers::{Size, System};
    use crate::run::Cells;
    use crate::start::Systems;
    use crate::summary::{Run, Summary};

    struct Named(&'static str);

    impl System for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn setup(&self) -> String {
            "set up".to_owned()
        }
        fn runs(&self, _: Cell) -> bool {
            true
        }
        fn run(&mut self, _: Cell, _: Size) -> Result<Outcome, crate::error::Error> {
            Ok(Outcome::default())
        }
    }

    #[test]
    fn tables_mark_the_best_peer_and_the_goals_met() {
        let cell = Cell::Push { clients: 32, batch: 1 };
        let mut summary = Summary::default();
        for (system, value) in [("kvqueue", 300.0), ("redis-list", 100.0)] {
            let result = Ok(Outcome { lost: 1, ..Outcome::default() }.with(PER_SECOND, value));
            summary.add(Run { round: 0, cell, system: system.to_owned(), result });
        }
        let result = Err("broken".to_owned());
        summary.add(Run { round: 0, cell, system: "beanstalkd".to_owned(), result });
        let systems = Systems {
            all: vec![
                Box::new(Named("kvqueue")),
                Box::new(Named("redis-list")),
                Box::new(Named("beanstalkd")),
            ],
            peers: vec!["redis-list".to_owned(), "beanstalkd".to_owned()],
            missing: vec![("graphile".to_owned(), "no node".to_owned())],
        };
        let cells = Cells { cells: vec![cell], rounds: 1, seconds: 1.0 };
        let machine = crate::machine::Machine::here(std::path::Path::new("/"));
        let report = Report { machine, cells: &cells, systems: &systems, summary: &summary, left_out: 2 };
        let text = report.markdown();
        for part in [
            "| push-32x1 | 300     | 100        | 3.00 (redis-list)   |",
            "| 3.00  | met |",
            "graphile is missing: no node",
            "beanstalkd push-32x1 failed: broken",
            "| redis-list | 1    | 1    | 0        |",
            "no time for the last 2 runs",
        ] {
            assert!(text.contains(part), "{part}\n\n{text}");
        }
        assert!(!text.contains("Burn-down"), "{text}");
        assert_eq!(report.json()["goals"][0]["met"], serde_json::Value::Null);
    }
}
