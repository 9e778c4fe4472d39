//! Futures: readiness, callbacks, results.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use foundationdb_sys::{
    FDBCallback, FDBFuture, FDBKey, FDBKeyValue, FDBMappedKeyValue, fdb_bool_t, fdb_error_t,
};

use super::handle::{self, forwarded};
use super::mapped::MappedArray;
use super::{real, status};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::rows::RowSet;

/// What a future's handle points at: the future, and the C arrays that its getters hand out.
pub(super) struct CFuture {
    future: Arc<Future>,
    rows: OnceLock<Vec<FDBKeyValue>>,
    keys: OnceLock<Vec<FDBKey>>,
    strings: OnceLock<Vec<*const c_char>>,
    mapped: OnceLock<MappedArray>,
}

/// Gives a future to the C side.
pub(super) fn give(future: Arc<Future>) -> *mut FDBFuture {
    let (rows, keys, strings, mapped) = Default::default();
    handle::give(CFuture { future, rows, keys, strings, mapped })
}

fn c_len(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).expect("keys and values are far shorter than 2 GiB")
}

pub(super) fn key_of(bytes: &[u8]) -> FDBKey {
    FDBKey { key: bytes.as_ptr(), key_length: c_len(bytes) }
}

pub(super) fn rows_of(rows: &RowSet) -> Vec<FDBKeyValue> {
    let row = |(key, value): (&[u8], &[u8])| FDBKeyValue {
        key: key.as_ptr(),
        key_length: c_len(key),
        value: value.as_ptr(),
        value_length: c_len(value),
    };
    rows.iter().map(row).collect()
}

/// The getter does not fit the future.
const MISMATCH: Code = Code::CLIENT_INVALID_OPERATION;

impl CFuture {
    /// Runs `read` on the result. The result lives as long as the future, so pointers into it do too.
    fn read(&self, read: impl FnOnce(&Output) -> Result<()>) -> fdb_error_t {
        status(self.future.result().and_then(|output| read(&output)))
    }
}

struct CallbackTarget {
    future: *mut FDBFuture,
    parameter: *mut c_void,
}

// SAFETY: the C API's caller expects both pointers back on the network thread; we do not follow them.
unsafe impl Send for CallbackTarget {}

/// Frees a future, cancelling it if it is pending. Its callbacks are still called.
///
/// # Safety
/// The handle must be live and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_destroy(future: *mut FDBFuture) {
    // SAFETY: the caller's promise.
    unsafe {
        match handle::take::<CFuture, _>(future) {
            Some(own) => drop(own.future.fail(Code::OPERATION_CANCELLED)),
            None => (real::library().futures.fdb_future_destroy)(future),
        }
    }
}

