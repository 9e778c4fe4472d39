//! FoundationDB's limits, and the bounds of our own queues.

/// Longest key of the normal key space, bytes.
pub const MAX_KEY: usize = 10_000;
/// Longest key that starts with 0xFF, bytes.
pub const MAX_SYSTEM_KEY: usize = 30_000;
/// Longest value, bytes.
pub const MAX_VALUE: usize = 100_000;
/// Default of the transaction size limit, bytes.
pub const TRANSACTION_SIZE: i64 = 10_000_000;
/// How long a version stays readable and its conflicts are remembered, in versions: 5 seconds.
pub const VERSION_WINDOW: i64 = 5_000_000;
/// Versions a second.
pub const VERSIONS_PER_SECOND: i64 = 1_000_000;
/// Watches that one database handle may have outstanding, unless its option says otherwise.
pub const MAX_WATCHES: usize = 10_000;
/// Transactions that one commit batch takes at most (their order is a 16-bit number).
pub const MAX_BATCH_TRANSACTIONS: usize = 16_384;
/// Bytes of mutations after which a commit batch takes no further transaction.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// Bytes of what batches changed that are kept to read at versions of the last five seconds.
pub const MAX_HISTORY_BYTES: usize = 128 << 20;
/// Bytes written after which a snapshot is let go, although somebody reads from it: redb takes new space as long as it
/// may not use again what was freed.
pub const MAX_PINNED_BYTES: u64 = 64 << 20;

/// The longest key that the key space of `key` allows.
pub fn key_limit(key: &[u8]) -> usize {
    if key.first() == Some(&0xff) { MAX_SYSTEM_KEY } else { MAX_KEY }
}
