//! Opening databases of both engines.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foundationdb_sys::{FDBDatabase, fdb_error_t};

use super::cluster_file::{self, Cluster, Named};
use super::real::{self, Real};
use super::shared_object::LoadError;
use super::{chosen, handle, status};
use crate::client::Database;
use crate::engine::OpenError;
use crate::error::{Code, Result};

thread_local! {
    static OPEN_ERROR: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The reason for which the last opening of a database on this thread failed. The C API only has an
/// error code for it.
#[must_use]
pub fn open_error() -> Option<String> {
    OPEN_ERROR.with_borrow(Clone::clone)
}

/// The program gets only error codes, so the reasons go to standard error.
static REPORTS: AtomicBool = AtomicBool::new(false);

/// Reports the reasons of failed openings from now on: the program uses the C API, so it does not ask
/// for [`open_error`].
pub(super) fn report_errors() {
    REPORTS.store(true, Ordering::Relaxed);
}

fn explain(error: &dyn fmt::Display) {
    let text = error.to_string();
    if REPORTS.load(Ordering::Relaxed) {
        crate::reports::report(&text);
    }
    OPEN_ERROR.set(Some(text));
}

fn code_of(error: &OpenError) -> Code {
    match error {
        OpenError::NoDirectory | OpenError::TwoSlashes { .. } => Code::CONNECTION_STRING_INVALID,
        OpenError::Io { .. } => Code::FILE_NOT_WRITABLE,
        OpenError::Held { .. } | OpenError::Host { .. } => Code::LOCK_FILE_FAILURE,
        OpenError::Network { .. } => Code::LOCK_FILE_FAILURE,
        OpenError::Lost(_) | OpenError::Forked(_) => Code::IO_ERROR,
        OpenError::OrphanedLog { .. } => Code::FILE_CORRUPT,
        OpenError::Storage { source, .. } => source.code(),
        #[cfg(feature = "testing")]
        OpenError::Faults(_) => Code::ENVIRONMENT_OPTION_FAILED,
    }
}

fn open_embedded(url: &str, directory: &Path) -> Result<*mut FDBDatabase> {
    let database: Arc<Database> = Database::open(url, directory).map_err(|error| {
        explain(&error);
        code_of(&error)
    })?;
    Ok(handle::give(database))
}

/// Opens a cluster. Calls `in_real` to open it in the real library, which is loaded if needed.
/// Without that library, the handle of a cluster that does not exist behaves as the library's would.
fn open_cluster(
    cluster: &Cluster,
    in_real: impl FnOnce(&Real, *mut *mut FDBDatabase) -> fdb_error_t,
) -> Result<*mut FDBDatabase> {
    let real = match (real::load(&chosen::settings()?), cluster.error()) {
        (Ok(real), _) => real,
        (Err(LoadError::Missing { .. }), Some(code)) => {
            explain(&format_args!(
                "cannot use {cluster}: {}; name an existing cluster file, or embedded:DIR for a database in a \
                 directory",
                code.message().to_string_lossy()
            ));
            return Ok(handle::give(Database::unreachable(&cluster.to_string(), code)));
        }
        (Err(error), _) => {
            explain(&error);
            return Err(Code::API_FUNCTION_MISSING);
        }
    };
    let mut database = std::ptr::null_mut();
    let error = in_real(real, &raw mut database);
    Code::from_raw(error).map_or(Ok(database), Err)
}

/// Opens a resolved path. Calls `in_real` to open it in the real library.
fn open(
    named: Named,
    in_real: impl FnOnce(&Real, *mut *mut FDBDatabase) -> fdb_error_t,
) -> Result<*mut FDBDatabase> {
    OPEN_ERROR.set(None);
    if !crate::network::is_setup() {
        return Err(Code::NETWORK_NOT_SETUP);
    }
    match named {
        Named::Embedded { url, directory } => open_embedded(&url, &directory),
        Named::Cluster(cluster) => open_cluster(&cluster, in_real),
    }
}

/// Opens the database for a path.
///
/// # Safety
/// `path` must be null or a NUL-terminated string.
pub(super) unsafe fn by_path(path: *const c_char) -> Result<*mut FDBDatabase> {
    // SAFETY: the caller's promise.
    let named = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
    // SAFETY: the caller's promise, and a place for the handle.
    open(cluster_file::named_by(named), |real, out| unsafe { (real.create_database)(path, out) })
}

/// Returns an opened database to the caller.
///
/// # Safety
/// `out` must be a place for the handle.
pub(super) unsafe fn hand_out(opened: Result<*mut FDBDatabase>, out: *mut *mut FDBDatabase) -> fdb_error_t {
    // SAFETY: the caller's promise.
    status(opened.map(|database| unsafe { out.write(database) }))
}

/// Opens a database: `embedded:DIR`, or a cluster file, which may contain `embedded:DIR`. Null
/// stands for the default cluster file.
///
/// # Safety
/// `path` must be null or a NUL-terminated string, `out` a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_create_database(path: *const c_char, out: *mut *mut FDBDatabase) -> fdb_error_t {
    // SAFETY: the caller's promise.
    unsafe { hand_out(by_path(path), out) }
}

/// Opens a database by the contents of its cluster file, or by `embedded:DIR`.
///
/// # Safety
/// `string` must be a NUL-terminated string, `out` a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_create_database_from_connection_string(
    string: *const c_char,
    out: *mut *mut FDBDatabase,
) -> fdb_error_t {
    // SAFETY: the caller's promise.
    let named = cluster_file::named_by_connection_string(unsafe { CStr::from_ptr(string) });
    // SAFETY: the caller's promise, and a place for the handle.
    let opened =
        open(named, |real, out| unsafe { (real.create_database_from_connection_string)(string, out) });
    // SAFETY: the caller's promise.
    unsafe { hand_out(opened, out) }
}
