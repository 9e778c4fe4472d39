//! Commands to a running daemon: from signals, and from HTTP, which `kvqueue reload` and others use.

use std::{sync::Arc, time::Instant};

use foundationdb::Database;
use kvqueue_queue::VersionHistory;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    answer::answer,
    config::Config,
    http::{Certificate, HttpFiles, Token},
    status::DaemonStatus,
};

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

/// The active configuration. The control loop changes it; others follow it.
pub(crate) struct ActiveConfig {
    config: watch::Sender<Arc<Config>>,
    token: watch::Sender<Option<Token>>,
    certificate: watch::Sender<Option<Certificate>>,
    /// The files as the last start or reload read them. `token` may be newer.
    loaded: HttpFiles,
}

impl ActiveConfig {
    pub(crate) fn new(config: Config, loaded: HttpFiles) -> Self {
        let HttpFiles { token, certificate } = loaded.clone();
        let (token, certificate) = (watch::Sender::new(token), watch::Sender::new(certificate));
        Self { config: watch::Sender::new(Arc::new(config)), token, certificate, loaded }
    }

    /// The current configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// A receiver of each new configuration.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// The secret that clients must send. A guard that finds a new one in the file puts it here.
    pub(crate) fn token(&self) -> watch::Sender<Option<Token>> {
        self.token.clone()
    }

    /// The certificate for TLS.
    pub(crate) fn certificate(&self) -> watch::Receiver<Option<Certificate>> {
        self.certificate.subscribe()
    }

    /// The files as the last start or reload read them.
    pub(crate) fn loaded(&self) -> &HttpFiles {
        &self.loaded
    }

    /// Replaces the configuration, and the contents of the files that it names.
    pub(crate) fn replace(&mut self, config: Config, files: HttpFiles) {
        self.loaded.clone_from(&files);
        self.token.send_replace(files.token);
        self.certificate.send_replace(files.certificate);
        self.config.send_replace(Arc::new(config));
    }
}

/// The running daemon, for the HTTP server.
#[derive(Clone)]
pub(crate) struct DaemonHandle {
    pub(crate) commands: CommandSender,
    pub(crate) status: Arc<DaemonStatus>,
    pub(crate) db: Arc<Database>,
    /// The clock that leases are measured by.
    pub(crate) history: VersionHistory,
    /// The active configuration.
    pub(crate) config: watch::Receiver<Arc<Config>>,
    /// The secret that clients must send, if there is one.
    pub(crate) token: watch::Sender<Option<Token>>,
    /// The certificate for TLS, if there is one.
    pub(crate) certificate: watch::Receiver<Option<Certificate>>,
}
