//! `kvqueue pause` and `kvqueue resume`: operations that may be for one daemon alone.

use super::{
    api_client::{ApiClient, At},
    globals::Globals,
    operation,
};
use crate::{
    base::exit::Exit,
    operations::{Operation, PauseQueue, ResumeQueue},
};

// A change of a pause, and the daemon that is asked if it is for that alone. A documentation comment here would be the help of both commands; without one,
// that of the last flattened type is.
#[derive(Debug, clap::Args)]
pub(super) struct Local<O: clap::Args> {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    operation: O,
}

impl Local<PauseQueue> {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let is_local = self.operation.local;
        self.run_if(is_local, globals)
    }
}

impl Local<ResumeQueue> {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let is_local = self.operation.local;
        self.run_if(is_local, globals)
    }
}

impl<O: Operation + clap::Args> Local<O> {
    fn run_if(self, is_local: bool, globals: &Globals) -> anyhow::Result<Exit> {
        if is_local {
            return operation::run_at(ApiClient::find(globals, &self.at)?, self.operation, globals);
        }
        self.at.only_with_here()?;
        operation::run(self.operation, globals)
    }
}
