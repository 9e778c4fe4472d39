//! `kvqueue item wait`

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        globals::Globals,
        operation::{self, Runner},
    },
    one::One,
};
use crate::{
    base::exit::Exit,
    config::duration,
    operations::{
        items::ItemTarget,
        look::{Item, ShowItem},
    },
};

/// Wait until an item has ended, or is a dead letter, and print what is known of it
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Wait until an item has ended, or is a dead letter, and print what is known of it, as `item show` does.\n\n\
    How it ended is known if the queue keeps a history, or if it is a dead letter.",
    override_usage = "kvqueue item wait [OPTIONS] <QUEUE> <ID>\n       \
    kvqueue item wait [OPTIONS] <QUEUE> --unique <KEY>",
    after_help = "Exit codes: 0 if the item has ended or is a dead letter, 75 if it has done neither within the time of --for.\n\n\
    Examples:\n  \
    kvqueue item wait emails ID --for 30s\n  \
    kvqueue item wait emails --unique invoice-17 --json"
)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    one: One,
    /// How long to wait, as in 30s; then print the item as it is and end with 75. Without it: until the item has ended
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    limit: Option<Duration>,
}

/// How long a daemon is asked to wait in one request.
const STEP: Duration = Duration::from_secs(10);

/// How long to pause if it has answered earlier, as one that stops does, or not at all.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a daemon may be away, as one that is started again is.
const AWAY: Duration = Duration::from_secs(60);

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let runner = Runner::open_for(None, globals)?;
        let (target, id) = (self.one.target.of_operation(), self.one.id(&runner)?);
        // An answer has to come within --timeout.
        let step = globals.timeout().map_or(STEP, |timeout| STEP.min(timeout / 2)).max(PAUSE / 10);
        let until = self.limit.and_then(|limit| Instant::now().checked_add(limit));
        let (mut was_there, mut answered) = (false, Instant::now());
        loop {
            let began = Instant::now();
            let left = until.map_or(step, |until| until.saturating_duration_since(began));
            let wait_ms = u64::try_from(left.min(step).as_millis()).ok();
            let item = ItemTarget::new(target.clone(), id.clone());
            let found = runner.ask(&ShowItem { item, wait_ms });
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            let may_come_back = was_there && !is_over && answered.elapsed() < AWAY;
            let found = match found {
                Err(error) if was_there && operation::is_not_found(&error) => Some(Item::left(&id)),
                Err(error) if may_come_back && operation::is_transient(&error) => None,
                found => Some(found?),
            };
            if let Some(item) = found {
                if is_over || item.has_ended() {
                    operation::print::<ShowItem>(&item, globals)?;
                    return Ok(if item.has_ended() { Exit::Done } else { Exit::Nothing });
                }
                (was_there, answered) = (true, Instant::now());
            }
            let early = began + left.min(step).min(PAUSE);
            thread::sleep(early.saturating_duration_since(Instant::now()));
        }
    }
}
