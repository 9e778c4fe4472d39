//! The database's error codes that the layer acts on.

/// `transaction_too_old`: five seconds are over.
pub(crate) const TOO_OLD: i32 = 1007;

/// `not_committed`: the transaction lost against a concurrent one.
pub(crate) const NOT_COMMITTED: i32 = 1020;

/// `accessed_unreadable`: the transaction has written a key or a value that has its stamp only when it commits, and reads it or a range around it.
pub(crate) const ACCESSED_UNREADABLE: i32 = 1036;

/// `commit_proxy_memory_limit_exceeded`: a cluster cannot take more data at the moment, or the disk of an embedded database is full.
pub(crate) const OUT_OF_SPACE: i32 = 1042;

/// The transaction, a key or a value is above its limit of size.
pub(crate) const TOO_LARGE: std::ops::RangeInclusive<i32> = 2_101..=2_103;
