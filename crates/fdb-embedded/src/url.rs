//! What a database path means: `embedded:DIR`, or a cluster file of a real cluster.

use std::path::Path;

use crate::engine::Engine;
use crate::engine::faults::Faults;

const SCHEME: &str = "embedded:";

/// The directory of an `embedded:` path; `None` for a cluster file.
#[must_use]
pub fn directory(url: &str) -> Option<&Path> {
    url.strip_prefix(SCHEME).map(Path::new)
}

/// A plan of faults was to be installed where no embedded database is open.
#[derive(Debug, thiserror::Error)]
#[error("no embedded database is open at {url}; open it before installing faults")]
pub struct NotOpen {
    url: String,
}

impl Faults {
    /// Makes the commits of the open database at `url` (`embedded:DIR`) meet this plan, from now on.
    pub fn install(self, url: &str) -> Result<(), NotOpen> {
        set(url, Some(self))
    }

    /// Ends all faults of the open database at `url`.
    pub fn remove(url: &str) -> Result<(), NotOpen> {
        set(url, None)
    }
}

fn set(url: &str, faults: Option<Faults>) -> Result<(), NotOpen> {
    let engine = directory(url).and_then(Engine::find);
    engine.ok_or_else(|| NotOpen { url: url.to_owned() })?.set_faults(faults);
    Ok(())
}
