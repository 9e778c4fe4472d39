//! Why a queue was not moved.

use kvqueue_queue::RetryError;

use crate::{base::exit::Exit, database::NoAnswer};

/// A migration was refused, or ended half-way. What was copied stays, and the same command goes on there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    #[error("there is no database at {0}: its directory holds none")]
    NoDatabase(String),
    #[error("{0} is the database that queues are to be moved from and to; name another one with --to")]
    SameDatabase(String),
    #[error("there is no queue {queue} at the source; `kvqueue list` says which there are")]
    NoQueue { queue: String },
    #[error(
        "there is a queue {queue} at the target already, which did not come from this source; give one of them another name, or delete it there with \
         `kvqueue delete`"
    )]
    Exists { queue: String },
    #[error(
        "queue {queue} is being moved to the target from somewhere else; let that end, or delete what has come with `kvqueue delete --frozen` there"
    )]
    Foreign { queue: String },
    #[error(
        "queue {queue} was moved away from the target, and what was left behind is still there; delete it there with `kvqueue delete --frozen`"
    )]
    LeftTarget { queue: String },
    #[error("queue {queue} is being moved away from the target; let that end first")]
    LeavingTarget { queue: String },
    #[error("queue {queue} is being moved to the source, and not all of it is there; let that end first")]
    Incomplete { queue: String },
    #[error(
        "queue {queue} was moved away from the source before, and this target does not have it: it went elsewhere, or was deleted here since. \
         To copy once more what the source still has, add --again"
    )]
    LeftBefore { queue: String },
    #[error(
        "the target's versions have come to {to} and the source's to {from}, so what is pushed at the target would come before what is copied, or in its \
         place. Add --advance-versions, which makes the cluster recover: for a second or two transactions of all its users fail and are tried again. \
         Or have an administrator run: fdbcli --exec 'advanceversion {advance}'"
    )]
    Behind { from: i64, to: i64, advance: i64 },
    #[error("the target's versions have not advanced to {0} within a minute")]
    NotAdvanced(i64),
    #[error(
        "queue {queue} is used at the target, where it is still being copied to: another program pushed to it or fetched from it there. Stop that \
         program, take out the items that it pushed there, delete the queue there with `kvqueue delete --frozen`, and begin again"
    )]
    TargetUsed { queue: String },
    #[error(
        "queue {queue} is still written to at the source: {passes} times it changed while it was compared. Stop its producers and all other programs that use it \
         there, and run this again: it goes on where it was"
    )]
    StillWritten { queue: String, passes: u32 },
    #[error("queue {queue} is being moved by another kvqueue migrate at the same time; wait for that one")]
    Busy { queue: String },
    /// A database accepts no more data, mostly because its disk is full.
    #[error("{0}. Nothing is lost: what was copied stays, and the same command goes on where it stopped")]
    Refused(String),
    #[error("the database refused")]
    Retry(#[from] RetryError),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

impl MigrateError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::SameDatabase(_) => Exit::Usage,
            Self::NoDatabase(_) | Self::NoAnswer(_) => Exit::Unavailable,
            Self::NoQueue { .. }
            | Self::Exists { .. }
            | Self::Foreign { .. }
            | Self::LeftTarget { .. }
            | Self::LeavingTarget { .. }
            | Self::Incomplete { .. }
            | Self::LeftBefore { .. } => Exit::Data,
            _ => Exit::Failed,
        }
    }
}