forwarded! {
    table RealFutures in futures; handle FDBFuture; object CFuture;
    also {
        fn fdb_future_destroy();
        fn fdb_future_set_callback(FDBCallback, *mut c_void) -> fdb_error_t;
    }

    /// Cancels a future that is pending.
    fn fdb_future_cancel(own) {
        own.future.fail(Code::OPERATION_CANCELLED);
    }

    /// Blocks until the future is ready.
    fn fdb_future_block_until_ready(own) -> fdb_error_t {
        status(own.future.block_until_ready())
    }

    /// Has the future a value or an error?
    fn fdb_future_is_ready(own) -> fdb_bool_t {
        fdb_bool_t::from(own.future.is_ready())
    }

    /// The future's error; 0 if it has a value.
    fn fdb_future_get_error(own) -> fdb_error_t {
        status(own.future.result().map(drop))
    }

    /// An int64 result.
    fn fdb_future_get_int64(own, out: *mut i64) -> fdb_error_t {
        own.read(|output| match output {
            Output::Int64(value) => {
                out.write(*value);
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// A key result.
    fn fdb_future_get_key(own, out_key: *mut *const u8, out_length: *mut c_int) -> fdb_error_t {
        own.read(|output| match output {
            Output::Key(key) => {
                out_key.write(key.as_ptr());
                out_length.write(c_len(key));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// A value result, which may be absent.
    fn fdb_future_get_value(
        own, out_present: *mut fdb_bool_t, out_value: *mut *const u8, out_length: *mut c_int,
    ) -> fdb_error_t {
        own.read(|output| match output {
            Output::Value(value) => {
                let bytes = value.as_deref().unwrap_or_default();
                out_present.write(fdb_bool_t::from(value.is_some()));
                out_value.write(bytes.as_ptr());
                out_length.write(c_len(bytes));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// The rows of a range read, and whether a limit cut it short.
    fn fdb_future_get_keyvalue_array(
        own, out_rows: *mut *const FDBKeyValue, out_count: *mut c_int, out_more: *mut fdb_bool_t,
    ) -> fdb_error_t {
        own.read(|output| match output {
            Output::Rows(rows) => {
                let array = own.rows.get_or_init(|| rows_of(rows));
                out_rows.write(array.as_ptr());
                out_count.write(c_int::try_from(array.len()).unwrap_or(c_int::MAX));
                out_more.write(fdb_bool_t::from(rows.more));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// An array of keys.
    fn fdb_future_get_key_array(own, out_keys: *mut *const FDBKey, out_count: *mut c_int) -> fdb_error_t {
        own.read(|output| match output {
            Output::Keys(keys) => {
                let array = own.keys.get_or_init(|| keys.iter().map(|key| key_of(key)).collect());
                out_keys.write(array.as_ptr());
                out_count.write(c_int::try_from(array.len()).unwrap_or(c_int::MAX));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// An array of NUL-terminated strings.
    fn fdb_future_get_string_array(
        own, out_strings: *mut *mut *const c_char, out_count: *mut c_int,
    ) -> fdb_error_t {
        own.read(|output| match output {
            Output::Strings(strings) => {
                let array = own.strings.get_or_init(|| strings.iter().map(|s| s.as_ptr()).collect());
                out_strings.write(array.as_ptr().cast_mut());
                out_count.write(c_int::try_from(array.len()).unwrap_or(c_int::MAX));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// The rows of a mapped range read, and whether a limit cut it short.
    fn fdb_future_get_mappedkeyvalue_array(
        own, out_rows: *mut *const FDBMappedKeyValue, out_count: *mut c_int, out_more: *mut fdb_bool_t,
    ) -> fdb_error_t {
        own.read(|output| match output {
            Output::MappedRows(mapped) => {
                let array = own.mapped.get_or_init(|| MappedArray::new(mapped)).rows();
                out_rows.write(array.as_ptr());
                out_count.write(c_int::try_from(array.len()).unwrap_or(c_int::MAX));
                out_more.write(fdb_bool_t::from(mapped.more));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }
}

/// Calls `callback` once when the future is ready: at once and here, or later on the network thread.
///
/// # Safety
/// The handle must be live; `callback` must be callable with `parameter` on the network thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_set_callback(
    future: *mut FDBFuture,
    callback: FDBCallback,
    parameter: *mut c_void,
) -> fdb_error_t {
    // SAFETY: the caller's promise.
    let Some(own) = (unsafe { handle::borrow::<CFuture, _>(future) }) else {
        let set_callback = real::library().futures.fdb_future_set_callback;
        // SAFETY: the handle is the real library's, and the caller's promise.
        return unsafe { set_callback(future, callback, parameter) };
    };
    let Some(callback) = callback else { return Code::CLIENT_INVALID_OPERATION.raw() };
    let target = CallbackTarget { future, parameter };
    // The callback may destroy the handle, so `own` is not used beyond this.
    let future = Arc::clone(&own.future);
    future.on_ready(Box::new(move || {
        let target = target;
        // SAFETY: the caller's promise. The future may be destroyed by now: its handle is passed, not followed.
        unsafe { callback(target.future, target.parameter) }
    }));
    0
}
