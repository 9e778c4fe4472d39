//! The least number of files that a daemon has to be allowed to open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::DaemonError;

/// With one queue and few commands at a time it gets by with this number. HTTP asks for more as it needs them.
const LEAST: u64 = 64;

/// Raises the limit, if it is lower than that and the system allows. Otherwise parts of the daemon would fail one by one, some of them far from
/// the reason.
pub(super) fn allow_least() -> Result<(), DaemonError> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(limit) = current.filter(|current| *current < LEAST) else { return Ok(()) };
    let is_allowed = maximum.is_none_or(|maximum| maximum >= LEAST);
    let raised = Rlimit { current: Some(LEAST), maximum };
    if is_allowed && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(());
    }
    Err(DaemonError::OpenFiles { limit, least: LEAST })
}
