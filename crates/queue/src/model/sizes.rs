//! The largest names, payloads and transactions.

/// The longest value in bytes: FoundationDB's limit. Longer payloads are stored in several.
pub const MAX_VALUE: usize = 100_000;

/// The longest payload in bytes, unless [`PushOptions::max_payload`](crate::PushOptions::max_payload) says otherwise.
pub const MAX_PAYLOAD: usize = 8 << 20;

/// The longest payload in bytes that can be allowed: it has to fit into one transaction of FoundationDB's, of 10,000,000 bytes, with
/// the keys of its parts.
pub const PAYLOAD_CEILING: usize = 9_000_000;

/// The most bytes of an item's attributes: names and values, and 8 for each.
pub const MAX_ATTRIBUTES: usize = 16 << 10;

/// The longest content type and the longest trace parent in bytes.
pub const MAX_TEXT: usize = 1 << 10;

/// The longest unique key and the longest idempotency key in bytes.
pub const MAX_KEY: usize = 1 << 10;

/// The most bytes that one take gathers, since FoundationDB asks for transactions of at most 1 MB: payloads, side records, and what the database counts for removing them. A single item may
/// have more. A fetch of a keyed queue takes up to 3.5 MB more for the places of the keys that it serves.
pub const MAX_TAKE_BYTES: usize = 1_000_000;

/// The longest key of an item, and the longest pattern of a rule, in bytes.
pub const MAX_ITEM_KEY: usize = 256;

/// The longest queue name in bytes.
pub const MAX_NAME: usize = 255;

/// The longest prefix in bytes. It leaves room below FoundationDB's limit of 10,000 bytes for a name whose
/// every byte needs escaping.
pub const MAX_PREFIX: usize = 4_096;

/// The most pushes to one queue in one transaction: user versions have 16 bits.
pub const MAX_PUSHES: usize = 1 << 16;
