//! Whether a command could be started, found without starting it.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// The longest first line of a script that is read.
const FIRST_LINE: u64 = 256;

/// Linux starts a script whose interpreter is a script, and so on, this often.
const MAX_SCRIPTS: u8 = 4;

/// Why `program` cannot be started by this user, from this working directory and with this `PATH`; nothing if it can, as far as that can be seen.
pub(super) fn problem(program: &str) -> Option<String> {
    look(program, env::var_os("PATH").as_deref())
}

fn look(program: &str, path: Option<&OsStr>) -> Option<String> {
    if program.contains('/') {
        return unusable(Path::new(program), MAX_SCRIPTS);
    }
    let directories: Vec<PathBuf> = env::split_paths(path.unwrap_or(OsStr::new(""))).collect();
    let found: Vec<_> = directories.iter().map(|it| it.join(program)).filter(|it| it.is_file()).collect();
    match found.iter().find(|it| access(*it, Access::EXEC_OK).is_ok()).or(found.first()) {
        Some(path) => unusable(path, MAX_SCRIPTS),
        None => Some(format!("{program:?} is in no directory of PATH")),
    }
}

/// Why a file cannot be run; `scripts` interpreters may be scripts themselves.
fn unusable(path: &Path, scripts: u8) -> Option<String> {
    let shown = absolute(path);
    match path.metadata() {
        Err(error) => Some(format!("{shown}: {error}")),
        Ok(found) if !found.is_file() => Some(format!("{shown} is not a file")),
        Ok(_) if access(path, Access::EXEC_OK).is_err() => {
            Some(format!("{shown} is not executable for this user"))
        }
        Ok(_) => {
            let interpreter = interpreter(path)?;
            let why = match scripts.checked_sub(1) {
                Some(scripts) => unusable(&interpreter, scripts)?,
                None => "too many scripts are each other's interpreters".to_owned(),
            };
            Some(format!("the interpreter of {shown} cannot be started: {why}"))
        }
    }
}

/// What the first line of a script names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(File::open(path).ok()?).take(FIRST_LINE).read_until(b'\n', &mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.trim_ascii();
    let name = line.split(u8::is_ascii_whitespace).next().filter(|name| !name.is_empty())?;
    Some(OsStr::from_bytes(name).into())
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn what_cannot_be_started_is_told_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let problem = |program: &str| {
            let path = format!("/nowhere:{}", directory.path().display());
            let problem = look(program, Some(path.as_ref()));
            problem.map(|it| it.replace(&directory.path().display().to_string(), "DIR"))
        };
        file("good", "#!/bin/sh -e\n", 0o755);
        file("plain", "#!/bin/sh\n", 0o644);
        let orphan = file("orphan", "#! /nowhere/python3 -u\n", 0o755);
        let own = directory.path().join("own").display().to_string();
        file("own", &format!("#!{own}\n"), 0o755);
        let nothing = directory.path().join("nothing").display().to_string();
        assert_eq!(problem("good"), None);
        assert_eq!(problem("/bin/sh"), None);
        insta::assert_snapshot!(problem("plain").unwrap(), @"DIR/plain is not executable for this user");
        insta::assert_snapshot!(problem("absent").unwrap(), @r#""absent" is in no directory of PATH"#);
        insta::assert_snapshot!(problem(&nothing).unwrap(), @"DIR/nothing: No such file or directory (os error 2)");
        insta::assert_snapshot!(problem(&orphan).unwrap(), @"the interpreter of DIR/orphan cannot be started: /nowhere/python3: No such file or directory (os error 2)");
        assert!(problem(&own).unwrap().ends_with("too many scripts are each other's interpreters"));
        insta::assert_snapshot!(problem("/usr/..").unwrap(), @"/usr/.. is not a file");
    }
}
