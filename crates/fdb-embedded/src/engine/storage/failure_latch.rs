//! The failure latch: keeps the first failure of a database's files, with its cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use checked_pages::FailureSink;

use crate::error::Code;
use crate::files::is_full;

/// A failure of a database's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `FILE_CORRUPT` for damage, `IO_ERROR` for an error of the operating system.
    pub code: Code,
    /// A message that names the file, the place in it, and the cause.
    pub message: String,
    /// The disk was full.
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

/// Keeps the first failure of any file of one database, and names one of the files in messages.
///
/// redb also remembers that an I/O error occurred, but answers later calls with "previous I/O
/// error" only.
pub struct FailureLatch {
    path: PathBuf,
    state: Arc<LatchState>,
}

impl FailureLatch {
    /// A latch without a failure, for the file `path`.
    pub fn new(path: &Path) -> FailureLatch {
        FailureLatch { path: path.to_path_buf(), state: Arc::default() }
    }

    /// The same latch for another file of the database.
    pub fn for_file(&self, path: &Path) -> FailureLatch {
        FailureLatch { path: path.to_path_buf(), state: Arc::clone(&self.state) }
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.state.failure.get()
    }

    /// Calls `hook` once, at the first failure, on the thread that meets it. Only one hook is kept.
    pub fn on_failure(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.state.hook.set(Box::new(hook));
    }

    /// Records that the file is missing.
    pub fn missing(&self, what: &str) -> io::Error {
        let path = self.path.display();
        self.fail(Code::FILE_CORRUPT, format!("{path} is missing: {what}"))
    }

    /// Records that a file's name no longer leads to the open file.
    pub fn file_lost(&self, what: &str) -> io::Error {
        self.fail(Code::IO_ERROR, what.to_owned())
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

impl FailureSink for FailureLatch {
    fn damaged(&self, what: &str) -> io::Error {
        let path = self.path.display();
        self.fail(Code::FILE_CORRUPT, format!("{path} is damaged: {what}"))
    }

    fn io_error(&self, operation: &str, source: &io::Error) -> io::Error {
        let path = self.path.display();
        let is_full = is_full(source);
        let hint = if is_full { "; free space on that disk" } else { "" };
        let message = format!("cannot {operation} {path}: {source}{hint}");
        self.note(Failure { code: Code::IO_ERROR, message, is_full })
    }
}

impl fmt::Debug for FailureLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureLatch").field("path", &self.path).field("failure", &self.failure()).finish()
    }
}
