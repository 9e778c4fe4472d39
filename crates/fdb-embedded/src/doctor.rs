//! Checks a database directory and says what it found, without changing anything in it.
//!
//! A directory that a process holds is looked at from outside only; one that nobody holds is read through: every page's
//! checksum, what is in the log, redb's structure, every row. Nobody can open it meanwhile.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::engine::examine::{self, ChecksumReport, ContentReport};
use crate::engine::{DATA_FILE, FIX_ORPHANED_LOG, LOG_FILE, LockHolder, StorageError, exists, probe_lock};
use crate::link;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Worth knowing; nothing is lost.
    Note,
    /// Something has to be done.
    Problem,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Fine => "fine",
            Verdict::Note => "note",
            Verdict::Problem => "PROBLEM",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What: `directory`, `lock`, `host`, `file`, `pages`, `log`, `structure`, `rows`, `versions`, `space`.
    pub about: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub advice: Option<Cow<'static, str>>,
}

/// The process that holds a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number; none if it has not written one into the file "lock".
    pub pid: Option<u32>,
    /// It is stopped, by a signal or a debugger, and does nothing until it is continued.
    pub is_stopped: bool,
}

impl Holder {
    fn of(pid: &str) -> Holder {
        let pid = pid.parse().ok();
        Holder { pid, is_stopped: pid.is_some_and(is_stopped) }
    }

    /// What an operator can do about a holder that does not answer.
    #[must_use]
    pub fn mend(&self) -> String {
        match self {
            Holder { pid: Some(pid), is_stopped: true } => {
                format!("process {pid} hosts it and is stopped: continue it with kill -CONT {pid}")
            }
            Holder { pid: Some(pid), .. } => {
                format!("process {pid} hosts it: look at its log and its load, and restart it if it is stuck")
            }
            Holder { pid: None, .. } => {
                "another process hosts it: check whether that is stopped or stuck".to_owned()
            }
        }
    }
}

/// The process that holds a directory, if any does.
#[must_use]
pub fn holder(path: &Path) -> Option<Holder> {
    match probe_lock(path) {
        Ok(LockHolder::Process(pid)) => Some(Holder::of(&pid)),
        _ => None,
    }
}

/// Whether the system says that a process is stopped, or that a debugger has stopped it.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may have any character.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['T', 't']))
}

/// How long [`check`] waits for the process that hosts the directory.
const PATIENCE: Duration = Duration::from_secs(5);

/// All that was found, in the order in which it was looked at.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
}

const RESTORE: &str = "restore the directory from a copy: what is damaged cannot be read";
const SAVE: &str = "it has been removed, and the data ends with that process: first read through it what is to be kept, or copy \
                    the file from /proc/PID/fd";
const CHMOD: &str = "chmod 700 the directory: whoever can write in it can change the database";

impl Report {
    /// True if nothing has to be done.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != Verdict::Problem)
    }

    fn tell(
        &mut self,
        about: &'static str,
        verdict: Verdict,
        text: impl Into<String>,
        advice: Option<&'static str>,
    ) {
        let advice = advice.map(Cow::Borrowed);
        self.findings.push(Finding { about, verdict, text: text.into(), advice });
    }

    fn fine(&mut self, about: &'static str, text: impl Into<String>) {
        self.tell(about, Verdict::Fine, text, None);
    }

    fn note(&mut self, about: &'static str, text: impl Into<String>, advice: Option<&'static str>) {
        self.tell(about, Verdict::Note, text, advice);
    }

    fn problem(&mut self, about: &'static str, text: impl Into<String>, advice: &'static str) {
        self.tell(about, Verdict::Problem, text, Some(advice));
    }
}

/// Checks the directory of an `embedded:` database.
#[must_use]
pub fn check(path: &Path) -> Report {
    check_rows(path, PATIENCE, &mut |_, _| {})
}

/// Does the same. It waits for so long until the process that hosts the directory answers. Of a directory that nobody holds, `visit` is
/// shown every key and value in order; they are all, if there is a finding `rows`.
#[must_use]
pub fn check_rows(path: &Path, patience: Duration, visit: &mut dyn FnMut(&[u8], &[u8])) -> Report {
    let mut report = Report::default();
    let holding = check_directory(path, &mut report).and_then(|()| check_lock(path, &mut report));
    if let Some(holding) = holding {
        if let LockHolder::Process(pid) = &holding {
            check_host(path, pid, patience, &mut report);
        }
        let data = path.join(DATA_FILE);
        if let Some(file) = check_file(&data, &holding, &mut report) {
            match holding {
                LockHolder::Process(_) => report.note(
                    "pages",
                    "not read: the file changes while it is held",
                    Some("stop the process that holds it to have everything checked"),
                ),
                LockHolder::Nobody(_lock) => check_contents(&file, &data, visit, &mut report),
            }
        }
    }
    report
}

fn check_directory(path: &Path, report: &mut Report) -> Option<()> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            report.problem("directory", "it is not a directory", "name the directory, not a file in it");
            return None;
        }
        Err(error) => {
            report.problem(
                "directory",
                error.to_string(),
                "check the path, and whether this user may read it",
            );
            return None;
        }
    };
    let mode = metadata.permissions().mode() & 0o7777;
    match mode & 0o077 {
        0 => report.fine("directory", format!("mode {mode:04o}, for its user alone")),
        open if open & 0o022 != 0 => {
            report.problem("directory", format!("mode {mode:04o}: other users may write in it"), CHMOD);
        }
        _ => report.note("directory", format!("mode {mode:04o}: other users may look into it"), Some(CHMOD)),
    }
    Some(())
}

