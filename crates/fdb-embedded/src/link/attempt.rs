//! One attempt to become the host or a guest of a directory.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::address::socket;
use super::guest::{ConnectError, Guest};
use super::host::Host;
#[cfg(feature = "testing")]
use crate::engine::faults::VARIABLE;
use crate::engine::{Engine, OpenError, StorageError};
use crate::error::Code;

/// The delay before the first retries, while a host starts or stops.
pub(super) const FIRST_RETRY_DELAY: Duration = Duration::from_millis(5);

/// The role that an attempt has gained.
pub(super) enum NewRole {
    Host { engine: Arc<Engine>, host: Host },
    Guest(Arc<Guest>),
}

/// Whether and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// Soon: a host starts or stops, or a resource is short.
    Soon,
    /// When the stopped host continues.
    WhenHostResumes,
    /// When the disk works again.
    Later,
    /// Not without a change from outside.
    Never,
}

/// Why an attempt failed.
pub(super) struct AttemptError {
    pub(super) error: OpenError,
    pub(super) retry: RetryPolicy,
}

impl From<OpenError> for AttemptError {
    fn from(error: OpenError) -> AttemptError {
        let retry = match &error {
            // The process that has the lock does not listen yet, or any more.
            OpenError::Held { .. } => RetryPolicy::Soon,
            OpenError::Io { source, .. }
            | OpenError::Storage { source: StorageError::Unopened(source), .. }
                if is_shortage(source) =>
            {
                RetryPolicy::Soon
            }
            OpenError::Io { .. } => RetryPolicy::Later,
            OpenError::Storage { source, .. } if source.code() == Code::IO_ERROR => RetryPolicy::Later,
            _ => RetryPolicy::Never,
        };
        AttemptError { error, retry }
    }
}

/// True if a resource of the process or the system is short, such as descriptors.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// Tries once to become the host or a guest. Waits up to `patience` for the host's answer.
pub(super) fn attempt(path: &Path, patience: Duration) -> Result<NewRole, AttemptError> {
    let held = match Engine::open(path) {
        Ok(engine) => {
            let engine = Arc::new(engine);
            // The canonical path stays valid if this process changes its working directory.
            let host = path.canonicalize().and_then(|path| Host::listen(&path, &engine));
            let host = host.map_err(|source| OpenError::Io { path: socket(path), source })?;
            return Ok(NewRole::Host { engine, host });
        }
        Err(held @ OpenError::Held { .. }) => held,
        Err(error) => return Err(error.into()),
    };
    match Guest::connect(path, patience) {
        Ok(guest) => {
            #[cfg(feature = "testing")]
            if std::env::var_os(VARIABLE).is_some() {
                crate::reports::report(&format!(
                    "{VARIABLE} has no effect on {}: another process hosts it",
                    path.display()
                ));
            }
            Ok(NewRole::Guest(guest))
        }
        Err(ConnectError::Absent) => Err(held.into()),
        Err(error) => {
            let retry = match error {
                ConnectError::Silent => RetryPolicy::WhenHostResumes,
                ConnectError::Io(_) => RetryPolicy::Soon,
                _ => RetryPolicy::Never,
            };
            let error = OpenError::Host { path: path.to_path_buf(), reason: error.to_string() };
            Err(AttemptError { error, retry })
        }
    }
}
