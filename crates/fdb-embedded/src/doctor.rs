//! Doctor: checks a database directory without changing it.
//!
//! If a process has the directory open, the check examines it only from outside. Otherwise it locks
//! the directory and reads everything: all page checksums, the log, redb's structure, all rows.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use checked_pages::{ChecksumReport, verify_checksums};

use crate::engine::examine::{self, ContentReport};
use crate::engine::{LockState, StorageError, probe_lock};
use crate::files::{DATA_FILE, FIX_ORPHANED_LOG, LOG_FILE, exists};
use crate::link::{self, Answer};

pub use crate::engine::LockHolder;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing; nothing is lost.
    Note,
    /// Requires action.
    Problem,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Fine => "fine",
            Severity::Note => "note",
            Severity::Problem => "PROBLEM",
        })
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The subject: `directory`, `lock`, `host`, `socket`, `file`, `pages`, `log`, `structure`, `rows`,
    /// `versions`, `space`.
    pub about: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The findings.
    pub text: String,
    /// The recommended action.
    pub advice: Option<Cow<'static, str>>,
}

/// The process that has a directory open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProcess {
    /// Which process it is.
    pub holder: LockHolder,
    /// The process is stopped by a signal or a debugger, as far as this process can see.
    pub is_stopped: bool,
}

impl HostProcess {
    fn of(holder: LockHolder) -> HostProcess {
        let is_stopped = holder.pid.is_some_and(|pid| !holder.is_elsewhere && is_stopped(pid));
        HostProcess { holder, is_stopped }
    }

    /// The recommended action if the process does not answer.
    #[must_use]
    pub fn advice(&self) -> String {
        match &self.holder {
            LockHolder { pid: Some(pid), is_elsewhere: false } if self.is_stopped => {
                format!("process {pid} hosts it and is stopped: continue it with kill -CONT {pid}")
            }
            LockHolder { pid: Some(pid), is_elsewhere: false } => {
                format!("process {pid} hosts it: look at its log and its load, and restart it if it is stuck")
            }
            LockHolder { pid: None, .. } => {
                "another process hosts it: check whether that is stopped or stuck".to_owned()
            }
            holder => format!("it is hosted by {holder}: check there whether it is stopped or stuck"),
        }
    }
}

/// The process that has a directory open, if any.
#[must_use]
pub fn host_process(path: &Path) -> Option<HostProcess> {
    match probe_lock(path) {
        Ok(LockState::Held(holder)) => Some(HostProcess::of(holder)),
        _ => None,
    }
}

/// True if the process is stopped by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name before it may contain any character.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['T', 't']))
}

/// How long [`check`] waits for the process that hosts the directory.
const PATIENCE: Duration = Duration::from_secs(5);

/// All findings, in the order of the checks.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
}

const RESTORE: &str = "restore the directory from a copy: what is damaged cannot be read";
const SAVE: &str = "it has been removed, and the data ends with that process: first read through it what is to be kept, or copy \
                    the file from /proc/PID/fd";
const CHMOD: &str = "chmod 700 the directory: other users who can write in it can change the database";

impl Report {
    /// True if no finding requires action.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Problem)
    }

    fn add(
        &mut self,
        about: &'static str,
        severity: Severity,
        text: impl Into<String>,
        advice: Option<&'static str>,
    ) {
        let advice = advice.map(Cow::Borrowed);
        self.findings.push(Finding { about, severity, text: text.into(), advice });
    }

    fn fine(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(about, Severity::Fine, text, None);
    }

    fn note(&mut self, about: &'static str, text: impl Into<String>, advice: Option<&'static str>) {
        self.add(about, Severity::Note, text, advice);
    }

    fn problem(&mut self, about: &'static str, text: impl Into<String>, advice: &'static str) {
        self.add(about, Severity::Problem, text, Some(advice));
    }
}

/// Checks the directory of an `embedded:` database.
#[must_use]
pub fn check(path: &Path) -> Report {
    check_rows(path, PATIENCE, &mut |_, _| {})
}

