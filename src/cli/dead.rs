//! `kvqueue dead`: looks at dead letters, and purges them.

use kvqueue_queue::ItemId;

use super::{UsageError, globals::Globals, operation, target::Target};
use crate::{
    base::exit::Exit,
    operations::{
        Page,
        items::{ItemTarget, PurgeLetter, PurgeLetters},
        letters::{ListLetters, ShowLetter},
    },
};

/// Look at dead letters, the items that are not tried any more, and purge them; `kvqueue requeue` tries them again
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    List(List),
    Show(Show),
    Purge(Purge),
}

impl Command {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(globals),
            Self::Show(args) => args.run(globals),
            Self::Purge(args) => args.run(globals),
        }
    }
}

/// Print the dead letters of a queue, without their payloads
#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    page: Page,
}

impl List {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (target, page) = (self.target.of_operation(), self.page.clone());
        operation::run(ListLetters { target, page }, globals)
    }
}

/// Print all that is known of a dead letter: how its attempts ended, what was pushed with it, its payload
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    #[command(flatten)]
    target: Target,
    /// The letter
    id: ItemId,
}

impl Show {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let item = ItemTarget::new(self.target.of_operation(), self.id.clone());
        operation::run(ShowLetter { item }, globals)
    }
}

/// Delete dead letters for good
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue dead purge [OPTIONS] --yes <QUEUE> <ID>...\n       \
    kvqueue dead purge [OPTIONS] --yes <QUEUE> --all")]
pub(super) struct Purge {
    #[command(flatten)]
    target: Target,
    /// The letters
    #[arg(required_unless_present = "all", value_name = "ID")]
    ids: Vec<ItemId>,
    /// All letters of the queue
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Yes, delete them for good
    #[arg(long)]
    yes: bool,
}

impl Purge {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (target, confirm) =
            (self.target.of_operation(), self.target.queue.to_string_lossy().into_owned());
        if !self.yes {
            let error =
                format!("this deletes dead letters of queue {confirm:?} for good; repeat it with --yes");
            return Err(UsageError(error).into());
        }
        if self.all {
            return operation::run(PurgeLetters { target, confirm }, globals);
        }
        let which = (&target, &*self.ids, None);
        operation::run_each(which, ("dead letters", "purged"), |item| PurgeLetter { item }, globals)
    }
}
