//! Who may read and change what kvqueue uses.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use rustix::process::geteuid;

use super::findings::Findings;
use crate::{base::users, config::Config, database::owner, http::OTHERS};

const ABOUT: &str = "access";

/// The configuration must be nobody else's to write, the secret nobody else's to read; the database must be ours, or the
/// cluster file writable.
pub(super) fn look(file: Option<&Path>, config: &Config, findings: &mut Findings) {
    if let Some(file) = file {
        configuration(file, findings);
    }
    if let Some(file) = config.http.token_path(&config.database) {
        secret(&file, "http.token-file", findings);
    }
    if let Some(file) = &config.http.tls_key {
        secret(file, "http.tls-key", findings);
    }
    match fdb_embedded::embedded_directory(&config.database) {
        Some(directory) => owner(&directory, findings),
        None => cluster_file(Path::new(&config.database), findings),
    }
}

fn configuration(file: &Path, findings: &mut Findings) {
    // That it can be read is known: it has been.
    let Ok(metadata) = fs::metadata(file) else { return };
    let mode = metadata.permissions().mode() & 0o7777;
    let text = format!("{} has mode {mode:04o}", file.display());
    if mode & 0o022 == 0 {
        findings.fine(ABOUT, text);
    } else {
        let text = format!("{text}: others may write in it, and so choose what the daemon runs");
        findings.problem(ABOUT, text, format!("chmod go-w {}", file.display()));
    }
}

fn secret(file: &Path, setting: &str, findings: &mut Findings) {
    // Another finding reports a file that is missing.
    let Ok(metadata) = fs::metadata(file) else { return };
    let mode = metadata.permissions().mode() & 0o7777;
    let text = format!("{} has mode {mode:04o}", file.display());
    if mode & OTHERS == 0 {
        findings.fine(ABOUT, text);
    } else {
        let text =
            format!("{text}: other users of this machine may use it, and it has the secret of {setting}");
        findings.problem(ABOUT, text, format!("chmod o= {}, and change the secret", file.display()));
    }
}

fn owner(directory: &Path, findings: &mut Findings) {
    // One that is not there is another finding.
    if !directory.exists() {
        return;
    }
    if let Some((text, mend)) = owner::foreign_file(directory) {
        findings.problem(ABOUT, format!("{text}, whose programs cannot open it"), mend);
    }
    match owner::another_users(directory) {
        Some(text) => findings.note(ABOUT, text, "a directory is one user's"),
        None => {
            findings.fine(
                ABOUT,
                format!("the database belongs to this user, {}", users::name_or_number(geteuid().as_raw())),
            );
        }
    }
}

fn cluster_file(file: &Path, findings: &mut Findings) {
    // Opened and closed, which changes nothing.
    match OpenOptions::new().append(true).open(file) {
        Ok(_) => findings.fine(ABOUT, format!("{} can be read and written", file.display())),
        Err(error) if file.exists() => findings.note(
            ABOUT,
            format!("{} cannot be written: {error}", file.display()),
            "FoundationDB notes new coordinators there; let this user write in it and its directory",
        ),
        // The database's opening says so.
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_others_may_write_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kvqueue.toml");
        fs::write(&file, "").unwrap();
        for (mode, healthy) in [(0o600, true), (0o644, true), (0o664, false), (0o602, false)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let mut findings = Findings::default();
            configuration(&file, &mut findings);
            assert_eq!(findings.are_healthy(), healthy, "{mode:o}: {}", findings.lines());
        }
    }

    #[test]
    fn a_secret_that_others_may_read_is_a_problem() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, healthy) in [(0o600, true), (0o640, true), (0o644, false), (0o601, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            let mut findings = Findings::default();
            secret(file.path(), "http.token-file", &mut findings);
            assert_eq!(findings.are_healthy(), healthy, "{mode:o}: {}", findings.lines());
            let named = findings.lines().contains(&format!("{} has mode {mode:04o}", file.path().display()));
            assert!(named, "{}", findings.lines());
        }
    }
}
