//! What HTTP needs of the running daemon.

use std::sync::Arc;

use foundationdb::Database;
use kvqueue_queue::VersionHistory;
use tokio::sync::watch;

use super::{Certificate, Token};
use crate::{config::Config, control::CommandSender, status::DaemonStatus};

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
