//! Databases: opening, options, transactions.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_double, c_int};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use foundationdb_sys::{FDBDatabase, FDBDatabaseOption, FDBFuture, FDBTransaction, fdb_error_t};

use super::handle::{self, forwarded};
use super::{future, network, option_value, real, status};
use crate::client::{Database, Transaction};
use crate::engine::OpenError;
use crate::error::{Code, Result};
use crate::future::{Future, Output};

/// Names the cluster file where a program gives none; `embedded:DIR` works there too.
const CLUSTER_FILE_VARIABLE: &str = "FDB_CLUSTER_FILE";

thread_local! {
    static OPEN_ERROR: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Why the last attempt to open a database on this thread failed, in words; the C API has only a number for it.
#[must_use]
pub fn open_error() -> Option<String> {
    OPEN_ERROR.with_borrow(Clone::clone)
}

fn explain(error: &dyn std::error::Error) {
    OPEN_ERROR.set(Some(error.to_string()));
}

fn code_of(error: &OpenError) -> Code {
    match error {
        OpenError::NoDirectory => Code::CONNECTION_STRING_INVALID,
        OpenError::Io { .. } => Code::FILE_NOT_WRITABLE,
        OpenError::Held { .. } | OpenError::Host { .. } => Code::LOCK_FILE_FAILURE,
        OpenError::Storage { source, .. } => source.code(),
        OpenError::Faults(_) => Code::ENVIRONMENT_OPTION_FAILED,
    }
}

fn open_embedded(url: &str, directory: &Path) -> Result<*mut FDBDatabase> {
    if !crate::network::is_setup() {
        return Err(Code::NETWORK_NOT_SETUP);
    }
    let database: Arc<Database> = Database::open(url, directory).map_err(|error| {
        explain(&error);
        code_of(&error)
    })?;
    Ok(handle::give(database))
}

/// Opens a database: `embedded:DIR`, or a cluster file; null is the default cluster file.
///
/// # Safety
/// `path` must be null or a NUL-terminated string, `out` a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_create_database(path: *const c_char, out: *mut *mut FDBDatabase) -> fdb_error_t {
    OPEN_ERROR.set(None);
    let url = if path.is_null() {
        std::env::var(CLUSTER_FILE_VARIABLE).ok()
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(path) }.to_str().ok().map(str::to_owned)
    };
    if let Some((url, directory)) = url.as_deref().and_then(|url| Some((url, crate::url::directory(url)?))) {
        return status(open_embedded(url, directory).map(|database| {
            // SAFETY: the caller's promise.
            unsafe { out.write(database) }
        }));
    }
    let settings = match network::settings() {
        Ok(settings) if crate::network::is_setup() => settings,
        Ok(_) => return Code::NETWORK_NOT_SETUP.raw(),
        Err(code) => return code.raw(),
    };
    match real::load(&settings) {
        // SAFETY: the caller's arguments, passed on.
        Ok(real) => unsafe { (real.create_database)(path, out) },
        Err(error) => {
            explain(&error);
            Code::API_FUNCTION_MISSING.raw()
        }
    }
}

/// Frees the handle; transactions made from it live on.
///
/// # Safety
/// The handle must be live and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_destroy(database: *mut FDBDatabase) {
    // SAFETY: the caller's promise.
    unsafe {
        if handle::take::<Arc<Database>, _>(database).is_none() {
            (real::library().databases.fdb_database_destroy)(database);
        }
    }
}

/// What the client says of itself: JSON.
const CLIENT_STATUS: &str = "{\"Healthy\":true,\"InitializationState\":\"created\",\"ProtocolVersion\":\"embedded\",\
                             \"Connections\":[],\"NumConnectionsFailed\":0}";

forwarded! {
    table RealDatabases in databases; handle FDBDatabase; object Arc<Database>;
    also { fn fdb_database_destroy(); }

    /// Sets an option of the database, for transactions made from now on.
    fn fdb_database_set_option(
        database, option: FDBDatabaseOption, value: *const u8, value_length: c_int,
    ) -> fdb_error_t {
        match c_int::try_from(option) {
            Ok(code) => status(database.set_option(code, option_value(value, value_length))),
            Err(_) => Code::INVALID_OPTION.raw(),
        }
    }

    /// A new transaction.
    fn fdb_database_create_transaction(database, out: *mut *mut FDBTransaction) -> fdb_error_t {
        let transaction: Arc<Transaction> = Transaction::new(database);
        out.write(handle::give(transaction));
        0
    }

    /// A key future: what the client says of itself, as JSON.
    fn fdb_database_get_client_status(_database) -> *mut FDBFuture {
        future::give(Future::ready(Ok(Output::Key(Bytes::from_static(CLIENT_STATUS.as_bytes())))))
    }

    /// How busy the network thread is, from 0 to 1: the embedded engine does no work there.
    fn fdb_database_get_main_thread_busyness(_database) -> c_double {
        0.0
    }
}
