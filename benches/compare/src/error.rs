//! What can go wrong with one system in one cell.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a system could not be started, or why a cell of it gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// A server or program did not come up.
    #[error("{program} did not answer within {}s; its log is {log}", limit.as_secs(), log = log.display())]
    NotUp {
        /// The program.
        program: String,
        /// How long it had.
        limit: Duration,
        /// Where its output went.
        log: PathBuf,
    },
    /// A program ended when it should have gone on, or badly.
    #[error("{program} ended with {status}: {said}")]
    Ended {
        /// The program.
        program: String,
        /// Its exit status.
        status: String,
        /// The end of what it wrote.
        said: String,
    },
    /// A cell took longer than it may.
    #[error("took longer than {}s and was ended", .0.as_secs())]
    TooLong(Duration),
    /// The harness is being stopped.
    #[error("stopped")]
    Stopped,
    /// Redis refused a command, or went away.
    #[error("redis: {0}")]
    Redis(#[from] redis::RedisError),
    /// PostgreSQL refused a statement, or went away.
    #[error("postgres: {0}{detail}", detail = detail(.0))]
    Postgres(#[from] postgres::Error),
    /// An answer that the protocol does not have at this place.
    #[error("{peer} answered {answer:?}, expected {expected}")]
    Unexpected {
        /// Who.
        peer: &'static str,
        /// What it said.
        answer: String,
        /// What it should have said.
        expected: &'static str,
    },
    /// A payload that nobody pushed.
    #[error("took a payload that was never pushed: {0:?}")]
    Foreign(String),
    /// The system cannot be used on this machine.
    #[error("{0}")]
    Unusable(String),
}

/// The server's own message: the crate's says only "db error".
fn detail(error: &postgres::Error) -> String {
    error.as_db_error().map(|db| format!(": {}", db.message())).unwrap_or_default()
}

impl Error {
    /// For `map_err`: an error of the operating system, with what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
