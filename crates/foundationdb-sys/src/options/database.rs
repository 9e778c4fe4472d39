//! Codes for `fdb_database_set_option`.

#![expect(missing_docs, reason = "names and values are the C header's, where each is described")]

use std::ffi::c_uint;

/// An option of one database handle; also the default of its transactions.
pub type FDBDatabaseOption = c_uint;
pub const FDBDatabaseOption_FDB_DB_OPTION_LOCATION_CACHE_SIZE: FDBDatabaseOption = 10;
pub const FDBDatabaseOption_FDB_DB_OPTION_MAX_WATCHES: FDBDatabaseOption = 20;
pub const FDBDatabaseOption_FDB_DB_OPTION_MACHINE_ID: FDBDatabaseOption = 21;
pub const FDBDatabaseOption_FDB_DB_OPTION_DATACENTER_ID: FDBDatabaseOption = 22;
pub const FDBDatabaseOption_FDB_DB_OPTION_SNAPSHOT_RYW_ENABLE: FDBDatabaseOption = 26;
pub const FDBDatabaseOption_FDB_DB_OPTION_SNAPSHOT_RYW_DISABLE: FDBDatabaseOption = 27;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_LOGGING_MAX_FIELD_LENGTH: FDBDatabaseOption = 405;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_TIMEOUT: FDBDatabaseOption = 500;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_RETRY_LIMIT: FDBDatabaseOption = 501;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_MAX_RETRY_DELAY: FDBDatabaseOption = 502;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_SIZE_LIMIT: FDBDatabaseOption = 503;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_CAUSAL_READ_RISKY: FDBDatabaseOption = 504;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_INCLUDE_PORT_IN_ADDRESS: FDBDatabaseOption = 505;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_AUTOMATIC_IDEMPOTENCY: FDBDatabaseOption = 506;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_BYPASS_UNREADABLE: FDBDatabaseOption = 700;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_USED_DURING_COMMIT_PROTECTION_DISABLE:
    FDBDatabaseOption = 701;
pub const FDBDatabaseOption_FDB_DB_OPTION_TRANSACTION_REPORT_CONFLICTING_KEYS: FDBDatabaseOption = 702;
pub const FDBDatabaseOption_FDB_DB_OPTION_USE_CONFIG_DATABASE: FDBDatabaseOption = 800;
pub const FDBDatabaseOption_FDB_DB_OPTION_TEST_CAUSAL_READ_RISKY: FDBDatabaseOption = 900;
