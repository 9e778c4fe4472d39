//! Futures: readiness, callbacks, results.

use std::any::Any;
use std::ffi::{c_char, c_double, c_int, c_void};
use std::sync::Arc;

use baton::Mutex;
use foundationdb_sys::{
    FDBCallback, FDBFuture, FDBKey, FDBKeyRange, FDBKeyValue, FDBMappedKeyValue, fdb_bool_t, fdb_error_t,
};

use super::arrays::{MappedArray, c_len, key_of, range_of, rows_of};
use super::forwarded::forwarded;
use super::handle;
use super::missing::Missing;
use super::{slot, status};
use crate::error::{Code, Result};
use crate::future::{Future, Output};

/// The object of a future's handle: the future, and the memory that its getters have returned.
pub(super) struct CFuture {
    /// Declared before the future, to be dropped before it, because it points into the future's
    /// value.
    memory: Mutex<Memory>,
    future: Arc<Future>,
}

/// The memory that a future's getters have returned.
#[derive(Default)]
struct Memory {
    /// Successful getters minus releases. The release that makes it 0 frees the value.
    gets: i32,
    /// The C array of the value, after a getter has created it.
    array: Array,
}

/// Holds a C array that points into a future's value.
#[derive(Default)]
pub(super) struct Array(Option<Box<dyn Any>>);

// SAFETY: the array is pointers into a value that any thread may read and that outlives it.
unsafe impl Send for Array {}

impl Array {
    /// The array, created at the first use. A future has only one kind of array.
    fn get<T: 'static>(&mut self, make: impl FnOnce() -> T) -> Result<&T> {
        let array = self.0.get_or_insert_with(|| Box::new(make()));
        array.downcast_ref().ok_or(MISMATCH)
    }

    /// The pointer to the array, and its length.
    fn of<T: 'static>(&mut self, make: impl FnOnce() -> Vec<T>) -> Result<(*const T, c_int)> {
        let array = self.get(make)?;
        Ok((array.as_ptr(), c_len(array)))
    }
}

/// Returns a future to the caller.
pub(super) fn give(future: Arc<Future>) -> *mut FDBFuture {
    handle::give(CFuture { future, memory: Mutex::default() })
}

impl Missing for *mut FDBFuture {
    fn missing() -> *mut FDBFuture {
        give(Future::ready(Err(Code::UNSUPPORTED_OPERATION)))
    }
}

/// The error of a getter that does not match the future.
pub(super) const MISMATCH: Code = Code::CLIENT_INVALID_OPERATION;

impl CFuture {
    /// Calls `read` with the value. Pointers into the value are valid until it is released.
    pub(super) fn read(&self, read: impl FnOnce(&Output, &mut Array) -> Result<()>) -> fdb_error_t {
        let mut memory = self.memory.lock();
        let outcome = self.future.result().and_then(|output| read(&output, &mut memory.array));
        memory.gets += i32::from(outcome.is_ok());
        status(outcome)
    }

    /// Undoes one getter. The last one frees the value.
    fn release(&self) {
        let mut memory = self.memory.lock();
        memory.gets -= 1;
        if memory.gets == 0 {
            memory.array = Array::default();
            self.future.release();
        }
    }
}

struct CallbackTarget {
    future: *mut FDBFuture,
    parameter: *mut c_void,
    /// Keeps a future that was destroyed until its callback has run, because the callback may ask
    /// for its error.
    _own: Arc<CFuture>,
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
    match unsafe { handle::take::<CFuture, _>(future) } {
        Some(own) => drop(own.future.fail(Code::OPERATION_CANCELLED)),
        None => {
            let destroy = RealFutures::get().fdb_future_destroy;
            // SAFETY: the handle is the real library's, and the caller's promise.
            unsafe { destroy(future) }
        }
    }
}

/// Cancels a future that is pending.
///
/// # Safety
/// The handle must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_cancel(future: *mut FDBFuture) {
    // SAFETY: the caller's promise. Shared, because a callback may destroy the future before this has returned.
    match unsafe { handle::share::<CFuture, _>(future) } {
        Some(own) => drop(own.future.fail(Code::OPERATION_CANCELLED)),
        None => {
            let cancel = RealFutures::get().fdb_future_cancel;
            // SAFETY: the handle is the real library's, and the caller's promise.
            unsafe { cancel(future) }
        }
    }
}

