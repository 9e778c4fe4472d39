//! `kvqueue top`: prints the daemon's status every second.

use std::{
    io::{self, IsTerminal, Write},
    thread::sleep,
    time::{Duration, Instant},
};

use clap::ValueEnum;

use super::{
    api_client::{ApiClient, At},
    globals::Globals,
    output,
    status::{self, Figures, Line, Mood, QueueFigures, Table},
};
use crate::base::{clock, exit::Exit};

/// How often the daemon is asked.
const PERIOD: Duration = Duration::from_secs(1);

/// Moves the cursor to the top left corner.
const HOME: &str = "\x1b[H";

/// Erases the rest of the line, then starts the next one.
const NEXT_LINE: &str = "\x1b[K\r\n";

/// Erases everything below the cursor.
const ERASE_BELOW: &str = "\x1b[J";

/// Watch the running daemon and its queues
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Watch the running daemon and its queues: prints what `kvqueue status` prints, every second, until \
    control-C.\n\n\
    If the output is not a terminal, and with --json, it prints once."
)]
pub(super) struct Args {
    #[command(flatten)]
    at: At,
    /// The queues' order: by name, or those with the most first
    #[arg(long, value_enum, default_value_t, value_name = "COLUMN")]
    sort: Sort,
}

/// The column by which queues are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Sort {
    #[default]
    Name,
    Ready,
    /// Items finished per second.
    Out,
    Dead,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let daemon = ApiClient::find(globals, &self.at)?;
        // An error of the first request ends the command. Later ones may pass, so they are shown.
        let (answer, mut figures) = daemon.figures()?;
        self.sort.apply(&mut figures.queues);
        if globals.json || !io::stdout().is_terminal() {
            status::show(globals.json, &answer, &figures)?;
            return Ok(Exit::Done);
        }
        let mut error = None;
        let mut asked = Instant::now();
        // Signals end the process. There is nothing to restore: the terminal's modes stay as they are.
        loop {
            let (width, height) = output::terminal_size().unwrap_or((80, 24));
            let (width, height) = (usize::from(width), usize::from(height));
            print(&screen(&figures, error.as_deref(), width, height), width)?;
            sleep(PERIOD.saturating_sub(asked.elapsed()));
            asked = Instant::now();
            match daemon.figures() {
                Ok((_, new)) => (figures, error) = (new, None),
                Err(failed) => error = Some(format!("{failed:#}")),
            }
            self.sort.apply(&mut figures.queues);
        }
    }
}

impl Sort {
    /// Queues with equal values stay in the order of their names.
    fn apply(self, queues: &mut [QueueFigures]) {
        let value = |queue: &QueueFigures| match self {
            Self::Name => 0.0,
            Self::Ready => queue.ready.unwrap_or(0) as f64,
            Self::Out => queue.out_rate.unwrap_or(0.0),
            Self::Dead => queue.dead.unwrap_or(0) as f64,
        };
        queues.sort_by(|a, b| value(b).total_cmp(&value(a)));
    }
}

/// The lines that fit on a screen of this size, without its last line, where the cursor rests. `error` is why `figures`
/// are not current.
fn screen(figures: &Figures, error: Option<&str>, width: usize, height: usize) -> Vec<Line> {
    let mut lines = match error {
        Some(error) => vec![Line::new(format!("{error}; the last known status:"), Mood::Bad)],
        None => status::about(figures, clock::now()),
    };
    let Table { head, mut rows, mut notes } = Table::new(&figures.queues, width);
    notes.truncate(height / 4);
    let room = height.saturating_sub(lines.len() + notes.len() + 4).max(1);
    let omitted = rows.len().saturating_sub(room);
    rows.truncate(room);
    lines.extend([Line::default(), head]);
    lines.append(&mut rows);
    if omitted > 0 {
        lines.push(Line::new(format!("{omitted} more; kvqueue status shows all queues"), Mood::Quiet));
    }
    lines.append(&mut notes);
    lines
}

fn print(lines: &[Line], width: usize) -> io::Result<()> {
    let colours = status::colours();
    let shown: String = lines.iter().map(|line| line.show(colours, width) + NEXT_LINE).collect();
    let mut out = io::stdout().lock();
    out.write_all([HOME, &shown, ERASE_BELOW].concat().as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures() -> Figures {
        let queue =
            |it| json!({ "queue": format!("q{it:02}"), "ready": it, "dead": 20 - it, "out_rate": it % 3 });
        let queues: Vec<_> = (0..20).map(queue).collect();
        serde_json::from_value(json!({ "phase": "ready", "queues": queues })).unwrap()
    }

    fn text(figures: &Figures, error: Option<&str>, height: usize) -> Vec<String> {
        let lines = screen(figures, error, 80, height);
        assert!(lines.len() < height, "{lines:?}");
        lines.iter().map(|line| line.show(false, 80)).collect()
    }

    #[test]
    fn a_small_screen_shows_the_first_queues_and_how_many_it_omits() {
        let lines = text(&figures(), None, 12);
        let queues = lines.iter().filter(|line| line.starts_with('q')).count();
        assert!(queues >= 3, "{lines:?}");
        assert!(
            lines.contains(&format!("{} more; kvqueue status shows all queues", 20 - queues)),
            "{lines:?}"
        );
    }

    #[test]
    fn the_queue_with_the_most_comes_first() {
        let firsts = [Sort::Name, Sort::Ready, Sort::Out, Sort::Dead].map(|sort| {
            let mut figures = figures();
            sort.apply(&mut figures.queues);
            figures.queues[0].queue.clone()
        });
        assert_eq!(firsts, ["q00", "q19", "q02", "q00"]);
    }

    #[test]
    fn the_last_known_status_stays_while_the_daemon_does_not_answer() {
        let lines = text(&figures(), Some("no daemon answers"), 40);
        assert_eq!(lines[0], "no daemon answers; the last known status:");
        assert_eq!(lines.iter().filter(|line| line.starts_with('q')).count(), 20);
    }
}
