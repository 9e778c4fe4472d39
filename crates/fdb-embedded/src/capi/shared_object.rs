//! The shared object of the real `libfdb_c.so`, and why it cannot be used.

use std::ffi::{OsString, c_int};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::Code;

/// The environment variable with the path of the client library, if the loader does not find
/// `libfdb_c.so`.
const LIBRARY_VARIABLE: &str = "FDB_CLIENT_LIB";

/// glibc's flag that makes the library prefer its own `fdb_*` functions to ours.
const RTLD_DEEPBIND: c_int = if cfg!(all(target_os = "linux", target_env = "gnu")) { 8 } else { 0 };

/// Why the real library cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(
        "cannot load FoundationDB's client library {name}: {source}; install the foundationdb-clients package \
         (7.3), or set {LIBRARY_VARIABLE} to the path of libfdb_c.so; a database embedded:DIR needs neither"
    )]
    Missing { name: String, source: libloading::Error },
    #[error(
        "FoundationDB's client library {name} lacks the function {function}; install version 6.2 or later"
    )]
    Function { name: String, function: String },
    #[error("FoundationDB's client library {name} refused to start: {code}")]
    Start { name: String, code: Code },
    #[error("cannot start a thread for FoundationDB's client library: {0}")]
    Thread(std::io::Error),
    #[error(
        "FoundationDB's client library cannot be started a second time in a process, and the first time: {0}"
    )]
    Before(String),
}

/// The shared object, before its functions were looked up.
pub(super) struct SharedObject {
    pub(super) name: String,
    pub(super) library: Library,
}

impl SharedObject {
    /// Loads it.
    pub(super) fn open() -> Result<SharedObject, LoadError> {
        let name = std::env::var_os(LIBRARY_VARIABLE).unwrap_or_else(|| OsString::from("libfdb_c.so"));
        let shown = name.to_string_lossy().into_owned();
        // SAFETY: loading runs the library's initialisers; the user chose to load FoundationDB's client.
        let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) };
        let library = library.map_err(|source| LoadError::Missing { name: shown.clone(), source })?;
        Ok(SharedObject { name: shown, library })
    }

    /// Looks up a function by its name, which must end in a NUL.
    ///
    /// # Safety
    /// `F` must be the function's type.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, LoadError> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.library.get::<F>(name.as_bytes()) };
        found.map(|function| *function).map_err(|_| LoadError::Function {
            name: self.name.clone(),
            function: name.trim_end_matches('\0').to_owned(),
        })
    }
}
