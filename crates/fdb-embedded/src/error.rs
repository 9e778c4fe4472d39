//! FoundationDB's error codes, from its documentation ("Error codes"). Clients get FoundationDB's
//! own texts ([`texts`]); the texts here are for rustdoc.

mod texts;

use std::ffi::CStr;

/// A FoundationDB error code, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(i32);

macro_rules! codes {
    ($($name:ident = $code:literal $message:literal,)*) => {
        impl Code {
            $(#[doc = concat!("`", stringify!($code), "`: ", $message)] pub const $name: Code = Code($code);)*
        }

        impl std::fmt::Debug for Code {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 {
                    $($code => f.write_str(concat!(stringify!($name), "(", stringify!($code), ")")),)*
                    other => write!(f, "Code({other})"),
                }
            }
        }
    };
}

codes! {
    OPERATION_FAILED = 1000 "the operation failed",
    TIMED_OUT = 1004 "the operation took longer than it was allowed",
    TRANSACTION_TOO_OLD = 1007 "the transaction's read version is more than five seconds old; retry it",
    FUTURE_VERSION = 1009 "the read version lies ahead of the database; retry the transaction",
    NOT_COMMITTED = 1020 "Transaction not committed due to conflict with another transaction",
    COMMIT_UNKNOWN_RESULT = 1021 "the transaction may or may not have been committed",
    TRANSACTION_CANCELLED = 1025 "the transaction was cancelled, reset or destroyed",
    TRANSACTION_TIMED_OUT = 1031 "the transaction ran longer than its timeout option allows",
    TOO_MANY_WATCHES = 1032 "the database handle has as many watches as its max_watches option allows, or all watches of the database take too much memory",
    WATCHES_DISABLED = 1034 "a watch needs read-your-writes, which this transaction has disabled",
    ACCESSED_UNREADABLE = 1036 "read of a key whose versionstamp is not known before the commit",
    PROCESS_BEHIND = 1037 "the storage is behind; retry the transaction",
    DATABASE_LOCKED = 1038 "the database is locked",
    CLUSTER_VERSION_CHANGED = 1039 "the cluster's version changed; the transaction may or may not have been committed",
    COMMIT_PROXY_MEMORY = 1042 "the commit proxy is out of memory; retry the transaction",
    BATCH_THROTTLED = 1051 "the batch transaction was throttled; retry it",
    BLOB_GRANULE_TOO_OLD = 1064 "no blob granule reaches back to that version",
    GRV_PROXY_MEMORY = 1078 "the read version proxy is out of memory; retry the transaction",
    BLOB_GRANULE_FAILED = 1079 "the blob granule request failed; retry the transaction",
    BROKEN_PROMISE = 1100 "the transaction was reset or destroyed before what it promised was there",
    OPERATION_CANCELLED = 1101 "the future was cancelled or destroyed before it was ready",
    FUTURE_RELEASED = 1102 "the future's memory has been released",
    TAG_THROTTLED = 1213 "the transaction's tag is throttled; retry it",
    PROXY_TAG_THROTTLED = 1223 "the transaction's tag is throttled by the proxy; retry it",
    PLATFORM_ERROR = 1500 "the operating system refused an operation",
    IO_ERROR = 1510 "the database's storage failed; standard error says why",
    FILE_NOT_FOUND = 1511 "a file that the database needs does not exist",
    FILE_NOT_READABLE = 1513 "a file that the database needs cannot be read",
    FILE_NOT_WRITABLE = 1514 "a file that the database needs cannot be written",
    NO_CLUSTER_FILE_FOUND = 1515 "no cluster file was found",
    CHECKSUM_FAILED = 1520 "stored data failed its checksum",
    FILE_CORRUPT = 1522 "a database file is damaged",
    LOCK_FILE_FAILURE = 1529 "another process holds the database directory",
    CLIENT_INVALID_OPERATION = 2000 "the call is not valid here",
    COMMIT_READ_INCOMPLETE = 2002 "commit was called while reads were outstanding",
    KEY_OUTSIDE_LEGAL_RANGE = 2004 "the key lies outside the range that this transaction may touch",
    INVERTED_RANGE = 2005 "the range's begin lies after its end",
    INVALID_OPTION_VALUE = 2006 "the option's value is not valid",
    INVALID_OPTION = 2007 "the option is not known or not valid here",
    NETWORK_NOT_SETUP = 2008 "the network has not been set up",
    NETWORK_ALREADY_SETUP = 2009 "the network has already been set up",
    READ_VERSION_ALREADY_SET = 2010 "the transaction already has a read version",
    VERSION_INVALID = 2011 "the version is not valid",
    RANGE_LIMITS_INVALID = 2012 "the range limits are not valid",
    INVALID_DATABASE_NAME = 2013 "the database's name is not \"DB\"",
    FUTURE_NOT_SET = 2015 "the future is not ready yet",
    USED_DURING_COMMIT = 2017 "the transaction was used after its commit had begun",
    INVALID_MUTATION_TYPE = 2018 "the mutation type is not an atomic operation",
    TRANSACTION_INVALID_VERSION = 2020 "the transaction did not commit, so it has no versionstamp",
    NO_COMMIT_VERSION = 2021 "the transaction was read-only, so it has no commit version",
    ENVIRONMENT_OPTION_FAILED = 2022 "a network option in the environment could not be set",
    TRANSACTION_READ_ONLY = 2023 "the transaction is read-only",
    NETWORK_CANNOT_BE_RESTARTED = 2025 "the network has run and cannot be started again in this process",
    BLOCKED_FROM_NETWORK_THREAD = 2026 "waiting for a future on the network thread would never end",
    MAPPER_BAD_INDEX = 2030 "the mapper names an element that the tuple does not have",
    MAPPER_NO_SUCH_KEY = 2031 "the mapper found no such key",
    MAPPER_BAD_RANGE = 2032 "the mapper's {...} is not its last element",
    MAPPED_RANGE_READS_WRITES = 2039 "a mapped range read touched the transaction's own writes",
    KEY_NOT_TUPLE = 2041 "the key is not a tuple",
    VALUE_NOT_TUPLE = 2042 "the value is not a tuple",
    MAPPER_NOT_TUPLE = 2043 "the mapper is not a tuple",
    TRANSACTION_TOO_LARGE = 2101 "the transaction is larger than its size limit",
    KEY_TOO_LARGE = 2102 "the key is longer than 10,000 bytes",
    VALUE_TOO_LARGE = 2103 "the value is longer than 100,000 bytes",
    CONNECTION_STRING_INVALID = 2104 "the connection string is not valid",
    UNSUPPORTED_OPERATION = 2108 "the operation is not supported",
    TOO_MANY_TAGS = 2109 "the transaction has more than five tags",
    TAG_TOO_LONG = 2110 "the tag is longer than 255 bytes",
    SPECIAL_KEYS_CROSS_MODULE = 2112 "the read crosses modules of the special key space",
    SPECIAL_KEYS_NO_MODULE = 2113 "no module of the special key space holds the key",
    SPECIAL_KEYS_WRITE_DISABLED = 2114 "writing special keys needs the special_key_space_enable_writes option",
    SPECIAL_KEYS_NO_WRITE_MODULE = 2115 "no module of the special key space takes that write",
    SPECIAL_KEYS_CROSS_MODULE_CLEAR = 2116 "the clear crosses modules of the special key space",
    SPECIAL_KEYS_API_FAILURE = 2117 "the special key operation failed",
    TENANT_NOT_FOUND = 2131 "the tenant does not exist",
    TENANTS_DISABLED = 2136 "tenants are disabled",
    API_VERSION_UNSET = 2200 "no API version has been selected",
    API_VERSION_ALREADY_SET = 2201 "an API version has already been selected",
    API_VERSION_INVALID = 2202 "the API version is not valid",
    API_VERSION_NOT_SUPPORTED = 2203 "the API version is not supported",
    API_FUNCTION_MISSING = 2204 "the client library or one of its functions could not be loaded",
    EXACT_MODE_WITHOUT_LIMITS = 2210 "exact streaming mode needs a row or a byte limit",
    SNAPSHOT_PATH_NOT_ALLOWED = 2505 "no snapshot command is allowed here",
    SNAPSHOT_ID_INVALID = 2509 "the snapshot's id is not 32 hexadecimal digits",
    UNKNOWN_ERROR = 4000 "an unknown error occurred",
    INTERNAL_ERROR = 4100 "an internal error occurred",
}

