//! Commands to a running daemon: from signals, and from HTTP, which `kvqueue reload` and others use.

use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::base::answer::answer;

/// The most commands that wait. The next one is refused.
const WAITING: usize = 16;

/// The channel for the result of a command.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// The commands to a running daemon.
#[derive(Debug)]
pub(crate) enum Command {
    /// Reload the configuration.
    Reload(Reply<Result<Reloaded, CommandError>>),
    /// Pause or resume a queue in this daemon only.
    PauseLocally {
        /// A configured queue.
        queue: String,
        /// True: pause. False: resume.
        paused: bool,
        reply: Reply<Result<(), CommandError>>,
    },
    /// Log the daemon's whole status.
    Report,
}

/// A command, and when it was sent.
#[derive(Debug)]
pub(crate) struct QueuedCommand {
    pub(crate) command: Command,
    pub(crate) at: Instant,
}

impl Command {
    /// Sends an error to the caller instead of carrying the command out.
    pub(crate) fn refuse(self, why: &str) {
        let refused = Err(CommandError(why.to_owned()));
        // The caller may have stopped waiting.
        match self {
            Self::Reload(reply) => drop(reply.send(refused.map(|()| Reloaded::default()))),
            Self::PauseLocally { reply, .. } => drop(reply.send(refused)),
            Self::Report => {}
        }
    }

    /// Reloads the configuration, without waiting for the result.
    pub(crate) fn reload() -> Self {
        Self::Reload(oneshot::channel().0)
    }
}

/// The result of a reload that took effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Reloaded {
    /// The keys that changed, as in `queues.mail.consumers`.
    pub(crate) changed: Vec<String>,
    /// Queues with consumers that still finish items under the earlier settings.
    pub(crate) finishing: Vec<String>,
    /// Removed queues that have items. This daemon no longer processes them.
    pub(crate) left: Vec<Left>,
}

/// A queue that a reload removed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Left {
    pub(crate) queue: String,
    /// Ready and waiting items.
    pub(crate) items: u64,
}

/// A command failed. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CommandError(pub(crate) String);

/// Sends commands to the control loop.
#[derive(Debug, Clone)]
pub(crate) struct CommandSender(mpsc::Sender<QueuedCommand>);

impl CommandSender {
    /// A sender, and the receiver for the control loop.
    pub(crate) fn new() -> (Self, mpsc::Receiver<QueuedCommand>) {
        let (sender, commands) = mpsc::channel(WAITING);
        (Self(sender), commands)
    }

    /// Reloads the configuration, and waits for the result.
    pub(crate) async fn reload(&self) -> Result<Reloaded, CommandError> {
        let (reply, replied) = oneshot::channel();
        self.send(Command::Reload(reply))?;
        answer(replied, self.0.closed()).await.unwrap_or_else(|| Err(stopping()))
    }

    /// Pauses or resumes a queue in this daemon only.
    pub(crate) async fn pause_locally(&self, queue: &str, paused: bool) -> Result<(), CommandError> {
        let (reply, replied) = oneshot::channel();
        self.send(Command::PauseLocally { queue: queue.to_owned(), paused, reply })?;
        answer(replied, self.0.closed()).await.unwrap_or_else(|| Err(stopping()))
    }

    fn send(&self, command: Command) -> Result<(), CommandError> {
        self.0.try_send(QueuedCommand { command, at: Instant::now() }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                CommandError("the daemon is busy with other commands; try again in a moment".to_owned())
            }
            mpsc::error::TrySendError::Closed(_) => stopping(),
        })
    }
}

fn stopping() -> CommandError {
    CommandError("the daemon is stopping".to_owned())
}
