//! Database paths: `embedded:DIR`, or the cluster file of a real cluster.

use std::path::Path;

/// The prefix of an embedded database's path; its directory follows.
pub const SCHEME: &str = "embedded:";

/// The directory of an `embedded:` path; `None` for a cluster file.
#[must_use]
pub fn directory(url: &str) -> Option<&Path> {
    url.strip_prefix(SCHEME).map(Path::new)
}

#[cfg(feature = "testing")]
mod faults {
    use std::sync::Arc;

    use crate::engine::Engine;
    use crate::engine::faults::{Faults, Gate};
    use crate::link::Link;

    /// This process does not host the database for which faults were requested.
    #[derive(Debug, thiserror::Error)]
    #[error(
        "this process hosts no embedded database at {url}; be the first to open it before installing faults"
    )]
    pub struct NotOpen {
        url: String,
    }

    impl Faults {
        /// Installs this plan of faults for the open database at `url` (`embedded:DIR`).
        pub fn install(self, url: &str) -> Result<(), NotOpen> {
            set(url, Some(self))
        }

        /// Removes the plan of faults of the open database at `url`.
        pub fn remove(url: &str) -> Result<(), NotOpen> {
            set(url, None)
        }
    }

    impl Gate {
        /// Closes a gate before all commits of the open database at `url` (`embedded:DIR`).
        pub fn close(url: &str) -> Result<Gate, NotOpen> {
            hosted(url).map(Gate::of)
        }
    }

    fn set(url: &str, faults: Option<Faults>) -> Result<(), NotOpen> {
        hosted(url)?.set_faults(faults);
        Ok(())
    }

    fn hosted(url: &str) -> Result<Arc<Engine>, NotOpen> {
        let engine = super::directory(url).and_then(Link::hosted);
        engine.ok_or_else(|| NotOpen { url: url.to_owned() })
    }
}
