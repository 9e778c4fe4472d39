//! The item that a command is about: by its id or its unique key.

use std::ffi::OsString;

use kvqueue_queue::ItemId;

use super::super::{
    globals::Globals,
    operation::{self, Runner},
    target::Target,
};
use crate::{
    base::exit::Exit,
    operations::{Operation, items::ItemTarget},
};

/// An item of a queue.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct One {
    #[command(flatten)]
    pub(super) target: Target,
    /// The item
    #[arg(value_name = "ID", required_unless_present = "unique")]
    id: Option<ItemId>,
    /// The item that has this unique key; a dead letter has none
    #[arg(long, value_name = "KEY", conflicts_with = "id")]
    unique: Option<OsString>,
}

impl One {
    /// The item's id.
    pub(super) fn id(&self, runner: &Runner) -> anyhow::Result<ItemId> {
        match (&self.id, &self.unique) {
            (Some(id), _) => Ok(id.clone()),
            (None, key) => {
                runner.unique_item(&self.target.of_operation(), key.as_deref().unwrap_or_default())
            }
        }
    }

    /// Runs an operation on the item.
    pub(super) fn run<O: Operation>(
        &self,
        globals: &Globals,
        operation: impl FnOnce(ItemTarget) -> O,
    ) -> anyhow::Result<Exit> {
        let runner = Runner::open_for(O::ROUTE.audit, globals)?;
        let item = ItemTarget::new(self.target.of_operation(), self.id(&runner)?);
        operation::run_in(&runner, operation(item), globals)
    }
}
