//! Database paths: `embedded:DIR`, or the cluster file of a real cluster.

use std::path::Path;

/// The prefix of an embedded database's path; its directory follows.
pub const SCHEME: &str = "embedded:";

/// The directory of an `embedded:` path; `None` for a cluster file.
#[must_use]
pub fn directory(url: &str) -> Option<&Path> {
    url.strip_prefix(SCHEME).map(Path::new)
}

/// What to write instead of `embedded://PATH`; `None` for other URLs. `embedded:` is followed by a
/// path, and one that begins with two slashes is absolute. In other URLs a host or a relative path
/// follows them. Three slashes begin an absolute path in both.
#[must_use]
pub fn instead_of_two_slashes(url: &str) -> Option<String> {
    let path = url.strip_prefix(SCHEME)?.strip_prefix("//").filter(|path| !path.starts_with('/'))?;
    Some(match path {
        "" => format!("{SCHEME}DIR"),
        _ if path.starts_with('.') => format!("{SCHEME}{path}"),
        _ => format!("{SCHEME}{path} or {SCHEME}/{path}"),
    })
}

#[cfg(feature = "testing")]
mod faults {
    use std::sync::Arc;

    use crate::engine::Engine;
    use crate::engine::faults::{Faults, Gate};
    use crate::engine::holdings::Holdings;
    use crate::link::Link;

    /// This process does not host the database for which faults were requested.
    #[derive(Debug, thiserror::Error)]
    #[error(
        "this process hosts no embedded database at {url}; be the first to open it before installing faults or looking at it"
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

    impl Holdings {
        /// What this process holds as the host of the open database at `url` (`embedded:DIR`). The engine
        /// first does all work that it leaves for idle times; what transactions in flight read becomes too
        /// old.
        pub fn at_rest(url: &str) -> Result<Holdings, NotOpen> {
            let held = super::directory(url).and_then(Link::holdings_at_rest);
            held.ok_or_else(|| NotOpen { url: url.to_owned() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slashes_are_not_taken_for_the_root_directory() {
        for (url, instead) in [
            ("embedded://./data", Some("embedded:./data")),
            ("embedded://../data", Some("embedded:../data")),
            ("embedded://data/a", Some("embedded:data/a or embedded:/data/a")),
            ("embedded://", Some("embedded:DIR")),
            ("embedded:///data", None),
            ("embedded:/data", None),
            ("embedded:data//a", None),
            ("redis://data", None),
        ] {
            assert_eq!(instead_of_two_slashes(url).as_deref(), instead, "{url}");
        }
    }
}
