//! `kvqueue top`
//!
//! | file | role |
//! |---|---|
//! | `view` | what is on the screen |
//! | `screen` | the terminal: its second screen, its keys, its size |

mod screen;
mod view;

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use self::{
    screen::{Key, Screen},
    view::View,
};
use super::{
    daemon::{At, Daemon},
    globals::Globals,
    status,
};
use crate::exit::Exit;

/// How often the daemon is asked.
const EVERY: Duration = Duration::from_secs(1);

/// Watch the running daemon and its queues
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Watch the running daemon and its queues: as `kvqueue status`, every second. q ends it, s sorts the queues by \
    another column, the arrows go down and up a long list.\n\n\
    Where the output is no terminal, and with --json, it is shown once."
)]
pub(super) struct Args {
    #[command(flatten)]
    at: At,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let daemon = Daemon::find(globals, &self.at)?;
        // A daemon that cannot be asked at first is not asked again.
        let (answer, first) = status::ask(&daemon)?;
        if globals.json || !io::stdout().is_terminal() {
            status::show(globals.json, &answer, &first)?;
            return Ok(Exit::Done);
        }
        let mut view = View::new(first);
        let screen = Screen::open()?;
        let mut asked = Instant::now();
        loop {
            screen.show(&view.lines(screen.size()), status::colours())?;
            match screen.key(EVERY.saturating_sub(asked.elapsed()))? {
                Some(Key::End) => return Ok(Exit::Done),
                Some(key) => view.on(key),
                None => {
                    asked = Instant::now();
                    view.update(status::ask(&daemon).map(|(_, figures)| figures));
                }
            }
        }
    }
}
