//! The owner of a database directory: why this process may not use it, and the fix.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::{
    fs::{Access, access},
    io::Errno,
    process::geteuid,
};

use crate::base::users::name_or_number;

/// Why this process may not open a directory, and the fix. `None` if its owner is not the reason.
pub(crate) fn obstacle(directory: &Path) -> Option<String> {
    let there = directory.ancestors().find(|above| above.exists())?;
    if access(there, Access::WRITE_OK) == Err(Errno::ROFS) {
        return Some(format!(
            "{there} is on a file system that this process cannot write to; under systemd, add ReadWritePaths={there} with `systemctl edit`",
            there = there.display()
        ));
    }
    another_users(directory).or_else(|| foreign_file(directory).map(|(text, mend)| format!("{text}: {mend}")))
}

/// The text for a directory of another user than this process's.
pub(crate) fn another_users(directory: &Path) -> Option<String> {
    let (owner, me) = (fs::metadata(directory).ok()?.uid(), geteuid().as_raw());
    (owner != me).then(|| {
        let owner = name_or_number(owner);
        format!(
            "{} belongs to {owner}, and this is {}: run commands on it as its user, as in runuser -u {owner} -- kvqueue list",
            directory.display(),
            name_or_number(me)
        )
    })
}

/// The text for a file of another user than its directory's, as after a restore by root, with the fix.
pub(crate) fn foreign_file(directory: &Path) -> Option<(String, String)> {
    let owner = fs::metadata(directory).ok()?.uid();
    let mut entries = fs::read_dir(directory).ok()?.flatten();
    let uid = |entry: &fs::DirEntry| Some(entry.metadata().ok()?.uid()).filter(|uid| *uid != owner);
    let (file, uid) = entries.find_map(|entry| Some((entry.path(), uid(&entry)?)))?;
    let owner = name_or_number(owner);
    Some((
        format!("{} belongs to {}, and its directory to {owner}", file.display(), name_or_number(uid)),
        format!("stop what uses it, and run chown -R {owner}: {}", directory.display()),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn a_foreign_owner_is_reported_with_the_fixing_command() {
        let directory = tempfile::tempdir().unwrap();
        let (path, lock) = (directory.path(), directory.path().join("lock"));
        fs::write(&lock, "").unwrap();
        assert_eq!(obstacle(path), None);
        assert_eq!(obstacle(&path.join("not/there")), None);
        // Only root can give files away.
        if chown(&lock, Some(12_345), None).is_err() {
            return;
        }
        let me = name_or_number(geteuid().as_raw());
        let text = obstacle(path).unwrap();
        assert!(text.contains(&format!("lock belongs to 12345, and its directory to {me}")), "{text}");
        assert!(text.ends_with(&format!("chown -R {me}: {}", path.display())), "{text}");
        chown(path, Some(12_345), None).unwrap();
        let text = obstacle(path).unwrap();
        assert!(text.contains(&format!("belongs to 12345, and this is {me}")), "{text}");
        assert!(text.ends_with("runuser -u 12345 -- kvqueue list"), "{text}");
        // Several of its own are one user's.
        assert_eq!(foreign_file(path), None);
    }
}
