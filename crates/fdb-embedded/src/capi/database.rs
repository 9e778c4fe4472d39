//! Databases: options, transactions, status and administration.

use std::ffi::{c_double, c_int, c_void};
use std::sync::Arc;

use bytes::Bytes;
use foundationdb_sys::{FDBDatabase, FDBDatabaseOption, FDBFuture, FDBTransaction, fdb_bool_t, fdb_error_t};

use super::forwarded::forwarded;
use super::handle;
use super::transaction::CTransaction;
use super::{bytes, future, option_value, slot, status};
use crate::client::{Database, Transaction};
use crate::error::Code;
use crate::future::{Future, Output};

/// Frees the handle; transactions made from it live on.
///
/// # Safety
/// The handle must be live and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_destroy(database: *mut FDBDatabase) {
    // SAFETY: the caller's promise.
    if unsafe { handle::take::<Arc<Database>, _>(database) }.is_none() {
        let destroy = RealDatabases::get().fdb_database_destroy;
        // SAFETY: the handle is the real library's, and the caller's promise.
        unsafe { destroy(database) }
    }
}

/// The protocol version of FoundationDB 7.3.
pub(super) const PROTOCOL_VERSION: u64 = 0x0FDB_00B0_7300_0000;
/// FoundationDB sets this bit in a protocol version for the encoding of objects.
const OBJECT_SERIALIZER: u64 = 1 << 60;

/// The length of a snapshot's id in hexadecimal digits.
const SNAPSHOT_ID_DIGITS: usize = 32;

/// The error of creating a snapshot: no command is allowed, as on a cluster by default.
fn snapshot_error(id: &[u8]) -> Code {
    if id.len() == SNAPSHOT_ID_DIGITS && id.iter().all(u8::is_ascii_hexdigit) {
        Code::SNAPSHOT_PATH_NOT_ALLOWED
    } else {
        Code::SNAPSHOT_ID_INVALID
    }
}

forwarded! {
    table RealDatabases; handle FDBDatabase; object Arc<Database>;
    also { fn fdb_database_destroy(); }

    /// Sets an option of the database, for later transactions.
    fn fdb_database_set_option(
        database, option: FDBDatabaseOption, value: *const u8, value_length: c_int,
    ) -> fdb_error_t
    where value = option_value(value, value_length)
    {
        match c_int::try_from(option) {
            Ok(code) => status(value.and_then(|value| database.set_option(code, value))),
            Err(_) => Code::INVALID_OPTION.raw(),
        }
    }

    /// A new transaction.
    fn fdb_database_create_transaction(database, out: *mut *mut FDBTransaction) -> fdb_error_t
    where out = slot(out)
    {
        out.write(handle::give(CTransaction::new(Transaction::new(database))));
        0
    }

    /// A key future: the client's status, as JSON.
    [since 730] fn fdb_database_get_client_status(database) -> *mut FDBFuture {
        future::give(Future::ready(Ok(Output::Key(Bytes::from(database.client_status())))))
    }

    /// The busy fraction of the network thread in the last second, from 0 to 1.
    [since 700] fn fdb_database_get_main_thread_busyness(_database) -> c_double {
        crate::network::busyness()
    }

    /// A uint64 future: the servers' protocol version, when it is not the expected one.
    [since 700] fn fdb_database_get_server_protocol(_database, expected: u64) -> *mut FDBFuture {
        if expected & !OBJECT_SERIALIZER == PROTOCOL_VERSION {
            // It never changes.
            return future::give(Future::pending());
        }
        future::give(Future::ready(Ok(Output::UInt64(PROTOCOL_VERSION | OBJECT_SERIALIZER))))
    }

    /// A future that fails: an embedded database has no server process to restart.
    [since 700] fn fdb_database_reboot_worker(
        _database, _address: *const u8, _address_length: c_int, _check: fdb_bool_t, _duration: c_int,
    ) -> *mut FDBFuture {
        future::give(Future::ready(Err(Code::UNSUPPORTED_OPERATION)))
    }

    /// A void future: fails over to another data centre. There is only one, so nothing happens, as
    /// on a cluster of one.
    [since 700] fn fdb_database_force_recovery_with_data_loss(
        _database, _dcid: *const u8, _dcid_length: c_int,
    ) -> *mut FDBFuture {
        future::give(Future::ready(Ok(Output::Void)))
    }

    /// A void future: the servers run a snapshot command.
    [since 700] fn fdb_database_create_snapshot(
        _database, id: *const u8, id_length: c_int, _command: *const u8, _command_length: c_int,
    ) -> *mut FDBFuture
    where id = bytes(id, id_length)
    {
        future::give(Future::ready(Err(snapshot_error(id))))
    }

    /// A future of the state shared by the clients of a cluster, for FoundationDB's internal use.
    [since 710] fn fdb_database_create_shared_state(_database) -> *mut FDBFuture {
        future::give(Future::ready(Err(Code::UNSUPPORTED_OPERATION)))
    }

    /// Sets the state shared by the clients of a cluster, for FoundationDB's internal use. Ignored
    /// here.
    [since 710] fn fdb_database_set_shared_state(_database, _state: *mut c_void) {}
}
