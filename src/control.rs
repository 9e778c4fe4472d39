//! Orders to a running daemon: from signals, from HTTP, from `kvqueue reload` and its like through HTTP.

use std::{sync::Arc, time::Instant};

use foundationdb::Database;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{config::Config, http::Token, status::DaemonStatus};

/// The most commands that wait; the next one is refused.
const WAITING: usize = 16;

/// Where the answer to an order goes.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// The commands to a running daemon.
#[derive(Debug)]
pub(crate) enum Order {
    /// Reload the configuration.
    Reload(Reply<Result<Reloaded, Refused>>),
    /// Hold back the takes of a queue in this daemon, or let them go on.
    PauseHere {
        /// A configured queue.
        queue: String,
        /// Whether it is to be paused.
        paused: bool,
        /// An error says which queue there is not.
        reply: Reply<Result<(), Refused>>,
    },
    /// Log the whole state.
    Report,
}

/// An order, and when it was given.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) order: Order,
    pub(crate) at: Instant,
}

impl Order {
    /// Tells who gave it that it is not carried out.
    pub(crate) fn refuse(self, why: &str) {
        let refused = Err(Refused(why.to_owned()));
        // The caller may have stopped waiting.
        match self {
            Self::Reload(reply) => drop(reply.send(refused.map(|()| Reloaded::default()))),
            Self::PauseHere { reply, .. } => drop(reply.send(refused)),
            Self::Report => {}
        }
    }

    /// Reloads the configuration, without waiting for the result.
    pub(crate) fn reload() -> Self {
        Self::Reload(oneshot::channel().0)
    }
}

/// A new configuration is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Reloaded {
    /// The keys that changed, as in `queues.mail.consumers`.
    pub(crate) changed: Vec<String>,
    /// Queues some of whose consumers still finish items under the settings of before.
    pub(crate) finishing: Vec<String>,
    /// Queues that were removed and have items: this daemon does not process them any more.
    pub(crate) left: Vec<Left>,
}

/// A queue that the configuration does not have any more.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Left {
    pub(crate) queue: String,
    /// Ready and waiting items.
    pub(crate) items: u64,
}

/// An order changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// Gives orders.
#[derive(Debug, Clone)]
pub(crate) struct Control(mpsc::Sender<Given>);

impl Control {
    /// The two ends.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Given>) {
        let (sender, orders) = mpsc::channel(WAITING);
        (Self(sender), orders)
    }

    /// Reloads the configuration, and waits for the result.
    pub(crate) async fn reload(&self) -> Result<Reloaded, Refused> {
        let (reply, answer) = oneshot::channel();
        self.give(Order::Reload(reply))?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Holds back the takes of a queue in this daemon, or lets them go on.
    pub(crate) async fn pause_locally(&self, queue: &str, paused: bool) -> Result<(), Refused> {
        let (reply, answer) = oneshot::channel();
        self.give(Order::PauseHere { queue: queue.to_owned(), paused, reply })?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    fn give(&self, order: Order) -> Result<(), Refused> {
        self.0.try_send(Given { order, at: Instant::now() }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Refused("the daemon is busy with other orders; try again in a moment".to_owned())
            }
            mpsc::error::TrySendError::Closed(_) => stopping(),
        })
    }
}

fn stopping() -> Refused {
    Refused("the daemon is stopping".to_owned())
}

/// The configuration in force, where it is changed.
pub(crate) struct InForce {
    config: watch::Sender<Arc<Config>>,
    token: watch::Sender<Option<Token>>,
    /// The secret of the last start or reload; the one in force may be newer.
    loaded: Option<Token>,
}

impl InForce {
    /// With the first one.
    pub(crate) fn new(config: Config, token: Option<Token>) -> Self {
        let loaded = token.clone();
        Self { config: watch::Sender::new(Arc::new(config)), token: watch::Sender::new(token), loaded }
    }

    /// As it is now.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// Follows it.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// The secret that clients have to know; who finds another one in its file puts it here.
    pub(crate) fn token(&self) -> watch::Sender<Option<Token>> {
        self.token.clone()
    }

    /// Whether this secret is another than that of the last start or reload.
    pub(crate) fn is_other_token(&self, token: Option<&Token>) -> bool {
        self.loaded.as_ref() != token
    }

    /// Another is in force, and with it the secret in its file.
    pub(crate) fn take_up(&mut self, config: Config, token: Option<Token>) {
        self.loaded.clone_from(&token);
        self.token.send_replace(token);
        self.config.send_replace(Arc::new(config));
    }
}

/// What those need who show the daemon and hand on orders.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) control: Control,
    pub(crate) status: Arc<DaemonStatus>,
    pub(crate) db: Arc<Database>,
    /// The configuration in force.
    pub(crate) config: watch::Receiver<Arc<Config>>,
    /// The secret that clients have to know, if there is one.
    pub(crate) token: watch::Sender<Option<Token>>,
}
