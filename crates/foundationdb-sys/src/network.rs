//! The process: API version selection, the network thread and error codes.

use std::ffi::{c_char, c_int, c_void};

use crate::options::FDBNetworkOption;
use crate::types::{FDBCompletionHook, fdb_bool_t, fdb_error_t};

unsafe extern "C" {
    /// A static, NUL-terminated description of an error code.
    pub fn fdb_get_error(code: fdb_error_t) -> *const c_char;

    /// Whether `code` belongs to the class of errors that `predicate_test` (an `FDBErrorPredicate`) names.
    pub fn fdb_error_predicate(predicate_test: c_int, code: fdb_error_t) -> fdb_bool_t;

    /// Chooses the behaviour version, once per process; `header_version` is [`crate::FDB_API_VERSION`].
    pub fn fdb_select_api_version_impl(runtime_version: c_int, header_version: c_int) -> fdb_error_t;

    /// The newest API version the library answers to.
    pub fn fdb_get_max_api_version() -> c_int;

    /// The library's release, source hash and protocol version, separated by commas.
    pub fn fdb_get_client_version() -> *const c_char;

    /// Sets a process-wide option; only before [`fdb_setup_network`].
    pub fn fdb_network_set_option(
        option: FDBNetworkOption,
        value: *const u8,
        value_length: c_int,
    ) -> fdb_error_t;

    /// Prepares the network; once per process, after the version is selected.
    pub fn fdb_setup_network() -> fdb_error_t;

    /// Runs the event loop on the calling thread until [`fdb_stop_network`].
    pub fn fdb_run_network() -> fdb_error_t;

    /// Asks the event loop to return. It cannot be started again.
    pub fn fdb_stop_network() -> fdb_error_t;

    /// Registers a function that the network thread calls when its loop has returned.
    pub fn fdb_add_network_thread_completion_hook(
        hook: FDBCompletionHook,
        hook_parameter: *mut c_void,
    ) -> fdb_error_t;
}
