//! Safe wrappers of the C functions for tests. The differential tests drive an embedded database
//! and a cluster through the same exported functions, so they test the C ABI too.
//!
//! Not part of the crate's interface. The cargo feature `testing` enables it for the crate's
//! integration tests, which are separate crates.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::time::Duration;

use foundationdb_sys::{FDBDatabase, FDBFuture, FDBKeyValue, FDBTransaction};

use super::boot::{Network, StartError};
use super::{bytes, database as d, future as f, open, transaction as t};

/// Starts the network for a program of tests, unless it runs. A test keeps the value for as long as it uses databases.
pub fn network() -> NetworkUse {
    static NETWORK: OnceLock<Result<Network, StartError>> = OnceLock::new();
    // If the program has started one itself, that one does.
    let _ = NETWORK.get_or_init(Network::start);
    NetworkUse(())
}

/// A use of the network by a test.
///
/// FoundationDB's client destroys at the end of a process what its network thread uses, and a harness gives no place to stop that thread before: a
/// program may crash after its last test. Therefore one with such a value ends at once, without what others have registered for its end. What is
/// registered last comes first, so each test registers that when it is over.
pub struct NetworkUse(());

impl Drop for NetworkUse {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: the handler is a function that stays, and it uses no argument. Without memory for it, the process ends as without it.
        let _ = unsafe { on_exit(end_at_once, null_mut()) };
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn _exit(code: c_int) -> !;
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
extern "C" fn end_at_once(code: c_int, _argument: *mut c_void) {
    // SAFETY: it may be called at any time. Rust has written what it had buffered before it called `exit`.
    unsafe { _exit(code) }
}

/// The result of a future; an error is a FoundationDB code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "one variant for each kind of result")]
pub enum Reply {
    Error(i32),
    Void,
    Int64(i64),
    Key(Vec<u8>),
    Value(Option<Vec<u8>>),
    Rows { rows: Vec<(Vec<u8>, Vec<u8>)>, more: bool },
}

/// The type of a future's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Void,
    Int64,
    Key,
    Value,
    Rows,
}

/// A key selector.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the C API's parameters")]
pub struct KeySelector {
    pub key: Vec<u8>,
    pub or_equal: bool,
    pub offset: i32,
}

/// The arguments of a range read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the C API's parameters")]
pub struct Range {
    pub begin: KeySelector,
    pub end: KeySelector,
    pub limit: i32,
    pub target_bytes: i32,
    pub mode: i32,
    pub iteration: i32,
    pub snapshot: bool,
    pub reverse: bool,
}

fn length(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).expect("a test's keys and values are short")
}

fn result(code: c_int) -> Result<(), i32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// A database handle (`FDBDatabase`).
#[derive(Debug)]
pub struct Database(*mut FDBDatabase);

// SAFETY: the C API's objects may be used from any thread.
unsafe impl Send for Database {}
// SAFETY: as above; and by several at a time.
unsafe impl Sync for Database {}

impl Database {
    /// Opens `embedded:DIR` or a cluster file.
    pub fn open(url: &str) -> Result<Database, i32> {
        let url = CString::new(url).map_err(|_| 2104)?;
        let mut database = null_mut();
        // SAFETY: the path is NUL-terminated, and there is a place for the handle.
        result(unsafe { open::fdb_create_database(url.as_ptr().cast::<c_char>(), &raw mut database) })?;
        Ok(Database(database))
    }

    /// Sets an option.
    pub fn set_option(&self, code: u32, value: Option<&[u8]>) -> Result<(), i32> {
        let (pointer, len) = value.map_or((null(), 0), |value| (value.as_ptr(), length(value)));
        // SAFETY: the handle is live, the value readable.
        result(unsafe { d::fdb_database_set_option(self.0, code, pointer, len) })
    }

    /// A new transaction.
    pub fn transaction(&self) -> Result<Transaction, i32> {
        let mut transaction = null_mut();
        // SAFETY: the handle is live, and there is a place for the new one.
        result(unsafe { d::fdb_database_create_transaction(self.0, &raw mut transaction) })?;
        Ok(Transaction(transaction))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the handle is live until here.
        unsafe { d::fdb_database_destroy(self.0) }
    }
}

/// A transaction handle (`FDBTransaction`).
#[derive(Debug)]
pub struct Transaction(*mut FDBTransaction);

// SAFETY: the C API's objects may be used from any thread.
unsafe impl Send for Transaction {}

