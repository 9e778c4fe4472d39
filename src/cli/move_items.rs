//! `kvqueue move`

use std::{num::NonZeroUsize, os::unix::ffi::OsStrExt};

use super::{
    globals::Globals,
    operation::{self, Runner},
    target::{Destination, Target},
    values,
};
use crate::{
    base::exit::Exit,
    operations::{Operation, names::DestinationName, queues::MoveItems, target::Layout},
};

/// Move items to another queue of the same database
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Move items to another queue of the same database, in the order in which they would be taken. At every moment an item is in \
    one of the two, also if this is killed: repeat it then, and it goes on.\n\n\
    An item gets a new id and a place behind the others there; payload, attributes, attempts and failures go with it. One whose unique key \
    another item has there stays, and the exit code is 1. Waiting and running items stay where they are, and so does what is pushed \
    meanwhile."
)]
#[command(override_usage = "kvqueue move [OPTIONS] <QUEUE> <TO> <-n <N>|--all>")]
#[group(id = "many", required = true, multiple = false)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    destination: Destination,
    /// The most items to move
    #[arg(short, group = "many", value_parser = values::items, allow_negative_numbers = true)]
    n: Option<NonZeroUsize>,
    /// All that are there now
    #[arg(long, group = "many")]
    all: bool,
    /// Dead letters, not ready items; they become ready there, with all their attempts before them
    #[arg(long)]
    dead: bool,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let runner = Runner::open_for(MoveItems::ROUTE.audit, globals)?;
        if let Runner::Here(client) = &runner {
            self.target.find_there(client)?;
            // It may be new, and misspelt.
            client.note_if_new(&self.destination.queue(client)?)?;
        }
        let Layout { kind, values, end } = self.destination.layout();
        let operation = MoveItems {
            target: self.target.of_operation(),
            to: DestinationName(self.destination.to.as_bytes().to_vec()),
            to_kind: kind,
            to_values: values,
            to_end: end,
            limit: self.n,
            all: self.all,
            dead: self.dead,
        };
        operation.check()?;
        operation::run_in(&runner, operation, globals)
    }
}
