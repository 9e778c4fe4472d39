//! The first thing that went wrong with the files of a database, in words for a person.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::log::is_full;
use crate::error::Code;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `FILE_CORRUPT` for damage, `IO_ERROR` for what the operating system refused.
    pub code: Code,
    /// What, and where in which file.
    pub message: String,
    /// The disk had no space.
    pub is_full: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

type Hook = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct LatchState {
    failure: OnceLock<Failure>,
    hook: OnceLock<Hook>,
}

/// The state of the files of one database, as one of them sees it: well until the first failure of any, which is kept.
///
/// redb latches the first I/O error too and answers everything after it with "previous I/O error"; the cause is here.
pub struct FailureLatch {
    path: PathBuf,
    state: Arc<LatchState>,
}

impl FailureLatch {
    /// Of a file that is well so far.
    pub fn new(path: &Path) -> FailureLatch {
        FailureLatch { path: path.to_path_buf(), state: Arc::default() }
    }

    /// The same state, for another file of the database.
    pub fn for_file(&self, path: &Path) -> FailureLatch {
        FailureLatch { path: path.to_path_buf(), state: Arc::clone(&self.state) }
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.state.failure.get()
    }

    /// Calls `hook` once when a file fails, on the thread that meets the failure. One hook; others are ignored.
    pub fn on_failure(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.state.hook.set(Box::new(hook));
    }

    /// The file does not hold what was written.
    pub fn damaged(&self, what: &str) -> io::Error {
        let path = self.path.display();
        self.fail(Code::FILE_CORRUPT, format!("{path} is damaged: {what}"))
    }

    /// It is not there.
    pub fn missing(&self, what: &str) -> io::Error {
        let path = self.path.display();
        self.fail(Code::FILE_CORRUPT, format!("{path} is missing: {what}"))
    }

    /// The file, or one that belongs to it, is not the one that its name leads to.
    pub fn file_lost(&self, what: &str) -> io::Error {
        self.fail(Code::IO_ERROR, what.to_owned())
    }

    /// The operating system refused an operation.
    pub fn io_error(&self, operation: &str, source: &io::Error) -> io::Error {
        let path = self.path.display();
        let is_full = is_full(source);
        let hint = if is_full { "; free space on that disk" } else { "" };
        let message = format!("cannot {operation} {path}: {source}{hint}");
        self.note(Failure { code: Code::IO_ERROR, message, is_full })
    }

    fn fail(&self, code: Code, message: String) -> io::Error {
        self.note(Failure { code, message, is_full: false })
    }

    fn note(&self, failure: Failure) -> io::Error {
        let error = io::Error::other(failure.message.clone());
        if self.state.failure.set(failure).is_ok()
            && let Some(hook) = self.state.hook.get()
        {
            hook();
        }
        error
    }
}

impl fmt::Debug for FailureLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureLatch").field("path", &self.path).field("failure", &self.failure()).finish()
    }
}
