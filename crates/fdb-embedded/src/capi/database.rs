//! Databases: options, transactions, what they say of themselves, administration.

use std::ffi::{c_double, c_int, c_void};
use std::sync::Arc;

use bytes::Bytes;
use foundationdb_sys::{FDBDatabase, FDBDatabaseOption, FDBFuture, FDBTransaction, fdb_bool_t, fdb_error_t};

use super::handle::{self, forwarded};
use super::transaction::CTransaction;
use super::{bytes, future, option_value, real, slot, status};
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
        let destroy = real::library().databases.fdb_database_destroy;
        // SAFETY: the handle is the real library's, and the caller's promise.
        unsafe { destroy(database) }
    }
}

/// The protocol version of FoundationDB 7.3, whose behaviour this is.
pub(super) const PROTOCOL_VERSION: u64 = 0x0FDB_00B0_7300_0000;
/// What FoundationDB adds to a protocol version to say how objects are encoded.
const OBJECT_SERIALIZER: u64 = 1 << 60;

/// FoundationDB wants a snapshot's id as so many hexadecimal digits.
const SNAPSHOT_ID_DIGITS: usize = 32;

/// Why no snapshot can be made: no command is allowed to make one, as in a cluster that has not been told otherwise.
fn snapshot_error(id: &[u8]) -> Code {
    if id.len() == SNAPSHOT_ID_DIGITS && id.iter().all(u8::is_ascii_hexdigit) {
        Code::SNAPSHOT_PATH_NOT_ALLOWED
    } else {
        Code::SNAPSHOT_ID_INVALID
    }
}

forwarded! {
    table RealDatabases in databases; handle FDBDatabase; object Arc<Database>;
    also { fn fdb_database_destroy(); }

    /// Sets an option of the database, for transactions made from now on.
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

    /// A key future: what the client says of itself, as JSON.
    [since 730] fn fdb_database_get_client_status(database) -> *mut FDBFuture {
        future::give(Future::ready(Ok(Output::Key(Bytes::from(database.client_status())))))
    }

    /// How busy the network thread was in the last second, from 0 to 1.
    [since 700] fn fdb_database_get_main_thread_busyness(_database) -> c_double {
        crate::network::busyness()
    }

    /// A uint64 future: the servers' protocol version, once it is not the one expected.
    [since 700] fn fdb_database_get_server_protocol(_database, expected: u64) -> *mut FDBFuture {
        if expected & !OBJECT_SERIALIZER == PROTOCOL_VERSION {
            // It does not change while the process lives.
            return future::give(Future::pending());
        }
        future::give(Future::ready(Ok(Output::UInt64(PROTOCOL_VERSION | OBJECT_SERIALIZER))))
    }

    /// A future of an error: an embedded database has no server process that could be restarted.
    [since 700] fn fdb_database_reboot_worker(
        _database, _address: *const u8, _address_length: c_int, _check: fdb_bool_t, _duration: c_int,
    ) -> *mut FDBFuture {
        future::give(Future::ready(Err(Code::UNSUPPORTED_OPERATION)))
    }

    /// A void future: another data centre takes over. There is no other, and as in a cluster of one nothing is done.
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

    /// A future of what clients of one cluster share, for FoundationDB's own use.
    [since 710] fn fdb_database_create_shared_state(_database) -> *mut FDBFuture {
        future::give(Future::ready(Err(Code::UNSUPPORTED_OPERATION)))
    }

    /// Takes up what clients of one cluster share, for FoundationDB's own use; nothing for an embedded database.
    [since 710] fn fdb_database_set_shared_state(_database, _state: *mut c_void) {}
}