forwarded! {
    table RealFutures; handle FDBFuture; object CFuture;
    also {
        fn fdb_future_destroy();
        fn fdb_future_cancel();
        fn fdb_future_set_callback(FDBCallback, *mut c_void) -> fdb_error_t;
    }

    /// Releases the memory that a getter has returned. The value is freed when all of it is
    /// released.
    fn fdb_future_release_memory(own) {
        own.release();
    }

    /// Blocks until the future is ready.
    fn fdb_future_block_until_ready(own) -> fdb_error_t {
        status(own.future.block_until_ready())
    }

    /// True if the future has a value or an error.
    fn fdb_future_is_ready(own) -> fdb_bool_t {
        fdb_bool_t::from(own.future.is_ready())
    }

    /// The error of the future; 0 if it has a value.
    fn fdb_future_get_error(own) -> fdb_error_t {
        status(own.future.result().map(drop))
    }

    /// A bool result.
    [since 720] fn fdb_future_get_bool(own, out: *mut fdb_bool_t) -> fdb_error_t
    where out = slot(out)
    {
        own.read(|output, _| match output {
            Output::Bool(value) => {
                out.write(fdb_bool_t::from(*value));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// An int64 result.
    fn fdb_future_get_int64(own, out: *mut i64) -> fdb_error_t
    where out = slot(out)
    {
        own.read(|output, _| match output {
            Output::Int64(value) => {
                out.write(*value);
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// A uint64 result.
    [since 700] fn fdb_future_get_uint64(own, out: *mut u64) -> fdb_error_t
    where out = slot(out)
    {
        own.read(|output, _| match output {
            Output::UInt64(value) => {
                out.write(*value);
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// A double result.
    [since 730] fn fdb_future_get_double(own, out: *mut c_double) -> fdb_error_t
    where out = slot(out)
    {
        own.read(|output, _| match output {
            Output::Double(value) => {
                out.write(*value);
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// A key result.
    fn fdb_future_get_key(own, out_key: *mut *const u8, out_length: *mut c_int) -> fdb_error_t
    where out_key = slot(out_key), out_length = slot(out_length)
    {
        own.read(|output, _| match output {
            Output::Key(key) => {
                out_key.write(key.as_ptr());
                out_length.write(c_len(key));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// A value result, which may be absent. As in FoundationDB, it can be used for a key future
    /// too.
    fn fdb_future_get_value(
        own, out_present: *mut fdb_bool_t, out_value: *mut *const u8, out_length: *mut c_int,
    ) -> fdb_error_t
    where out_present = slot(out_present), out_value = slot(out_value), out_length = slot(out_length)
    {
        own.read(|output, _| match output {
            Output::Value(value) => {
                let bytes = value.as_deref().unwrap_or_default();
                out_present.write(fdb_bool_t::from(value.is_some()));
                out_value.write(bytes.as_ptr());
                out_length.write(c_len(bytes));
                Ok(())
            }
            Output::Key(key) => {
                out_present.write(1);
                out_value.write(key.as_ptr());
                out_length.write(c_len(key));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// The rows of a range read, and whether a limit ended it.
    fn fdb_future_get_keyvalue_array(
        own, out_rows: *mut *const FDBKeyValue, out_count: *mut c_int, out_more: *mut fdb_bool_t,
    ) -> fdb_error_t
    where out_rows = slot(out_rows), out_count = slot(out_count), out_more = slot(out_more)
    {
        own.read(|output, array| match output {
            Output::Rows(rows) => {
                let (begin, count) = array.of(|| rows_of(rows))?;
                out_rows.write(begin);
                out_count.write(count);
                out_more.write(fdb_bool_t::from(rows.more));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// The rows of a mapped range read, and whether a limit ended it.
    [since 710] fn fdb_future_get_mappedkeyvalue_array(
        own, out_rows: *mut *const FDBMappedKeyValue, out_count: *mut c_int, out_more: *mut fdb_bool_t,
    ) -> fdb_error_t
    where out_rows = slot(out_rows), out_count = slot(out_count), out_more = slot(out_more)
    {
        own.read(|output, array| match output {
            Output::MappedRows(mapped) => {
                let array = array.get(|| MappedArray::new(mapped))?;
                out_rows.write(array.rows().as_ptr());
                out_count.write(c_len(array.rows()));
                out_more.write(fdb_bool_t::from(mapped.more));
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// An array of keys.
    [since 700] fn fdb_future_get_key_array(
        own, out_keys: *mut *const FDBKey, out_count: *mut c_int,
    ) -> fdb_error_t
    where out_keys = slot(out_keys), out_count = slot(out_count)
    {
        own.read(|output, array| match output {
            Output::Keys(keys) => {
                let (begin, count) = array.of(|| keys.iter().map(|key| key_of(key)).collect())?;
                out_keys.write(begin);
                out_count.write(count);
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// An array of key ranges.
    [since 710] fn fdb_future_get_keyrange_array(
        own, out_ranges: *mut *const FDBKeyRange, out_count: *mut c_int,
    ) -> fdb_error_t
    where out_ranges = slot(out_ranges), out_count = slot(out_count)
    {
        own.read(|output, array| match output {
            Output::KeyRanges(ranges) => {
                let (begin, count) = array.of(|| ranges.iter().map(range_of).collect())?;
                out_ranges.write(begin);
                out_count.write(count);
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// An array of NUL-terminated strings.
    fn fdb_future_get_string_array(
        own, out_strings: *mut *mut *const c_char, out_count: *mut c_int,
    ) -> fdb_error_t
    where out_strings = slot(out_strings), out_count = slot(out_count)
    {
        own.read(|output, array| match output {
            Output::Strings(strings) => {
                let (begin, count) = array.of(|| strings.iter().map(|s| s.as_ptr()).collect())?;
                out_strings.write(begin.cast_mut());
                out_count.write(count);
                Ok(())
            }
            _ => Err(MISMATCH),
        })
    }

    /// The state shared by the clients of a cluster. No future of an embedded database has it.
    [since 710] fn fdb_future_get_shared_state(own, _out: *mut *mut c_void) -> fdb_error_t {
        own.read(|_, _| Err(MISMATCH))
    }
}

/// Calls `callback` once when the future is ready: at once on this thread, or later on the network
/// thread.
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
    let Some(own) = (unsafe { handle::share::<CFuture, _>(future) }) else {
        let set_callback = RealFutures::get().fdb_future_set_callback;
        // SAFETY: the handle is the real library's, and the caller's promise.
        return unsafe { set_callback(future, callback, parameter) };
    };
    let Some(callback) = callback else { return Code::CLIENT_INVALID_OPERATION.raw() };
    let waiting = Arc::clone(&own.future);
    let target = CallbackTarget { future, parameter, _own: own };
    waiting.on_ready(Box::new(move || {
        let target = target;
        // SAFETY: the caller's promise; the target keeps what the handle points at.
        unsafe { callback(target.future, target.parameter) }
    }));
    0
}
