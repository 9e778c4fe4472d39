//! `kvqueue schedule`: shows the schedules of queues, and changes them.

mod add;
mod list;
mod next;
mod times;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::{completions, globals::Globals, operation, target::Target};
use crate::{
    base::exit::Exit,
    operations::{
        Page, QueueName,
        schedules::{
            FireSchedule, ListOccurrences, PauseSchedule, RemoveSchedule, ResumeSchedule, ScheduleTarget,
            ShowSchedule,
        },
    },
};

/// Show schedules, which push items again and again; make, change and remove them
#[derive(Debug, clap::Subcommand)]
#[command(long_about = "Show schedules, which push items again and again; make, change and remove them.\n\n\
    A schedule belongs to a queue, and is kept in the database. A daemon that processes the queue fires it: it pushes the item at the times of a cron expression, or \
    every so often. Each time is fired once, however many daemons there are. docs/SCHEDULES.md has the rules of expressions, daylight saving and outages.")]
pub(super) enum Command {
    List(list::List),
    /// Print all that is known of a schedule: its definition, how it stands, its next times and its last records
    Show(Which),
    Next(next::Next),
    Add(add::Add),
    /// Remove a schedule with its history; the items that it has pushed stay
    #[command(long_about = "Remove a schedule with its history; the items that it has pushed stay.\n\n\
        A schedule that belongs to a configuration is removed there: a daemon that has it in its configuration would make it again. --force removes it all the same, for a configuration \
        that no daemon uses any more.")]
    Remove {
        #[command(flatten)]
        which: Which,
        /// Also if it belongs to a configuration, or if this version cannot read it
        #[arg(long)]
        force: bool,
    },
    /// Pause a schedule: it does not fire until it is resumed
    #[command(
        long_about = "Pause a schedule: it does not fire until it is resumed, and what is due in the pause is skipped.\n\n\
        The pause is kept in the database, and outlives daemons and reloads. The queue's items are handled all the same; `kvqueue pause` pauses the queue."
    )]
    Pause(Which),
    /// Resume a paused schedule: it fires from now on; times of the pause are skipped
    #[command(
        long_about = "Resume a paused schedule: it fires from now on; times of the pause are skipped, and recorded.\n\n\
        --restart mends a schedule that a clock far ahead has silenced. Set the clock right before."
    )]
    Resume {
        #[command(flatten)]
        which: Which,
        /// Begin now, also if it is not paused; times after now that have fired already fire again
        #[arg(long)]
        restart: bool,
    },
    /// Push an item of a schedule now, also if it is paused; it goes on as if nothing had happened
    Fire {
        #[command(flatten)]
        target: Target,
        /// The schedule
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print what became of a schedule's times, the newest first; the last 1,000 records are kept
    History {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        page: Page,
    },
}

impl Command {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(globals),
            Self::Show(which) => operation::run(ShowSchedule { schedule: which.target() }, globals),
            Self::Next(args) => args.run(globals),
            Self::Add(args) => args.run(globals),
            Self::Remove { which, force } => {
                operation::run(RemoveSchedule { schedule: which.target(), force }, globals)
            }
            Self::Pause(which) => operation::run(PauseSchedule { schedule: which.target() }, globals),
            Self::Resume { which, restart } => {
                operation::run(ResumeSchedule { schedule: which.target(), restart }, globals)
            }
            Self::Fire { target, name } => {
                operation::run(FireSchedule { target: target.of_operation(), name }, globals)
            }
            Self::History { which, page } => {
                operation::run(ListOccurrences { schedule: which.target(), page }, globals)
            }
        }
    }
}

/// A schedule by its name.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The queue
    #[arg(add = completions::queue())]
    queue: OsString,
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,
}

impl Which {
    fn target(self) -> ScheduleTarget {
        ScheduleTarget { queue: QueueName(self.queue.into_vec()), name: self.name }
    }
}
