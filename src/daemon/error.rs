//! Why a daemon could not run, or not end well.

use foundationdb::FdbError;

use crate::{
    base::exit::Exit,
    config::ConfigError,
    database::{NoAnswer, OpenError},
    http::HttpError,
    lifecycle::RunError,
};

/// A daemon could not run, or not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database does not answer.
    #[error("the first read of the database failed")]
    FirstRead(#[source] FdbError),
    /// The database has not answered in the time that `--timeout` allows.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The process may open too few files.
    #[error(
        "cannot run: the process may have {limit} files open, and needs {least} at least; raise the limit (LimitNOFILE= in the unit, ulimit -n)"
    )]
    OpenFiles {
        /// The limit.
        limit: u64,
        /// The least that is needed.
        least: u64,
    },
    /// The threads of handlers or consumers cannot be started.
    #[error("cannot start the threads of handlers and consumers")]
    Pool(#[source] std::io::Error),
    /// HTTP cannot be served.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// Items failed for good, which was to be an error.
    #[error("items became dead letters or were lost: {items}; kvqueue dead list shows why")]
    Dead {
        /// Their number.
        items: u64,
    },
    /// The directory of its database was removed or moved away.
    #[error(transparent)]
    Gone(RunError),
    /// It failed while running.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl DaemonError {
    /// The exit code that tells it to scripts.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) => Exit::Config,
            Self::Dead { .. } => Exit::Data,
            Self::Gone(_) => Exit::Gone,
            Self::Open(_) | Self::FirstRead(_) | Self::NoAnswer(_) => Exit::Unavailable,
            Self::Run(RunError::ConsumersFailed { .. } | RunError::SupervisorDied | RunError::TaskFailed) => {
                Exit::Internal
            }
            Self::OpenFiles { .. } | Self::Pool(_) | Self::Http(_) | Self::Run(_) => Exit::Failed,
        }
    }
}