impl Code {
    /// FoundationDB's text for the code, NUL-terminated.
    #[must_use]
    pub fn message(self) -> &'static CStr {
        texts::text(self.0)
    }

    /// Internal, never returned to a client: the data for a read has not arrived; fetch it and
    /// repeat the read.
    pub(crate) const MISSING: Code = Code(-1);

    /// The code for a number from the C API; `None` for 0, which means success.
    #[must_use]
    pub const fn from_raw(code: i32) -> Option<Code> {
        if code == 0 { None } else { Some(Code(code)) }
    }

    /// The number that the C API returns.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// True if the commit may have happened, so that a retry has to find out.
    #[must_use]
    pub fn is_maybe_committed(self) -> bool {
        matches!(self, Self::COMMIT_UNKNOWN_RESULT | Self::CLUSTER_VERSION_CHANGED)
    }

    /// True if the commit did not happen and a retry may succeed.
    #[must_use]
    pub fn is_retryable_not_committed(self) -> bool {
        matches!(
            self,
            Self::NOT_COMMITTED
                | Self::TRANSACTION_TOO_OLD
                | Self::FUTURE_VERSION
                | Self::DATABASE_LOCKED
                | Self::GRV_PROXY_MEMORY
                | Self::COMMIT_PROXY_MEMORY
                | Self::BATCH_THROTTLED
                | Self::PROCESS_BEHIND
                | Self::TAG_THROTTLED
                | Self::PROXY_TAG_THROTTLED
        )
    }

    /// True if a retry may succeed, whether or not the first attempt was committed.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        self.is_maybe_committed() || self.is_retryable_not_committed()
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message().to_string_lossy(), self.0)
    }
}

impl std::error::Error for Code {}

/// The result type of the client.
pub type Result<T, E = Code> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_partition_the_retryable_codes() {
        for raw in 1..5000 {
            let code = Code::from_raw(raw).expect("not zero");
            assert!(!(code.is_maybe_committed() && code.is_retryable_not_committed()), "{code:?}");
        }
        assert!(Code::NOT_COMMITTED.is_retryable());
        assert!(!Code::TRANSACTION_CANCELLED.is_retryable());
    }

    #[test]
    fn error_texts_equal_those_of_foundationdb() {
        let text = |code: i32| Code::from_raw(code).expect("not zero").message();
        assert_eq!(text(1007), c"Transaction is too old to perform reads or be committed");
        assert_eq!(text(1020), c"Transaction not committed due to conflict with another transaction");
        assert_eq!(text(1021), c"Transaction may or may not have committed");
        assert_eq!(text(1031), c"Operation aborted because the transaction timed out");
        assert_eq!(text(2101), c"Transaction exceeds byte limit");
        assert_eq!(text(2203), c"API version not supported");
        for unknown in [-1, 2, 999, 4999, i32::MAX, i32::MIN] {
            assert_eq!(text(unknown), c"UNKNOWN_ERROR");
        }
    }
}
