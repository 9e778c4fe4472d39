//! Codes for `fdb_network_set_option`.

#![expect(missing_docs, reason = "names and values are the C header's, where each is described")]

use std::ffi::c_uint;

/// A process-wide option, set before the network starts.
pub type FDBNetworkOption = c_uint;
pub const FDBNetworkOption_FDB_NET_OPTION_LOCAL_ADDRESS: FDBNetworkOption = 10;
pub const FDBNetworkOption_FDB_NET_OPTION_CLUSTER_FILE: FDBNetworkOption = 20;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_ENABLE: FDBNetworkOption = 30;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_ROLL_SIZE: FDBNetworkOption = 31;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_MAX_LOGS_SIZE: FDBNetworkOption = 32;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_LOG_GROUP: FDBNetworkOption = 33;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_FORMAT: FDBNetworkOption = 34;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_CLOCK_SOURCE: FDBNetworkOption = 35;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_FILE_IDENTIFIER: FDBNetworkOption = 36;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_SHARE_AMONG_CLIENT_THREADS: FDBNetworkOption = 37;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_INITIALIZE_ON_SETUP: FDBNetworkOption = 38;
pub const FDBNetworkOption_FDB_NET_OPTION_TRACE_PARTIAL_FILE_SUFFIX: FDBNetworkOption = 39;
pub const FDBNetworkOption_FDB_NET_OPTION_KNOB: FDBNetworkOption = 40;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_PLUGIN: FDBNetworkOption = 41;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_CERT_BYTES: FDBNetworkOption = 42;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_CERT_PATH: FDBNetworkOption = 43;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_KEY_BYTES: FDBNetworkOption = 45;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_KEY_PATH: FDBNetworkOption = 46;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_VERIFY_PEERS: FDBNetworkOption = 47;
pub const FDBNetworkOption_FDB_NET_OPTION_BUGGIFY_ENABLE: FDBNetworkOption = 48;
pub const FDBNetworkOption_FDB_NET_OPTION_BUGGIFY_DISABLE: FDBNetworkOption = 49;
pub const FDBNetworkOption_FDB_NET_OPTION_BUGGIFY_SECTION_ACTIVATED_PROBABILITY: FDBNetworkOption = 50;
pub const FDBNetworkOption_FDB_NET_OPTION_BUGGIFY_SECTION_FIRED_PROBABILITY: FDBNetworkOption = 51;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_CA_BYTES: FDBNetworkOption = 52;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_CA_PATH: FDBNetworkOption = 53;
pub const FDBNetworkOption_FDB_NET_OPTION_TLS_PASSWORD: FDBNetworkOption = 54;
pub const FDBNetworkOption_FDB_NET_OPTION_DISABLE_MULTI_VERSION_CLIENT_API: FDBNetworkOption = 60;
pub const FDBNetworkOption_FDB_NET_OPTION_CALLBACKS_ON_EXTERNAL_THREADS: FDBNetworkOption = 61;
pub const FDBNetworkOption_FDB_NET_OPTION_EXTERNAL_CLIENT_LIBRARY: FDBNetworkOption = 62;
pub const FDBNetworkOption_FDB_NET_OPTION_EXTERNAL_CLIENT_DIRECTORY: FDBNetworkOption = 63;
pub const FDBNetworkOption_FDB_NET_OPTION_DISABLE_LOCAL_CLIENT: FDBNetworkOption = 64;
pub const FDBNetworkOption_FDB_NET_OPTION_CLIENT_THREADS_PER_VERSION: FDBNetworkOption = 65;
pub const FDBNetworkOption_FDB_NET_OPTION_FUTURE_VERSION_CLIENT_LIBRARY: FDBNetworkOption = 66;
pub const FDBNetworkOption_FDB_NET_OPTION_RETAIN_CLIENT_LIBRARY_COPIES: FDBNetworkOption = 67;
pub const FDBNetworkOption_FDB_NET_OPTION_IGNORE_EXTERNAL_CLIENT_FAILURES: FDBNetworkOption = 68;
pub const FDBNetworkOption_FDB_NET_OPTION_FAIL_INCOMPATIBLE_CLIENT: FDBNetworkOption = 69;
pub const FDBNetworkOption_FDB_NET_OPTION_DISABLE_CLIENT_STATISTICS_LOGGING: FDBNetworkOption = 70;
pub const FDBNetworkOption_FDB_NET_OPTION_ENABLE_SLOW_TASK_PROFILING: FDBNetworkOption = 71;
pub const FDBNetworkOption_FDB_NET_OPTION_ENABLE_RUN_LOOP_PROFILING: FDBNetworkOption = 71;
pub const FDBNetworkOption_FDB_NET_OPTION_DISABLE_CLIENT_BYPASS: FDBNetworkOption = 72;
pub const FDBNetworkOption_FDB_NET_OPTION_CLIENT_BUGGIFY_ENABLE: FDBNetworkOption = 80;
pub const FDBNetworkOption_FDB_NET_OPTION_CLIENT_BUGGIFY_DISABLE: FDBNetworkOption = 81;
pub const FDBNetworkOption_FDB_NET_OPTION_CLIENT_BUGGIFY_SECTION_ACTIVATED_PROBABILITY: FDBNetworkOption = 82;
pub const FDBNetworkOption_FDB_NET_OPTION_CLIENT_BUGGIFY_SECTION_FIRED_PROBABILITY: FDBNetworkOption = 83;
pub const FDBNetworkOption_FDB_NET_OPTION_DISTRIBUTED_CLIENT_TRACER: FDBNetworkOption = 90;
pub const FDBNetworkOption_FDB_NET_OPTION_CLIENT_TMP_DIR: FDBNetworkOption = 91;
pub const FDBNetworkOption_FDB_NET_OPTION_SUPPORTED_CLIENT_VERSIONS: FDBNetworkOption = 1000;
pub const FDBNetworkOption_FDB_NET_OPTION_EXTERNAL_CLIENT: FDBNetworkOption = 1001;
pub const FDBNetworkOption_FDB_NET_OPTION_EXTERNAL_CLIENT_TRANSPORT_ID: FDBNetworkOption = 1002;
