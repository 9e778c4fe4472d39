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
