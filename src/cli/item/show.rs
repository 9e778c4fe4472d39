//! `kvqueue item show`

use super::{super::globals::Globals, one::One};
use crate::{base::exit::Exit, operations::look::ShowItem};

/// Print all that is known of an item, whatever its state: what it waits for, how its attempts ended, its payload; of one that has ended, what the history has
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue item show [OPTIONS] <QUEUE> <ID>\n       \
    kvqueue item show [OPTIONS] <QUEUE> --unique <KEY>")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    one: One,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        self.one.run(globals, |item| ShowItem { item, wait_ms: None })
    }
}
