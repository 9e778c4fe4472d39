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
/// Bytes of the keys and values that all watches of a database keep, at most; a further watch fails with `TOO_MANY_WATCHES`.
pub const MAX_WATCH_BYTES: usize = 256 << 20;
/// The highest version that versions can be told to go on from: as on a cluster, a thousand years before their numbers end.
pub const MAX_ADVANCE: i64 = i64::MAX - 1 - VERSIONS_PER_SECOND * 3_600 * 24 * 365 * 1_000;
/// Transactions that one commit batch takes at most (their order is a 16-bit number).
pub const MAX_BATCH_TRANSACTIONS: usize = 16_384;
/// Bytes of mutations after which a commit batch takes no further transaction.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// Bytes of commits that wait for the next batch, at most; further ones get `COMMIT_PROXY_MEMORY`. One commit always may wait.
pub const MAX_WAITING_BYTES: usize = 256 << 20;
/// Bytes of written ranges that are remembered to find conflicts. If the last five seconds wrote more, the oldest are forgotten, and
/// transactions that read before them get `TRANSACTION_TOO_OLD`.
pub const MAX_CONFLICT_BYTES: usize = 256 << 20;
/// Bytes of what groups of batches changed that are kept to read at versions of the last five seconds: keys, values before and after, and
/// about 110 for each. What the group under way has noted comes on top, as many at most, in buffers of up to twice that.
pub const MAX_UNDO_BYTES: usize = 128 << 20;
/// Bytes written after which a snapshot is let go, although somebody reads from it: redb takes new space as long as it
/// may not use again what was freed. It has up to 32 MiB more in memory, which are written later.
pub const MAX_PINNED_BYTES: u64 = 32 << 20;
/// The same while the disk is full.
pub const MAX_PINNED_BYTES_FULL: u64 = 256 << 10;

/// Views of an engine that can be read for as long as they are kept, at most: what backups read.
pub const MAX_PINNED: usize = 2;

/// What raw access allows a key to be longer; keys of that length are looked for whether or not it is given.
const RAW_PREFIX: usize = 8;

/// The longest key that can be written where `key` lies, with or without raw access.
pub fn key_limit(key: &[u8], is_raw: bool) -> usize {
    let limit = if key.first() == Some(&0xff) { MAX_SYSTEM_KEY } else { MAX_KEY };
    if is_raw { limit + RAW_PREFIX } else { limit }
}

/// Is the key longer than any that is stored?
pub fn is_too_long_to_be_there(key: &[u8]) -> bool {
    key.len() > key_limit(key, true)
}

/// A bound without what is of no use in it: a key that is too long to be there ends one byte after those that are not.
pub fn cut(key: &[u8]) -> &[u8] {
    &key[..key.len().min(key_limit(key, true) + 1)]
}
