//! FoundationDB's limits, and the bounds of the engine's queues.

/// The longest key of the normal key space in bytes.
pub const MAX_KEY: usize = 10_000;
/// The longest key that starts with 0xFF, in bytes.
pub const MAX_SYSTEM_KEY: usize = 30_000;
/// The longest value in bytes.
pub const MAX_VALUE: usize = 100_000;
/// The default size limit of a transaction in bytes.
pub const TRANSACTION_SIZE: i64 = 10_000_000;
/// How long a version stays readable and its conflicts are remembered, in versions: 5 seconds.
pub const VERSION_WINDOW: i64 = 5_000_000;
/// Versions per second.
pub const VERSIONS_PER_SECOND: i64 = 1_000_000;
/// The default limit of outstanding watches of a database handle.
pub const MAX_WATCHES: usize = 10_000;
/// The most bytes of keys and values of all watches of a database. Another watch fails with
/// `TOO_MANY_WATCHES`.
pub const MAX_WATCH_BYTES: usize = 256 << 20;
/// The highest version to which versions can be advanced. As on a cluster, a thousand years before
/// the numbers end.
pub const MAX_ADVANCE: i64 = i64::MAX - 1 - VERSIONS_PER_SECOND * 3_600 * 24 * 365 * 1_000;
/// The most transactions in a batch. Their order is a 16-bit number.
pub const MAX_BATCH_TRANSACTIONS: usize = 16_384;
/// A batch takes no further transaction after this many bytes of mutations.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// The most bytes of queued commits. Further ones fail with `COMMIT_PROXY_MEMORY`. A single commit
/// is always accepted.
pub const MAX_QUEUED_COMMIT_BYTES: usize = 256 << 20;
/// The most bytes of written ranges that are kept for conflict detection. If the last five seconds
/// wrote more, the oldest are dropped, and transactions that read before them fail with
/// `TRANSACTION_TOO_OLD`.
pub const MAX_CONFLICT_BYTES: usize = 256 << 20;
/// The most bytes of the undo log: keys, values before and after, and about 110 bytes for each. The
/// undo records of the flush in progress come in addition, as many at most, in buffers of up to
/// twice that.
pub const MAX_UNDO_BYTES: usize = 128 << 20;
/// A snapshot is released after this many written bytes, even if a transaction reads from it. redb
/// takes new space as long as it cannot reuse freed pages. It has up to 32 MiB more in memory,
/// which are written later.
pub const MAX_PINNED_BYTES: u64 = 32 << 20;
/// The same while the disk is full.
pub const MAX_PINNED_BYTES_FULL: u64 = 256 << 10;

/// The most read views that stay readable as long as they are kept. Backups use them.
pub const MAX_PINNED_VIEWS: usize = 2;

/// Raw access allows keys to be this many bytes longer. Reads accept such keys even without it.
const RAW_PREFIX: usize = 8;

/// The longest key that can be written near `key`, with or without raw access.
pub fn key_limit(key: &[u8], is_raw: bool) -> usize {
    let limit = if key.first() == Some(&0xff) { MAX_SYSTEM_KEY } else { MAX_KEY };
    if is_raw { limit + RAW_PREFIX } else { limit }
}

/// True if the key is longer than any stored key.
pub fn exceeds_key_limit(key: &[u8]) -> bool {
    key.len() > key_limit(key, true)
}

/// Shortens a bound that is longer than any key by one byte more than that: it compares the same.
pub fn clamp_bound(key: &[u8]) -> &[u8] {
    &key[..key.len().min(key_limit(key, true) + 1)]
}
