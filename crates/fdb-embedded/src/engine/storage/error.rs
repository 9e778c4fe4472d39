//! Why storage could not be opened, read or written.

use std::io;

use checked_pages::{FORMAT, FailureSink, OLDEST_FORMAT};

use super::failure_latch::{Failure, FailureLatch};
use crate::error::Code;

/// The reason why storage could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file is damaged, or the operating system refused an operation.
    #[error("{0}")]
    Failed(Failure),
    /// The operating system refused to open the file.
    #[error("cannot open it: {0}")]
    Unopened(io::Error),
    /// Another process has locked the file.
    #[error("another process has locked it; stop that process, or use another directory")]
    Held,
    /// The flusher's thread could not be started.
    #[error("cannot start a thread: {0}; check the limits on processes and memory")]
    NoThread(io::Error),
    /// An error of redb whose cause is unknown.
    #[error("{0}")]
    Redb(#[from] redb::Error),
    /// redb panicked while it opened a file.
    #[error("the file is damaged: redb panicked on it; restore it from a copy")]
    Panicked,
    /// The file is not a database.
    #[error("it is not a database of this engine; use another directory")]
    Foreign,
    /// The file was written by another version of this engine.
    #[error(
        "it has format {found}, and this version reads {OLDEST_FORMAT} to {FORMAT}; open it with the version that wrote it, \
         or move it away to begin an empty database"
    )]
    Format {
        /// The format number found in the file.
        found: u32,
    },
}

impl StorageError {
    /// True if the disk was full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, StorageError::Failed(failure) if failure.is_full)
    }

    /// The error code that a client gets.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            StorageError::Failed(failure) => failure.code,
            StorageError::Redb(redb::Error::Corrupted(_))
            | StorageError::Panicked
            | StorageError::Foreign
            | StorageError::Format { .. } => Code::FILE_CORRUPT,
            StorageError::Held => Code::LOCK_FILE_FAILURE,
            StorageError::Redb(_) | StorageError::Unopened(_) | StorageError::NoThread(_) => Code::IO_ERROR,
        }
    }
}

/// The failure behind `error`, as the latch kept it.
pub fn failed(latch: &FailureLatch, error: &io::Error) -> StorageError {
    let unknown = || Failure { code: Code::IO_ERROR, message: error.to_string(), is_full: false };
    StorageError::Failed(latch.failure().cloned().unwrap_or_else(unknown))
}

pub fn io_failure(latch: &FailureLatch, operation: &str, source: &io::Error) -> StorageError {
    latch.io_error(operation, source);
    StorageError::Failed(latch.failure().cloned().expect("it has just failed"))
}

/// The failure that the latch kept, or else redb's error, which does not tell the cause.
pub fn with_cause(latch: &FailureLatch, error: redb::Error) -> StorageError {
    match latch.failure() {
        Some(failure) => StorageError::Failed(failure.clone()),
        None => StorageError::Redb(error),
    }
}
