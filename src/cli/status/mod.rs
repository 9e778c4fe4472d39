//! `kvqueue status`

mod database;
mod figures;
mod format;
mod other_queues;
mod text;
mod workers;

use std::{
    io::{self, IsTerminal, Write},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    api_client::{ApiClient, At},
    failure::exit_of,
    globals::Globals,
    output,
};
use crate::{
    base::{clock, exit::Exit},
    config::duration,
};

pub(super) use figures::{Figures, QueueFigures, STATUS, read};
use format::age;
pub(super) use format::{LONGEST_NAME, fitting};
use other_queues::Others;
pub(super) use text::{Line, Mood, Table, about, disk_figures};

/// Figures that are older, in seconds, are from before the request.
const JUST_NOW: f64 = 1.0;

/// How long a command that waits for a daemon rests before it asks once more.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// No terminal is that wide.
const UNBOUNDED: usize = 1_000;

/// Show what the running daemon does, and what is in its queues
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Show what the running daemon does, and what is in its queues. It is asked over HTTP where the configuration says that \
    it listens, or at --at.\n\n\
    The exit code is 0 if it is ready, and 69 if it is not, does not answer, or uses another database. Where none of this \
    database answers, and without --at, what the database has is shown all the same. With --wait a script goes on when a daemon \
    that it has started is ready: `kvqueue status --wait 30s && kvqueue push mail hello`."
)]
pub(super) struct Args {
    #[command(flatten)]
    at: At,
    /// Wait until the daemon is ready, this long at most
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true, value_parser = duration::parse)]
    wait: Duration,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if !self.at.is_given() {
            // Without the database's name there is nothing to show.
            globals.load_leniently()?;
        }
        let waiting_since = Instant::now();
        let mut began = waiting_since;
        let mut asked = self.ask_once(globals);
        while may_become_ready(&asked) && waiting_since.elapsed() < self.wait {
            thread::sleep(LOOK_AGAIN);
            began = Instant::now();
            asked = self.ask_once(globals);
        }
        match asked {
            Ok((answer, figures, others)) => {
                let exit = show(globals.json, &answer, &figures)?;
                if !globals.json {
                    print(other_queues::line(&others).as_slice())?;
                }
                Ok(exit)
            }
            Err(error) if self.at.is_given() || names_daemon(globals) => Err(error),
            Err(error) => {
                database::show(globals, began.elapsed(), &format!("{error:#}"))?;
                Ok(Exit::Unavailable)
            }
        }
    }

    fn ask_once(&self, globals: &Globals) -> anyhow::Result<Answers> {
        ApiClient::find(globals, &self.at).and_then(|daemon| ask_all(&daemon))
    }
}

/// Whether the URL of a daemon is in place of the database, so that there is none to look at.
fn names_daemon(globals: &Globals) -> bool {
    globals.load_leniently().is_ok_and(|(config, _)| config.is_of_daemon())
}

/// A daemon's answer, the figures in it that are shown, and the other queues in its database.
type Answers = (Value, Figures, Others);

/// Whether a daemon that is not ready, or does not answer, may be ready soon.
fn may_become_ready(asked: &anyhow::Result<Answers>) -> bool {
    match asked {
        Ok((_, figures, _)) => !figures.not_ready.is_empty(),
        Err(error) => exit_of(error) == Exit::Unavailable,
    }
}

/// The status of a daemon, and of the other queues in its database, or the reason why those are unknown.
fn ask_all(daemon: &ApiClient) -> anyhow::Result<Answers> {
    let (mut answer, figures) = daemon.figures()?;
    let others = other_queues::ask(daemon, &figures).unwrap_or_default();
    answer["other_queues"] = others.queues.as_slice().into();
    answer["more_other_queues"] = others.more.into();
    Ok((answer, figures, others))
}

/// Prints what a daemon said. The exit code tells whether it is ready.
pub(super) fn show(json: bool, answer: &Value, figures: &Figures) -> anyhow::Result<Exit> {
    if json {
        output::line(true, b"", answer)?;
    } else {
        let width = output::width().map_or(UNBOUNDED, usize::from);
        let lines = [
            about(figures, clock::now()),
            vec![Line::default()],
            Table::new(&figures.queues, width).lines(),
            older(&figures.queues),
            workers::lines(&figures.workers, figures.omitted_workers),
        ];
        print(&lines.concat())?;
    }
    Ok(if figures.not_ready.is_empty() { Exit::Done } else { Exit::Unavailable })
}

/// Figures from before the request.
fn older(queues: &[QueueFigures]) -> Vec<Line> {
    let oldest = queues.iter().map(|queue| queue.looked).fold(0.0, f64::max);
    let line =
        || Line::new(format!("The figures of some queues are up to {} old.", age(oldest)), Mood::Quiet);
    (oldest > JUST_NOW).then(line).into_iter().collect()
}

fn print(lines: &[Line]) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let colours = colours();
    for line in lines {
        writeln!(out, "{}", line.show(colours, UNBOUNDED))?;
    }
    out.flush()
}

/// Whether what is printed may have colours: at a terminal that has some, unless somebody does not want any.
pub(super) fn colours() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stdout().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}
