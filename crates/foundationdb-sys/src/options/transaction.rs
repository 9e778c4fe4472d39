//! Codes for `fdb_transaction_set_option`.

#![expect(missing_docs, reason = "names and values are the C header's, where each is described")]

use std::ffi::c_uint;

/// An option of one transaction.
pub type FDBTransactionOption = c_uint;
pub const FDBTransactionOption_FDB_TR_OPTION_CAUSAL_WRITE_RISKY: FDBTransactionOption = 10;
pub const FDBTransactionOption_FDB_TR_OPTION_CAUSAL_READ_RISKY: FDBTransactionOption = 20;
pub const FDBTransactionOption_FDB_TR_OPTION_CAUSAL_READ_DISABLE: FDBTransactionOption = 21;
pub const FDBTransactionOption_FDB_TR_OPTION_INCLUDE_PORT_IN_ADDRESS: FDBTransactionOption = 23;
pub const FDBTransactionOption_FDB_TR_OPTION_NEXT_WRITE_NO_WRITE_CONFLICT_RANGE: FDBTransactionOption = 30;
pub const FDBTransactionOption_FDB_TR_OPTION_COMMIT_ON_FIRST_PROXY: FDBTransactionOption = 40;
pub const FDBTransactionOption_FDB_TR_OPTION_CHECK_WRITES_ENABLE: FDBTransactionOption = 50;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_YOUR_WRITES_DISABLE: FDBTransactionOption = 51;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_AHEAD_DISABLE: FDBTransactionOption = 52;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_SERVER_SIDE_CACHE_ENABLE: FDBTransactionOption = 507;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_SERVER_SIDE_CACHE_DISABLE: FDBTransactionOption = 508;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_PRIORITY_NORMAL: FDBTransactionOption = 509;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_PRIORITY_LOW: FDBTransactionOption = 510;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_PRIORITY_HIGH: FDBTransactionOption = 511;
pub const FDBTransactionOption_FDB_TR_OPTION_DURABILITY_DATACENTER: FDBTransactionOption = 110;
pub const FDBTransactionOption_FDB_TR_OPTION_DURABILITY_RISKY: FDBTransactionOption = 120;
pub const FDBTransactionOption_FDB_TR_OPTION_DURABILITY_DEV_NULL_IS_WEB_SCALE: FDBTransactionOption = 130;
pub const FDBTransactionOption_FDB_TR_OPTION_PRIORITY_SYSTEM_IMMEDIATE: FDBTransactionOption = 200;
pub const FDBTransactionOption_FDB_TR_OPTION_PRIORITY_BATCH: FDBTransactionOption = 201;
pub const FDBTransactionOption_FDB_TR_OPTION_INITIALIZE_NEW_DATABASE: FDBTransactionOption = 300;
pub const FDBTransactionOption_FDB_TR_OPTION_ACCESS_SYSTEM_KEYS: FDBTransactionOption = 301;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_SYSTEM_KEYS: FDBTransactionOption = 302;
pub const FDBTransactionOption_FDB_TR_OPTION_RAW_ACCESS: FDBTransactionOption = 303;
pub const FDBTransactionOption_FDB_TR_OPTION_BYPASS_STORAGE_QUOTA: FDBTransactionOption = 304;
pub const FDBTransactionOption_FDB_TR_OPTION_DEBUG_DUMP: FDBTransactionOption = 400;
pub const FDBTransactionOption_FDB_TR_OPTION_DEBUG_RETRY_LOGGING: FDBTransactionOption = 401;
pub const FDBTransactionOption_FDB_TR_OPTION_TRANSACTION_LOGGING_ENABLE: FDBTransactionOption = 402;
pub const FDBTransactionOption_FDB_TR_OPTION_DEBUG_TRANSACTION_IDENTIFIER: FDBTransactionOption = 403;
pub const FDBTransactionOption_FDB_TR_OPTION_LOG_TRANSACTION: FDBTransactionOption = 404;
pub const FDBTransactionOption_FDB_TR_OPTION_TRANSACTION_LOGGING_MAX_FIELD_LENGTH: FDBTransactionOption = 405;
pub const FDBTransactionOption_FDB_TR_OPTION_SERVER_REQUEST_TRACING: FDBTransactionOption = 406;
pub const FDBTransactionOption_FDB_TR_OPTION_TIMEOUT: FDBTransactionOption = 500;
pub const FDBTransactionOption_FDB_TR_OPTION_RETRY_LIMIT: FDBTransactionOption = 501;
pub const FDBTransactionOption_FDB_TR_OPTION_MAX_RETRY_DELAY: FDBTransactionOption = 502;
pub const FDBTransactionOption_FDB_TR_OPTION_SIZE_LIMIT: FDBTransactionOption = 503;
pub const FDBTransactionOption_FDB_TR_OPTION_IDEMPOTENCY_ID: FDBTransactionOption = 504;
pub const FDBTransactionOption_FDB_TR_OPTION_AUTOMATIC_IDEMPOTENCY: FDBTransactionOption = 505;
pub const FDBTransactionOption_FDB_TR_OPTION_SNAPSHOT_RYW_ENABLE: FDBTransactionOption = 600;
pub const FDBTransactionOption_FDB_TR_OPTION_SNAPSHOT_RYW_DISABLE: FDBTransactionOption = 601;
pub const FDBTransactionOption_FDB_TR_OPTION_LOCK_AWARE: FDBTransactionOption = 700;
pub const FDBTransactionOption_FDB_TR_OPTION_USED_DURING_COMMIT_PROTECTION_DISABLE: FDBTransactionOption =
    701;
pub const FDBTransactionOption_FDB_TR_OPTION_READ_LOCK_AWARE: FDBTransactionOption = 702;
pub const FDBTransactionOption_FDB_TR_OPTION_FIRST_IN_BATCH: FDBTransactionOption = 710;
pub const FDBTransactionOption_FDB_TR_OPTION_USE_PROVISIONAL_PROXIES: FDBTransactionOption = 711;
pub const FDBTransactionOption_FDB_TR_OPTION_REPORT_CONFLICTING_KEYS: FDBTransactionOption = 712;
pub const FDBTransactionOption_FDB_TR_OPTION_SPECIAL_KEY_SPACE_RELAXED: FDBTransactionOption = 713;
pub const FDBTransactionOption_FDB_TR_OPTION_SPECIAL_KEY_SPACE_ENABLE_WRITES: FDBTransactionOption = 714;
pub const FDBTransactionOption_FDB_TR_OPTION_TAG: FDBTransactionOption = 800;
pub const FDBTransactionOption_FDB_TR_OPTION_AUTO_THROTTLE_TAG: FDBTransactionOption = 801;
pub const FDBTransactionOption_FDB_TR_OPTION_SPAN_PARENT: FDBTransactionOption = 900;
pub const FDBTransactionOption_FDB_TR_OPTION_EXPENSIVE_CLEAR_COST_ESTIMATION_ENABLE: FDBTransactionOption =
    1000;
pub const FDBTransactionOption_FDB_TR_OPTION_BYPASS_UNREADABLE: FDBTransactionOption = 1100;
pub const FDBTransactionOption_FDB_TR_OPTION_USE_GRV_CACHE: FDBTransactionOption = 1101;
pub const FDBTransactionOption_FDB_TR_OPTION_SKIP_GRV_CACHE: FDBTransactionOption = 1102;
pub const FDBTransactionOption_FDB_TR_OPTION_AUTHORIZATION_TOKEN: FDBTransactionOption = 2000;
