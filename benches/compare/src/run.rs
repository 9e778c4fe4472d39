//! Carries out the schedule.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::args::RunArgs;
use crate::cell::Cell;
use crate::error::Error;
use crate::outcome::{Outcome, PER_SECOND};
use crate::peers::{Size, System};
use crate::plan::{Rates, Step, schedule};
use crate::process::Processes;
use crate::raw_sync;
use crate::summary::{Run, Summary};

/// What a run is to measure.
pub struct Cells {
    /// In this order.
    pub cells: Vec<Cell>,
    /// How often.
    pub rounds: u32,
    /// How long each.
    pub seconds: f64,
}

impl Cells {
    /// What the command line asks for.
    pub fn of(args: &RunArgs) -> Self {
        let mut cells = crate::cell::next_to_peers();
        if args.cluster.is_some() {
            let more = crate::cell::next_to_seed();
            cells.extend(more.into_iter().filter(|cell| !cells.contains(cell)).collect::<Vec<_>>());
        }
        if !args.only.is_empty() {
            cells.retain(|cell| args.only.iter().any(|pattern| pattern.matches(*cell)));
        }
        let (rounds, seconds) = if args.quick { (1, 0.3) } else { (args.rounds, args.seconds) };
        Self { cells, rounds, seconds }
    }
}

/// Runs everything, until it is done or `end` has come. Returns also how many runs there was no time for.
pub fn run(
    cells: &Cells,
    systems: &mut [Box<dyn System>],
    scratch: &Path,
    processes: &Processes,
    end: Instant,
) -> Result<(Summary, usize), Error> {
    let mut summary = Summary::default();
    let mut rates = Rates::default();
    let steps =
        schedule(cells.rounds, &cells.cells, systems.len(), |system, cell| systems[system].runs(cell));
    let mut before = None;
    for (nth, step) in steps.iter().copied().enumerate() {
        if Instant::now() >= end {
            eprintln!("no time for the last {} of {} runs", steps.len() - nth, steps.len());
            return Ok((summary, steps.len() - nth));
        }
        if before.replace((step.round, step.cell)) != Some((step.round, step.cell)) {
            let rate = raw_sync::measure(scratch)?;
            eprintln!(
                "round {} of {}, {}: {rate:.0} raw flushes a second",
                step.round + 1,
                cells.rounds,
                step.cell
            );
            summary.add_raw_sync(step.cell, rate);
        }
        let system = systems[step.system].as_mut();
        let begin = Instant::now();
        let result = once(system, step, cells.seconds, &mut rates);
        if processes.is_closing() {
            return Err(Error::Stopped);
        }
        tell(nth + 1, steps.len(), step.cell, system.name(), &result, begin.elapsed());
        let result = result.map_err(|error| error.to_string());
        summary.add(Run { round: step.round, cell: step.cell, system: system.name().to_owned(), result });
    }
    Ok((summary, 0))
}

/// One run; a second one if the first shows that it was far too short.
fn once(system: &mut dyn System, step: Step, seconds: f64, rates: &mut Rates) -> Result<Outcome, Error> {
    let is_burn = matches!(step.cell, Cell::Burn { .. } | Cell::Pull { .. });
    let mut repeat = is_burn && step.round == 0;
    loop {
        let items = rates.items(step, system.name(), seconds);
        let outcome = system.run(step.cell, Size { seconds, items })?;
        let Some(per_second) = outcome.figures.get(PER_SECOND).copied() else { return Ok(outcome) };
        rates.learn(step, per_second);
        if !(repeat && Rates::too_short(items, per_second, seconds)) {
            return Ok(outcome);
        }
        repeat = false;
    }
}

fn tell(nth: usize, of: usize, cell: Cell, system: &str, result: &Result<Outcome, Error>, time: Duration) {
    let said = match result {
        Ok(outcome) => {
            let names = [PER_SECOND, "start_p50_us", "ack_p50_us", "cpu_percent", "resident_kib"];
            let figures = names.iter().filter_map(|name| Some((name, outcome.figures.get(*name)?)));
            let figures: Vec<String> = figures.map(|(name, value)| format!("{name} {value:.1}")).collect();
            let faults = match (outcome.lost, outcome.repeated) {
                (0, 0) => String::new(),
                (lost, repeated) => format!(", {lost} LOST, {repeated} REPEATED"),
            };
            figures.join(", ") + &faults
        }
        Err(error) => format!("FAILED: {error}"),
    };
    eprintln!("{nth:>4}/{of} {cell:<13} {system:<14} {:>5.1}s  {said}", time.as_secs_f64());
}