fn check_lock(path: &Path, report: &mut Report) -> Option<LockHolder> {
    match probe_lock(path) {
        Ok(holding) => {
            match &holding {
                LockHolder::Nobody(_) => report.fine("lock", "nobody holds it"),
                LockHolder::Process(pid) => {
                    report.fine("lock", format!("held by the process with pid {pid}"));
                }
            }
            Some(holding)
        }
        Err(error) => {
            report.problem("lock", error.to_string(), "check whether this user may read the file \"lock\"");
            None
        }
    }
}

/// Whether the process that holds the directory answers. One that does not listen may be about to.
fn check_host(path: &Path, pid: &str, patience: Duration, report: &mut Report) {
    let is_silent = Holder::of(pid).is_stopped || link::is_silent(path, patience);
    if is_silent {
        let text = format!("the process with pid {pid} hosts the database and does not answer");
        let advice = Some(Holder::of(pid).mend().into());
        report.findings.push(Finding { about: "host", verdict: Verdict::Problem, text, advice });
    }
}

fn check_file(data: &PathBuf, holding: &LockHolder, report: &mut Report) -> Option<File> {
    // Before the file itself is looked for: a file that is being made gets its name when it is whole.
    let is_being_made = data.with_extension("new").exists();
    // What cannot even be looked at says why when it is opened.
    if matches!(exists(data), Ok(false)) {
        match holding {
            LockHolder::Nobody(_) if matches!(exists(&data.with_file_name(LOG_FILE)), Ok(true)) => {
                report.problem(
                    "file",
                    format!("{} is missing, and its {LOG_FILE} is there", data.display()),
                    FIX_ORPHANED_LOG,
                );
            }
            LockHolder::Process(_) if !is_being_made => {
                let text =
                    format!("there is no {DATA_FILE}, but the process that holds the directory works on one");
                report.problem("file", text, SAVE);
            }
            _ => {
                report.note(
                    "file",
                    format!("there is no {DATA_FILE}: nothing has been stored here yet"),
                    None,
                );
            }
        }
        return None;
    }
    let open = || {
        let file = File::open(data)?;
        Ok::<_, std::io::Error>((file.metadata()?.len(), examine::check_first_page(&file, data)?, file))
    };
    match open() {
        Ok((len, Ok(format), file)) => {
            report.fine("file", format!("{DATA_FILE}, {len} bytes, format {format}"));
            return Some(file);
        }
        Ok((_, Err(error), _)) => {
            // Of what is no file of this format, the error says what to do.
            let advice = matches!(error, StorageError::Failed(_)).then_some(RESTORE);
            report.tell("file", Verdict::Problem, format!("{DATA_FILE}: {error}"), advice);
        }
        Err(error) => {
            let advice = "check whether this user may read it, and where it leads if it is a link";
            report.problem("file", format!("{DATA_FILE}: {error}"), advice);
        }
    }
    None
}

fn check_contents(file: &File, data: &Path, visit: &mut dyn FnMut(&[u8], &[u8]), report: &mut Report) {
    let read = || Ok::<_, std::io::Error>((examine::verify_checksums(file)?, file.try_clone()?));
    let (sweep, file) = match read() {
        Ok(read) => read,
        Err(error) => return report.problem("pages", format!("cannot be read: {error}"), RESTORE),
    };
    let contents = examine::contents(file, data, &data.with_file_name(LOG_FILE), visit);
    tell_pages(&sweep, contents.is_ok(), report);
    match contents {
        Ok(contents) => tell_contents(&sweep, &contents, report),
        Err(error) => report.problem("structure", error.to_string(), RESTORE),
    }
}

fn tell_pages(sweep: &ChecksumReport, is_sound: bool, report: &mut Report) {
    let ChecksumReport { right, unwritten, wrong, first_wrong } = sweep;
    report.fine("pages", format!("{right} match their checksums, {unwritten} were never written"));
    if *wrong == 0 {
        return;
    }
    let first: Vec<_> = first_wrong.iter().map(|(page, at)| format!("{page} (byte {at})")).collect();
    let text = format!("{wrong} do not match, first {}", first.join(", "));
    if is_sound {
        // What is in use has been read through, so these are not.
        report.note("pages", format!("{text}: none of them is in use"), None);
    } else {
        report.problem("pages", text, RESTORE);
    }
}

fn tell_contents(sweep: &ChecksumReport, contents: &ContentReport, report: &mut Report) {
    let ContentReport { in_log, needs_repair, ceiling, rows, row_bytes, used_pages } = contents;
    if *in_log == 0 {
        report.fine("log", "nothing in it is needed");
    } else {
        let text =
            format!("{in_log} batches of commits are in it: the next opening adds them to {DATA_FILE}");
        report.note("log", text, None);
    }
    if *needs_repair {
        let text = "sound, but not what redb last saved of it: the next opening walks through the file first";
        report.note("structure", text, None);
    } else {
        report.fine("structure", "sound, and opens at once");
    }
    report.fine("rows", format!("{rows} can be read, {row_bytes} bytes of keys and values"));
    report.fine("versions", format!("none above {ceiling} has been handed out"));
    let all = sweep.right + sweep.unwritten + sweep.wrong;
    report.fine("space", format!("{} of {all} pages are free", all.saturating_sub(*used_pages)));
}

#[cfg(test)]
mod tests;