// Every call below passes a live handle and readable bytes.
#[expect(missing_docs, reason = "each is the C function of its name")]
impl Transaction {
    pub fn set_option(&self, code: u32, value: Option<&[u8]>) -> Result<(), i32> {
        let (pointer, len) = value.map_or((null(), 0), |value| (value.as_ptr(), length(value)));
        // SAFETY: as above.
        result(unsafe { t::fdb_transaction_set_option(self.0, code, pointer, len) })
    }

    pub fn set_read_version(&self, version: i64) {
        // SAFETY: as above.
        unsafe { t::fdb_transaction_set_read_version(self.0, version) }
    }

    pub fn get_read_version(&self) -> Future {
        // SAFETY: as above.
        Future::new(unsafe { t::fdb_transaction_get_read_version(self.0) }, Kind::Int64)
    }

    pub fn get(&self, key: &[u8], snapshot: bool) -> Future {
        // SAFETY: as above.
        let raw = unsafe { t::fdb_transaction_get(self.0, key.as_ptr(), length(key), c_int::from(snapshot)) };
        Future::new(raw, Kind::Value)
    }

    pub fn get_key(&self, s: &KeySelector, snapshot: bool) -> Future {
        let (key, len, or_equal) = (s.key.as_ptr(), length(&s.key), c_int::from(s.or_equal));
        // SAFETY: as above.
        let raw = unsafe {
            t::fdb_transaction_get_key(self.0, key, len, or_equal, s.offset, c_int::from(snapshot))
        };
        Future::new(raw, Kind::Key)
    }

    pub fn get_range(&self, range: &Range) -> Future {
        let (b, e) = (&range.begin, &range.end);
        // SAFETY: as above.
        let raw = unsafe {
            t::fdb_transaction_get_range(
                self.0,
                b.key.as_ptr(),
                length(&b.key),
                c_int::from(b.or_equal),
                b.offset,
                e.key.as_ptr(),
                length(&e.key),
                c_int::from(e.or_equal),
                e.offset,
                range.limit,
                range.target_bytes,
                range.mode,
                range.iteration,
                c_int::from(range.snapshot),
                c_int::from(range.reverse),
            )
        };
        Future::new(raw, Kind::Rows)
    }

    pub fn set(&self, key: &[u8], value: &[u8]) {
        // SAFETY: as above.
        unsafe { t::fdb_transaction_set(self.0, key.as_ptr(), length(key), value.as_ptr(), length(value)) }
    }

    pub fn clear(&self, key: &[u8]) {
        // SAFETY: as above.
        unsafe { t::fdb_transaction_clear(self.0, key.as_ptr(), length(key)) }
    }

    pub fn clear_range(&self, begin: &[u8], end: &[u8]) {
        // SAFETY: as above.
        unsafe {
            t::fdb_transaction_clear_range(self.0, begin.as_ptr(), length(begin), end.as_ptr(), length(end));
        }
    }

    pub fn atomic_op(&self, key: &[u8], operand: &[u8], code: u32) {
        let (k, kl, o, ol) = (key.as_ptr(), length(key), operand.as_ptr(), length(operand));
        // SAFETY: as above.
        unsafe { t::fdb_transaction_atomic_op(self.0, k, kl, o, ol, code) }
    }

    pub fn add_conflict_range(&self, begin: &[u8], end: &[u8], kind: u32) -> Result<(), i32> {
        let (b, bl, e, el) = (begin.as_ptr(), length(begin), end.as_ptr(), length(end));
        // SAFETY: as above.
        result(unsafe { t::fdb_transaction_add_conflict_range(self.0, b, bl, e, el, kind) })
    }

    pub fn watch(&self, key: &[u8]) -> Future {
        // SAFETY: as above.
        Future::new(unsafe { t::fdb_transaction_watch(self.0, key.as_ptr(), length(key)) }, Kind::Void)
    }

    pub fn commit(&self) -> Future {
        // SAFETY: as above.
        Future::new(unsafe { t::fdb_transaction_commit(self.0) }, Kind::Void)
    }

    pub fn committed_version(&self) -> Result<i64, i32> {
        let mut version = 0;
        // SAFETY: as above, and there is a place for the version.
        result(unsafe { t::fdb_transaction_get_committed_version(self.0, &raw mut version) })?;
        Ok(version)
    }

    pub fn get_versionstamp(&self) -> Future {
        // SAFETY: as above.
        Future::new(unsafe { t::fdb_transaction_get_versionstamp(self.0) }, Kind::Key)
    }

    pub fn get_approximate_size(&self) -> Future {
        // SAFETY: as above.
        Future::new(unsafe { t::fdb_transaction_get_approximate_size(self.0) }, Kind::Int64)
    }

