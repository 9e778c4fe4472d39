//! The process's limit of open files, which connections need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of a connection: itself, and a handle by which a request finds out whether its client still waits.
const EACH: u64 = 2;

/// Files of the rest of the daemon.
const OTHERS: u64 = 256;

/// Raises the limit if it is too low for this many connections, as far as the system allows.
pub(super) fn allow(connections: usize) {
    let needed = EACH * u64::try_from(connections).unwrap_or(u64::MAX / EACH) + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < needed) else { return };
    let allowed = maximum.map_or(needed, |maximum| maximum.min(needed));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum }).is_err() || allowed < needed {
        tracing::warn!(
            event = "open_files_limited",
            limit = current.max(allowed),
            needed,
            "the limit of open files is too low for http.max-connections; further connections are refused"
        );
    }
}
