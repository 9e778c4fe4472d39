//! `kvqueue item wait`

use std::time::{Duration, Instant};

use super::{
    super::{
        globals::Globals,
        operation::{self, Place},
    },
    One,
};
use crate::{
    config::duration,
    exit::Exit,
    operations::{
        items::ItemTarget,
        look::{Item, ShowItem},
    },
};

/// The longest time that can be added to a clock without an overflow.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

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

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let place = Place::open_for(None, globals)?;
        let (target, id) = (self.one.target.of_operation(), self.one.id(&place)?);
        // A daemon has to answer within --timeout.
        let step = globals.timeout().map_or(STEP, |timeout| STEP.min(timeout / 2));
        let until = self.limit.map(|limit| Instant::now() + limit.min(FOR_EVER));
        let mut was_there = false;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_last = left.is_some_and(|left| left <= step);
            let wait_ms = u64::try_from(left.unwrap_or(step).min(step).as_millis()).ok();
            let item = ItemTarget::new(target.clone(), id.clone());
            let item = match place.ask(&ShowItem { item, wait_ms }) {
                Err(error) if was_there && operation::is_not_found(&error) => Item::left(&id),
                found => found?,
            };
            if is_last || item.has_ended() {
                operation::print::<ShowItem>(&item, globals)?;
                return Ok(if item.has_ended() { Exit::Done } else { Exit::Nothing });
            }
            was_there = true;
        }
    }
}