    pub fn get_total_cost(&self) -> Future {
        // SAFETY: as above.
        Future::new(unsafe { t::fdb_transaction_get_total_cost(self.0) }, Kind::Int64)
    }

    pub fn on_error(&self, code: i32) -> Future {
        // SAFETY: as above.
        Future::new(unsafe { t::fdb_transaction_on_error(self.0, code) }, Kind::Void)
    }

    pub fn reset(&self) {
        // SAFETY: as above.
        unsafe { t::fdb_transaction_reset(self.0) }
    }

    pub fn cancel(&self) {
        // SAFETY: as above.
        unsafe { t::fdb_transaction_cancel(self.0) }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // SAFETY: the handle is live until here.
        unsafe { t::fdb_transaction_destroy(self.0) }
    }
}

/// A future handle (`FDBFuture`). Dropping it destroys and so cancels it.
#[derive(Debug)]
pub struct Future {
    raw: *mut FDBFuture,
    kind: Kind,
}

// SAFETY: the C API's objects may be used from any thread.
unsafe impl Send for Future {}

/// The interval of checks while waiting with a time limit.
const LOOK: Duration = Duration::from_micros(200);

impl Future {
    fn new(raw: *mut FDBFuture, kind: Kind) -> Future {
        Future { raw, kind }
    }

    /// True if the result is there.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // SAFETY: the handle is live.
        unsafe { f::fdb_future_is_ready(self.raw) != 0 }
    }

    /// Cancels the future if it is pending.
    pub fn cancel(&self) {
        // SAFETY: the handle is live.
        unsafe { f::fdb_future_cancel(self.raw) }
    }

    /// Waits for the result.
    #[must_use]
    pub fn wait(&self) -> Reply {
        // SAFETY: the handle is live.
        match unsafe { f::fdb_future_block_until_ready(self.raw) } {
            0 => self.reply(),
            code => Reply::Error(code),
        }
    }

    /// Waits for the result, but not longer than `limit`.
    #[must_use]
    pub fn wait_for(&self, limit: Duration) -> Option<Reply> {
        let until = baton::now() + limit;
        while !self.is_ready() {
            if baton::now() >= until {
                return None;
            }
            baton::thread::sleep(LOOK);
        }
        Some(self.reply())
    }

    fn reply(&self) -> Reply {
        // SAFETY: the handle is live; results are read into places of their types, and copied while it lives.
        let read = unsafe {
            result(f::fdb_future_get_error(self.raw)).and_then(|()| match self.kind {
                Kind::Void => Ok(Reply::Void),
                Kind::Int64 => {
                    let mut value = 0;
                    result(f::fdb_future_get_int64(self.raw, &raw mut value)).map(|()| Reply::Int64(value))
                }
                Kind::Key => {
                    let (mut key, mut len) = (null(), 0);
                    result(f::fdb_future_get_key(self.raw, &raw mut key, &raw mut len))
                        .map(|()| Reply::Key(bytes(key, len).to_vec()))
                }
                Kind::Value => {
                    let (mut present, mut value, mut len) = (0, null(), 0);
                    let (p, v, l) = (&raw mut present, &raw mut value, &raw mut len);
                    result(f::fdb_future_get_value(self.raw, p, v, l))
                        .map(|()| Reply::Value((present != 0).then(|| bytes(value, len).to_vec())))
                }
                Kind::Rows => self.rows(),
            })
        };
        read.unwrap_or_else(Reply::Error)
    }

    /// # Safety
    /// The handle must be live and ready.
    unsafe fn rows(&self) -> Result<Reply, i32> {
        let (mut array, mut count, mut more) = (null::<FDBKeyValue>(), 0, 0);
        let (a, c, m) = (&raw mut array, &raw mut count, &raw mut more);
        // SAFETY: there is a place for each result.
        result(unsafe { f::fdb_future_get_keyvalue_array(self.raw, a, c, m) })?;
        let count = usize::try_from(count).expect("a count is not negative");
        let mut rows = Vec::with_capacity(count);
        for index in 0..count {
            // SAFETY: the array has `count` rows, packed to four bytes, whose bytes live as long as the future.
            let row = unsafe { array.add(index).read_unaligned() };
            // SAFETY: as above.
            rows.push(unsafe {
                (bytes(row.key, row.key_length).to_vec(), bytes(row.value, row.value_length).to_vec())
            });
        }
        Ok(Reply::Rows { rows, more: more != 0 })
    }
}

impl Drop for Future {
    fn drop(&mut self) {
        // SAFETY: the handle is live until here.
        unsafe { f::fdb_future_destroy(self.raw) }
    }
}
