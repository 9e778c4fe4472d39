//! Why a database accepts no more data, and the fix: the free space of its disk and the limit, for people.

use std::path::Path;

use fdb_embedded::space::{Origin, Space};

use crate::config::{Config, MinFreeSpace};

/// A disk with less free space than this may be full, as far as a process can tell that does not host the database: commits that wait
/// for a checkpoint need some of it.
const NEARLY_FULL: u64 = 64 << 20;

/// Why a database has refused to store more (error 1042), and the fix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its disk has too little space.
    Space(String),
    /// Too much waits to be written; that passes.
    Busy(String),
}

impl Refused {
    /// The space of the database at `url`.
    pub(crate) fn why(url: &str) -> Self {
        let Some(directory) = fdb_embedded::embedded_directory(url) else {
            let text =
                "the cluster accepts no more data at the moment; try again, and see `fdbcli --exec status`";
            return Self::Busy(text.to_owned());
        };
        match Space::known(&directory) {
            Ok(space) => Self::judge(&directory, space),
            Err(error) => Self::Space(format!(
                "{} accepts no more data, and its free space is unknown: {error}; check that directory and its disk",
                directory.display(),
            )),
        }
    }

    /// The host knows whether it refuses for lack of space. Other processes decide by the free space.
    fn judge(directory: &Path, space: Space) -> Self {
        let is_full = space.is_full || space.refuses.unwrap_or(space.free < NEARLY_FULL);
        match refusal(directory, &Space { is_full, ..space }) {
            Some(refusal) => Self::Space(refusal),
            None => Self::Busy(format!(
                "{} accepts no more data at the moment ({}): too much waits to be written, or a quota is used up; try again",
                directory.display(),
                figures(&space),
            )),
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Space(text) | Self::Busy(text) => text,
        }
    }
}

/// How to make space on the disk of a database.
pub(crate) const MAKE_SPACE: &str = "free some space, let consumers empty its queues (`kvqueue resume` if they are paused), or delete \
     dead letters (`kvqueue dead purge`)";

/// Why pushes are refused for lack of disk space, and the fix. `None` if they are not refused.
pub(crate) fn refusal(directory: &Path, space: &Space) -> Option<String> {
    let what = match (space.is_low(), space.is_full) {
        (true, _) => "has too little free space",
        (false, true) if space.free > space.min_free => {
            "is full but for 4 to 16 MiB, which the database keeps for finishing and deleting items"
        }
        (false, true) => "is full",
        (false, false) => return None,
    };
    let (directory, figures) = (directory.display(), figures(space));
    if space.is_read_only {
        return Some(format!(
            "the disk of {directory} is full ({figures}) and the database has no reserve, so it can only be read; free some space"
        ));
    }
    if space.min_free > space.total {
        let total = size(space.total);
        return Some(format!(
            "the disk of {directory} is smaller than its limit of free space ({figures}, the disk has {total}); lower min-free-space"
        ));
    }
    Some(format!("the disk of {directory} {what} ({figures}); {MAKE_SPACE}"))
}

fn figures(&Space { free, min_free, own, .. }: &Space) -> String {
    let own = if own == 0 { String::new() } else { format!(", {} reusable in the database", size(own)) };
    format!("{} free{own}, min-free-space is {}", size(free), size(min_free))
}

/// The limit of free space for people.
pub(crate) fn limit(min_free: u64) -> String {
    match min_free {
        0 => "no min-free-space".to_owned(),
        limit => format!("min-free-space {}", size(limit)),
    }
}

/// Where the limit of free space of a database is from, for people.
pub(crate) fn origin(space: &Space, config: &Config) -> &'static str {
    match space.origin {
        Origin::Variable => "from FDB_EMBEDDED_MIN_FREE_SPACE",
        Origin::File if config.min_free_space == MinFreeSpace::Bytes(space.min_free) => {
            "from the configuration"
        }
        Origin::File => "from the file min-free-space in the database's directory",
        Origin::Default => "the default",
        Origin::BadVariable => "the default, since FDB_EMBEDDED_MIN_FREE_SPACE is no size",
        Origin::BadFile => {
            "the default, since the file min-free-space in the database's directory is damaged"
        }
    }
}

/// Why the limit of free space in a configuration would refuse all pushes; none if it would not.
pub(crate) fn limit_beyond_disk(config: &Config) -> Option<String> {
    let MinFreeSpace::Bytes(limit) = config.min_free_space else { return None };
    let directory = std::path::absolute(fdb_embedded::embedded_directory(&config.database)?).ok()?;
    // A directory that is not there yet will be made on the file system of the one above it.
    let total = directory.ancestors().find_map(|above| Space::of(above).ok())?.total;
    (limit > total).then(|| {
        let (limit, total) = (size(limit), size(total));
        format!(
            "min-free-space is {limit}, and the disk of {} has {total}: all pushes would be refused; lower it, or leave the key out",
            directory.display()
        )
    })
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of 1 GiB.
    fn space(free: u64, min_free: u64, refuses: Option<bool>) -> Space {
        let (total, origin) = (1 << 30, Origin::File);
        Space { free, total, min_free, origin, own: 0, is_full: false, refuses, is_read_only: false }
    }

    #[test]
    fn a_refusal_is_blamed_on_space_only_if_space_is_short() {
        let judge = |space| Refused::judge(Path::new("/d"), space);
        // Its host refuses for want of space, or does not.
        assert!(
            matches!(judge(space(9 << 20, 0, Some(true))), Refused::Space(text) if text.contains("is full"))
        );
        assert!(matches!(judge(space(9 << 20, 0, Some(false))), Refused::Busy(_)));
        // Another process hosts it.
        assert!(matches!(judge(space(9 << 20, 0, None)), Refused::Space(_)));
        assert!(matches!(judge(space(900 << 20, 0, None)), Refused::Busy(_)));
        assert!(matches!(judge(space(500 << 20, 600 << 20, None)), Refused::Space(_)));
        assert!(matches!(Refused::why("/etc/foundationdb/fdb.cluster"), Refused::Busy(_)));
    }

    #[test]
    fn a_configured_limit_beyond_the_disk_is_found_before_the_directory_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let database = format!("embedded:{}/not/made", directory.path().display());
        let problem = |min_free_space| {
            limit_beyond_disk(&Config { database: database.clone(), min_free_space, ..Config::default() })
        };
        assert_eq!([MinFreeSpace::Auto, MinFreeSpace::Bytes(1)].map(problem), [None, None]);
        let text = problem(MinFreeSpace::Bytes(u64::MAX)).unwrap();
        assert!(text.contains("all pushes would be refused; lower it"), "{text}");
    }

    #[test]
    fn the_advice_names_paused_queues_and_dead_letters_and_a_limit_beyond_the_disk() {
        let why = refusal(Path::new("/d"), &space(0, 600 << 20, None)).unwrap();
        for part in ["free some space", "kvqueue resume", "kvqueue dead purge"] {
            assert!(why.contains(part), "{why}");
        }
        let why = refusal(Path::new("/d"), &space(900 << 20, 2 << 30, None)).unwrap();
        assert!(why.ends_with("the disk has 1.0 GiB); lower min-free-space"), "{why}");
    }
}
