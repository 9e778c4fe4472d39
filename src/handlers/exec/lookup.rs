//! Whether a command could be started, found without starting it.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// The longest first line of a script that is read.
const FIRST_LINE: u64 = 256;

/// Linux starts a script whose interpreter is a script, and so on, this often.
const MAX_SCRIPTS: u8 = 4;

/// Returns why this user cannot start `program` from this working directory and `PATH`; `None` if
/// no reason is found.
pub(super) fn problem(program: &str) -> Option<String> {
    let why = look(program, env::var_os("PATH").as_deref())?;
    Some(format!("its command cannot be started: {why}"))
}

fn look(program: &str, path: Option<&OsStr>) -> Option<String> {
    if program.contains('/') {
        let path = Path::new(program);
        let why = unusable(path, MAX_SCRIPTS)?;
        return Some(if path.exists() { why } else { missing(program, why) });
    }
    let directories: Vec<PathBuf> = env::split_paths(path.unwrap_or(OsStr::new(""))).collect();
    let found: Vec<_> = directories.iter().map(|it| it.join(program)).filter(|it| it.is_file()).collect();
    match found.iter().find(|it| access(*it, Access::EXEC_OK).is_ok()).or(found.first()) {
        Some(path) => unusable(path, MAX_SCRIPTS),
        None => Some(missing(program, format!("{program:?} is in no directory of PATH"))),
    }
}

/// The text for a program that does not exist.
fn missing(program: &str, why: String) -> String {
    match program.contains(char::is_whitespace) {
        true => {
            why + "; write the program and each argument as a text of its own, as in [\"sh\", \"-c\", ...]"
        }
        false => why,
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
        Ok(_) => unusable_script(path, &shown, scripts),
    }
}

/// Why a file that is executable cannot be run as a script, if it is one.
fn unusable_script(path: &Path, shown: &str, scripts: u8) -> Option<String> {
    let line = first_line(path).ok()?;
    // A program of some format. The kernel knows which ones it can run.
    if line.contains(&0) {
        return None;
    }
    if line.starts_with(b"#!") && line.ends_with(b"\r") {
        return Some(format!(
            "the first line of {shown} ends with a carriage return; save it with the line ends of Unix"
        ));
    }
    let Some(interpreter) = interpreter(&line) else {
        return Some(format!(
            "the first line of {shown} does not name an interpreter; begin it with one, as in #!/bin/sh"
        ));
    };
    let why = match scripts.checked_sub(1) {
        Some(scripts) => unusable(&interpreter, scripts)?,
        None => "too many scripts are each other's interpreters".to_owned(),
    };
    Some(format!("the interpreter of {shown} cannot be started: {why}"))
}

/// The first line of a file, without its end, as far as the kernel reads it.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(File::open(path)?).take(FIRST_LINE).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}

/// The interpreter that a script's first line names.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let mut words = line.strip_prefix(b"#!")?.split(|byte| matches!(byte, b' ' | b'\t'));
    words.find(|word| !word.is_empty()).map(|name| OsStr::from_bytes(name).into())
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_program_that_cannot_be_started_is_reported_with_the_reason() {
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
        let bare = file("bare", "echo hello\n", 0o755);
        let empty = file("empty", "", 0o755);
        let unnamed = file("unnamed", "#! \n", 0o755);
        let windows = file("windows", "#!/bin/sh\r\necho\r\n", 0o755);
        let binary = file("binary", "\u{7f}MINE\u{1}\u{0}\n", 0o755);
        let nothing = directory.path().join("nothing").display().to_string();
        assert_eq!(problem("good"), None);
        assert_eq!(problem("/bin/sh"), None);
        assert_eq!(problem(&binary), None);
        insta::assert_snapshot!(problem("plain").unwrap(), @"DIR/plain is not executable for this user");
        insta::assert_snapshot!(problem("absent").unwrap(), @r#""absent" is in no directory of PATH"#);
        insta::assert_snapshot!(problem(&nothing).unwrap(), @"DIR/nothing: No such file or directory (os error 2)");
        insta::assert_snapshot!(problem(&bare).unwrap(), @"the first line of DIR/bare does not name an interpreter; begin it with one, as in #!/bin/sh");
        for alike in [&empty, &unnamed] {
            assert!(problem(alike).unwrap().contains("does not name an interpreter"), "{alike}");
        }
        insta::assert_snapshot!(problem(&windows).unwrap(), @"the first line of DIR/windows ends with a carriage return; save it with the line ends of Unix");
        insta::assert_snapshot!(problem("sh -c true").unwrap(), @r#""sh -c true" is in no directory of PATH; write the program and each argument as a text of its own, as in ["sh", "-c", ...]"#);
        insta::assert_snapshot!(problem("/bin/sh -c true").unwrap(), @r#"/bin/sh -c true: No such file or directory (os error 2); write the program and each argument as a text of its own, as in ["sh", "-c", ...]"#);
        insta::assert_snapshot!(problem(&orphan).unwrap(), @"the interpreter of DIR/orphan cannot be started: /nowhere/python3: No such file or directory (os error 2)");
        assert!(problem(&own).unwrap().ends_with("too many scripts are each other's interpreters"));
        insta::assert_snapshot!(problem("/usr/..").unwrap(), @"/usr/.. is not a file");
    }
}
