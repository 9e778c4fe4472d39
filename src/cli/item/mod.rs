//! `kvqueue item`: looks at single items by their ids or unique keys, and changes them.

mod cancel;
mod change;
mod show;
mod wait;

use std::ffi::OsString;

use kvqueue_queue::ItemId;

use super::{
    globals::Globals,
    operation::{self, Runner},
    target::Target,
};
use crate::{
    base::exit::Exit,
    operations::{Operation, items::ItemTarget},
};

/// Look at single items in any state, wait for their ends, and cancel, reschedule or edit them
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    Show(show::Args),
    Wait(wait::Args),
    Cancel(cancel::Args),
    Reschedule(change::Reschedule),
    EditPayload(change::EditPayload),
}

impl Command {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::Show(args) => args.run(globals),
            Self::Wait(args) => args.run(globals),
            Self::Cancel(args) => args.run(globals),
            Self::Reschedule(args) => args.run(globals),
            Self::EditPayload(args) => args.run(globals),
        }
    }
}

/// An item of a queue.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct One {
    #[command(flatten)]
    target: Target,
    /// The item
    #[arg(value_name = "ID", required_unless_present = "unique")]
    id: Option<ItemId>,
    /// The item that has this unique key; a dead letter has none
    #[arg(long, value_name = "KEY", conflicts_with = "id")]
    unique: Option<OsString>,
}

impl One {
    /// The item's id.
    fn id(&self, runner: &Runner) -> anyhow::Result<ItemId> {
        match (&self.id, &self.unique) {
            (Some(id), _) => Ok(id.clone()),
            (None, key) => {
                runner.unique_item(&self.target.of_operation(), key.as_deref().unwrap_or_default())
            }
        }
    }

    /// Runs an operation on the item.
    fn run<O: Operation>(
        &self,
        globals: &Globals,
        operation: impl FnOnce(ItemTarget) -> O,
    ) -> anyhow::Result<Exit> {
        let runner = Runner::open_for(O::ROUTE.audit, globals)?;
        let item = ItemTarget::new(self.target.of_operation(), self.id(&runner)?);
        operation::run_in(&runner, operation(item), globals)
    }
}