/// Like [`check`], but waits up to `patience` for the host's answer. If no process has the
/// directory open, calls `visit` with each key and value in order; those were all if there is a
/// finding `rows`.
#[must_use]
pub fn check_rows(path: &Path, patience: Duration, visit: &mut dyn FnMut(&[u8], &[u8])) -> Report {
    let mut report = Report::default();
    let holder = check_directory(path, &mut report).and_then(|()| check_lock(path, &mut report));
    if let Some(holder) = holder {
        if let LockState::Held(holder) = &holder {
            check_host(path, holder, patience, &mut report);
        }
        let data = path.join(DATA_FILE);
        if let Some(file) = check_file(&data, &holder, &mut report) {
            match holder {
                LockState::Held(_) => report.note(
                    "pages",
                    "not read: the file changes while it is held",
                    Some("stop the process that holds it to have everything checked"),
                ),
                LockState::Free(_lock) => check_contents(&file, &data, visit, &mut report),
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

fn check_lock(path: &Path, report: &mut Report) -> Option<LockState> {
    match probe_lock(path) {
        Ok(holder) => {
            match &holder {
                LockState::Free(_) => report.fine("lock", "nobody holds it"),
                LockState::Held(holder) => report.fine("lock", format!("held by {holder}")),
            }
            Some(holder)
        }
        Err(error) => {
            report.problem("lock", error.to_string(), "check whether this user may read the file \"lock\"");
            None
        }
    }
}

/// Checks that the host listens and answers. A process that does not listen may be about to.
fn check_host(path: &Path, holder: &LockHolder, patience: Duration, report: &mut Report) {
    let host = HostProcess::of(holder.clone());
    let (about, text) = match if host.is_stopped { Answer::Silent } else { link::probe(path, patience) } {
        Answer::Answers => return,
        Answer::Silent => ("host", format!("{holder} hosts the database and does not answer")),
        Answer::Absent => (
            "socket",
            format!(
                "no process listens at {}, so no other process can use the database",
                link::socket(path).display()
            ),
        ),
    };
    let advice = Some(host.advice().into());
    report.findings.push(Finding { about, severity: Severity::Problem, text, advice });
}

fn check_file(data: &PathBuf, holder: &LockState, report: &mut Report) -> Option<File> {
    // Checked first: a new data file gets its name when it is complete.
    let is_being_made = data.with_extension("new").exists();
    // If the file cannot be examined, opening it reports why.
    if matches!(exists(data), Ok(false)) {
        match holder {
            LockState::Free(_) if matches!(exists(&data.with_file_name(LOG_FILE)), Ok(true)) => {
                report.problem(
                    "file",
                    format!("{} is missing, and its {LOG_FILE} is there", data.display()),
                    FIX_ORPHANED_LOG,
                );
            }
            LockState::Held(_) if !is_being_made => {
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
            // The error of a file of another format contains the advice.
            let advice = matches!(error, StorageError::Failed(_)).then_some(RESTORE);
            report.add("file", Severity::Problem, format!("{DATA_FILE}: {error}"), advice);
        }
        Err(error) => {
            let advice = "check whether this user may read it, and where it leads if it is a link";
            report.problem("file", format!("{DATA_FILE}: {error}"), advice);
        }
    }
    None
}

fn check_contents(file: &File, data: &Path, visit: &mut dyn FnMut(&[u8], &[u8]), report: &mut Report) {
    let read = || Ok::<_, std::io::Error>((verify_checksums(file)?, file.try_clone()?));
    let (checksums, file) = match read() {
        Ok(read) => read,
        Err(error) => return report.problem("pages", format!("cannot be read: {error}"), RESTORE),
    };
    let contents = examine::contents(file, data, &data.with_file_name(LOG_FILE), visit);
    report_pages(&checksums, contents.is_ok(), report);
    match contents {
        Ok(contents) => report_contents(&checksums, &contents, report),
        Err(error) => report.problem("structure", error.to_string(), RESTORE),
    }
}

fn report_pages(checksums: &ChecksumReport, is_sound: bool, report: &mut Report) {
    let ChecksumReport { right, unwritten, wrong, first_wrong } = checksums;
    report.fine("pages", format!("{right} match their checksums, {unwritten} were never written"));
    if *wrong == 0 {
        return;
    }
    let first: Vec<_> = first_wrong.iter().map(|(page, at)| format!("{page} (byte {at})")).collect();
    let text = format!("{wrong} do not match, first {}", first.join(", "));
    if is_sound {
        // All used pages were read successfully, so the damaged ones are unused.
        report.note("pages", format!("{text}: none of them is in use"), None);
    } else {
        report.problem("pages", text, RESTORE);
    }
}

fn report_contents(checksums: &ChecksumReport, contents: &ContentReport, report: &mut Report) {
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
    let all = checksums.right + checksums.unwritten + checksums.wrong;
    report.fine("space", format!("{} of {all} pages are free", all.saturating_sub(*used_pages)));
}

#[cfg(test)]
mod tests;
