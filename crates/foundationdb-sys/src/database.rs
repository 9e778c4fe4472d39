//! Databases: handles that make transactions, and the administrative calls.

use std::ffi::{c_char, c_int};

use crate::options::FDBDatabaseOption;
use crate::types::{FDBDatabase, FDBFuture, FDBTenant, FDBTransaction, fdb_bool_t, fdb_error_t};

unsafe extern "C" {
    /// Opens the database a cluster file describes; NULL asks for the default file.
    pub fn fdb_create_database(
        cluster_file_path: *const c_char,
        out_database: *mut *mut FDBDatabase,
    ) -> fdb_error_t;

    /// Opens the database a connection string describes.
    pub fn fdb_create_database_from_connection_string(
        connection_string: *const c_char,
        out_database: *mut *mut FDBDatabase,
    ) -> fdb_error_t;

    /// Gives up the handle; transactions made from it live on.
    pub fn fdb_database_destroy(d: *mut FDBDatabase);

    /// Sets an option of the handle and a default of its transactions.
    pub fn fdb_database_set_option(
        d: *mut FDBDatabase,
        option: FDBDatabaseOption,
        value: *const u8,
        value_length: c_int,
    ) -> fdb_error_t;

    /// Opens a tenant; whether it exists shows on first use.
    pub fn fdb_database_open_tenant(
        d: *mut FDBDatabase,
        tenant_name: *const u8,
        tenant_name_length: c_int,
        out_tenant: *mut *mut FDBTenant,
    ) -> fdb_error_t;

    /// Makes a transaction outside every tenant.
    pub fn fdb_database_create_transaction(
        d: *mut FDBDatabase,
        out_transaction: *mut *mut FDBTransaction,
    ) -> fdb_error_t;

    /// Restarts the server process at `address`; a future of a number, 0 for failure.
    pub fn fdb_database_reboot_worker(
        db: *mut FDBDatabase,
        address: *const u8,
        address_length: c_int,
        check: fdb_bool_t,
        duration: c_int,
    ) -> *mut FDBFuture;

    /// Makes the cluster recover in data centre `dcid`, giving up what was only elsewhere.
    pub fn fdb_database_force_recovery_with_data_loss(
        db: *mut FDBDatabase,
        dcid: *const u8,
        dcid_length: c_int,
    ) -> *mut FDBFuture;

    /// Runs the cluster's snapshot command under the id `uid`.
    pub fn fdb_database_create_snapshot(
        db: *mut FDBDatabase,
        uid: *const u8,
        uid_length: c_int,
        snap_command: *const u8,
        snap_command_length: c_int,
    ) -> *mut FDBFuture;

    /// How busy the client's network thread is, from 0 to 1.
    pub fn fdb_database_get_main_thread_busyness(db: *mut FDBDatabase) -> f64;

    /// A future of the servers' protocol version, once it differs from `expected_version`.
    pub fn fdb_database_get_server_protocol(db: *mut FDBDatabase, expected_version: u64) -> *mut FDBFuture;

    /// A future of a JSON text about this client's connections.
    pub fn fdb_database_get_client_status(db: *mut FDBDatabase) -> *mut FDBFuture;
}
