//! `kvqueue why`

use kvqueue_queue::ItemId;

use super::{globals::Globals, operation::Runner, output, target::Target};
use crate::{
    base::exit::Exit,
    operations::{items::ItemTarget, look::ShowItem},
};

/// Print what an item waits for
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print what an item waits for: its turn, a slot of its key, a rate, its time, its worker; and how much comes before it.\n\n\
    Up to 10,000 items and as many keys are counted. To find a running item, all leases are read."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// The item
    id: ItemId,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let item = ItemTarget::new(self.target.of_operation(), self.id.clone());
        let item = Runner::open_for(None, globals)?.ask(&ShowItem { item, wait_ms: None })?;
        output::line(globals.json, item.why().as_bytes(), &serde_json::to_value(&item)?)?;
        Ok(Exit::Done)
    }
}
