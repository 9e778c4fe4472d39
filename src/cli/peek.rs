//! `kvqueue peek`

use std::num::NonZeroUsize;

use anyhow::{anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kvqueue_queue::ItemState;

use super::{
    globals::Globals,
    operation::{self, Runner},
    output,
    target::Target,
    values,
};
use crate::{
    base::exit::Exit,
    operations::{Answer, Operation, Page, look::ListItems},
};

/// How many items are printed of a state, unless the command says it.
const OF_A_STATE: NonZeroUsize = NonZeroUsize::new(100).expect("100 is not 0");

/// Print items of a queue and leave them in it
#[derive(Debug, clap::Args)]
#[command(long_about = "Print items of a queue and leave them in it.\n\n\
    Without --state, the payloads of the first ready items are printed, as `kvqueue pop` would print them. With it, a table shows the items \
    of that state:\n\n\
    ready      they can be fetched, in this order\n\
    scheduled  they were pushed for a later time\n\
    retrying   an attempt failed, and the next one is due at a later time\n\
    running    a worker has fetched them: they are on a lease\n\
    dead       dead letters: nobody tries them any more\n\n\
    With --json, each line has all that is known of an item, and its whole payload.")]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Show the items of this state, with what is known of them
    #[arg(long, value_parser = states())]
    state: Option<ItemState>,
    /// Number of items to print at most [default: 1; 100 with --state]
    #[arg(short, value_parser = values::items, allow_negative_numbers = true)]
    k: Option<NonZeroUsize>,
    /// Begin behind this place, which an earlier command named
    #[arg(long, value_name = "PLACE", requires = "state")]
    after: Option<String>,
}

fn states() -> impl TypedValueParser<Value = ItemState> {
    PossibleValuesParser::new(ItemState::ALL.map(ItemState::as_str)).try_map(|text| text.parse::<ItemState>())
}

/// The most bytes of each payload in a table.
const BYTES: usize = 240;

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let runner = Runner::open_for(None, globals)?;
        let is_table = self.state.is_some() && !globals.json;
        let bytes = if is_table { BYTES } else { runner.most_of_payloads() };
        let some = if self.state.is_some() { OF_A_STATE } else { NonZeroUsize::MIN };
        let items = ListItems {
            target: self.target.of_operation(),
            state: self.state.unwrap_or_default(),
            page: Page::new(self.k.unwrap_or(some), self.after.clone()),
            bytes: Some(bytes),
            unique: None,
        };
        match self.state {
            Some(_) => operation::run_in(&runner, items, globals),
            None => payloads(&runner, items, globals),
        }
    }
}

/// Prints the payloads of the first ready items.
fn payloads(runner: &Runner, mut items: ListItems, globals: &Globals) -> anyhow::Result<Exit> {
    let mut problem = None;
    loop {
        let page = runner.ask(&items)?;
        for item in &page.items {
            if let Some(problem) = item.problem().filter(|_| !globals.json) {
                bail!(problem);
            }
            output::line(globals.json, &item.payload().unwrap_or_default(), &serde_json::to_value(item)?)?;
        }
        problem = problem.or_else(|| page.problem());
        if !items.go_on(&page) {
            return problem.map_or(Ok(Exit::Done), |problem| Err(anyhow!(problem)));
        }
    }
}
