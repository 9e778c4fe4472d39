//! Options of databases and transactions: codes, values and defaults, from FoundationDB's published
//! option list for API version 730.

use crate::error::{Code, Result};
use crate::limits::{MAX_WATCHES, TRANSACTION_SIZE};

/// Checks that a flag has no value.
pub(crate) fn flag(value: Option<&[u8]>) -> Result<()> {
    if value.unwrap_or_default().is_empty() { Ok(()) } else { Err(Code::INVALID_OPTION_VALUE) }
}

/// Parses an integer option: eight little-endian bytes.
pub(crate) fn int(value: Option<&[u8]>, min: i64, max: i64) -> Result<i64> {
    let bytes: [u8; 8] = value.and_then(|bytes| bytes.try_into().ok()).ok_or(Code::INVALID_OPTION_VALUE)?;
    let value = i64::from_le_bytes(bytes);
    if (min..=max).contains(&value) { Ok(value) } else { Err(Code::INVALID_OPTION_VALUE) }
}

/// The options that have an effect on a transaction. Others are accepted and ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionOptions {
    /// 500: milliseconds from creation or reset until every call fails; 0 for no limit.
    pub timeout_ms: i64,
    /// 501: how often `on_error` may be used; negative for no limit.
    pub retry_limit: i64,
    /// 502: the longest retry delay in milliseconds.
    pub max_retry_delay_ms: i64,
    /// 503: the size limit in bytes.
    pub size_limit: i64,
    /// 51: reads do not see the transaction's own writes.
    pub ryw_disabled: bool,
    /// 600 and 601, as a counter: snapshot reads see own writes while it is positive.
    pub snapshot_ryw: i64,
    /// 30, one-shot: the next write adds no write conflict range.
    pub next_write_no_conflict: bool,
    /// 301: system keys may be written and read.
    pub access_system_keys: bool,
    /// 302: system keys may be read.
    pub read_system_keys: bool,
    /// 301, 302 or 303: raw access, where keys may be eight bytes longer.
    pub raw_access: bool,
    /// 120: the commit is asynchronous.
    pub durability_risky: bool,
    /// 700: ignores the lock of a locked database.
    pub lock_aware: bool,
    /// 702: like 700, for reads only.
    pub read_lock_aware: bool,
    /// 701: calls during a commit do not make it fail.
    pub used_during_commit_protection_disabled: bool,
    /// 712: after a conflict, the conflicting keys can be read.
    pub report_conflicting_keys: bool,
    /// 713: special key ranges may cross modules.
    pub special_keys_relaxed: bool,
    /// 714: special keys may be written.
    pub special_keys_writes: bool,
    /// 800 and 801: tags, each once.
    pub tags: Vec<Vec<u8>>,
    /// 402 and 403: the name of the transaction in logs.
    pub debug_identifier: Option<Vec<u8>>,
    /// 1100: `get` returns a versionstamped value without its stamp.
    pub bypass_unreadable: bool,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            timeout_ms: 0,
            retry_limit: -1,
            max_retry_delay_ms: 1000,
            size_limit: TRANSACTION_SIZE,
            ryw_disabled: false,
            snapshot_ryw: 1,
            next_write_no_conflict: false,
            access_system_keys: false,
            read_system_keys: false,
            raw_access: false,
            durability_risky: false,
            lock_aware: false,
            read_lock_aware: false,
            used_during_commit_protection_disabled: false,
            report_conflicting_keys: false,
            special_keys_relaxed: false,
            special_keys_writes: false,
            tags: Vec::new(),
            debug_identifier: None,
            bypass_unreadable: false,
        }
    }
}

const DELAY_MAX_MS: i64 = i32::MAX as i64;
/// The most tags of a transaction.
const MAX_TAGS: usize = 5;
/// The longest tag in bytes.
const MAX_TAG: usize = 255;
/// The longest name in logs, in bytes.
const MAX_IDENTIFIER: usize = 100;
/// The length of a span id in bytes.
const SPAN_LEN: usize = 33;

impl TransactionOptions {
    /// True if this is the code of a transaction option.
    #[must_use]
    pub fn is_known(code: i32) -> bool {
        matches!(code,
            10 | 20 | 21 | 23 | 30 | 40 | 50..=52 | 110 | 120 | 130 | 200 | 201 | 300..=304 | 400..=406
            | 500..=505 | 507..=511 | 600 | 601 | 700..=702 | 710..=714 | 800 | 801 | 900 | 1000
            | 1100..=1102 | 2000)
    }

    /// Sets a transaction option. `used` tells that the transaction has read or written before.
    pub fn set(&mut self, code: i32, value: Option<&[u8]>, used: bool) -> Result<()> {
        match code {
            500 => self.timeout_ms = int(value, 0, DELAY_MAX_MS)?,
            501 => self.retry_limit = int(value, -1, DELAY_MAX_MS)?,
            502 => self.max_retry_delay_ms = int(value, 0, DELAY_MAX_MS)?,
            503 => self.size_limit = int(value, 32, TRANSACTION_SIZE)?,
            504 => {
                let len = value.unwrap_or_default().len();
                return if (16..256).contains(&len) { Ok(()) } else { Err(Code::INVALID_OPTION) };
            }
            402 | 403 => self.identify(value.unwrap_or_default())?,
            404 if self.debug_identifier.is_none() => return Err(Code::CLIENT_INVALID_OPERATION),
            405 if int(value, -1, DELAY_MAX_MS)? == 0 => return Err(Code::INVALID_OPTION_VALUE),
            800 | 801 => self.add_tag(value.unwrap_or_default())?,
            900 if value.unwrap_or_default().len() != SPAN_LEN => return Err(Code::INVALID_OPTION_VALUE),
            // Ignored options, with any value.
            304 | 401 | 405 | 508..=511 | 900 | 2000 => {}
            _ => {
                flag(value)?;
                self.set_flag(code, used)?;
            }
        }
        Ok(())
    }

    fn add_tag(&mut self, tag: &[u8]) -> Result<()> {
        if tag.len() > MAX_TAG {
            return Err(Code::TAG_TOO_LONG);
        }
        if self.tags.len() == MAX_TAGS {
            return Err(Code::TOO_MANY_TAGS);
        }
        if !self.tags.iter().any(|known| known == tag) {
            self.tags.push(tag.to_vec());
        }
        Ok(())
    }

    fn identify(&mut self, identifier: &[u8]) -> Result<()> {
        if identifier.is_empty() || identifier.len() > MAX_IDENTIFIER {
            return Err(Code::INVALID_OPTION_VALUE);
        }
        match &self.debug_identifier {
            Some(known) if known != identifier => Err(Code::CLIENT_INVALID_OPERATION),
            _ => {
                self.debug_identifier = Some(identifier.to_vec());
                Ok(())
            }
        }
    }

    fn set_flag(&mut self, code: i32, used: bool) -> Result<()> {
        match code {
            30 => self.next_write_no_conflict = true,
            51 if used => return Err(Code::CLIENT_INVALID_OPERATION),
            51 => self.ryw_disabled = true,
            120 => self.durability_risky = true,
            301 => (self.access_system_keys, self.raw_access) = (true, true),
            302 => (self.read_system_keys, self.raw_access) = (true, true),
            303 => self.raw_access = true,
            600 => self.snapshot_ryw += 1,
            601 => self.snapshot_ryw -= 1,
            700 => self.lock_aware = true,
            701 => self.used_during_commit_protection_disabled = true,
            702 => self.read_lock_aware = true,
            712 => self.report_conflicting_keys = true,
            713 => self.special_keys_relaxed = true,
            714 => self.special_keys_writes = true,
            1100 => self.bypass_unreadable = true,
            _ => {}
        }
        Ok(())
    }

    /// The options after `on_error`: the persistent ones, and `defaults` otherwise.
    #[must_use]
    pub fn persistent(&self, defaults: &TransactionOptions) -> TransactionOptions {
        TransactionOptions {
            timeout_ms: self.timeout_ms,
            retry_limit: self.retry_limit,
            max_retry_delay_ms: self.max_retry_delay_ms,
            ..defaults.clone()
        }
    }
}

/// Options of a database handle.
#[derive(Debug, Clone)]
pub struct DatabaseOptions {
    /// 20: the most outstanding watches.
    pub max_watches: usize,
    /// The initial options of new transactions.
    pub defaults: TransactionOptions,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        DatabaseOptions { max_watches: MAX_WATCHES, defaults: TransactionOptions::default() }
    }
}

impl DatabaseOptions {
    /// Sets a database option.
    pub fn set(&mut self, code: i32, value: Option<&[u8]>) -> Result<()> {
        match code {
            10 => int(value, 0, i64::from(i32::MAX)).map(drop),
            20 => {
                let max = int(value, 0, 1_000_000)?;
                self.max_watches = usize::try_from(max).map_err(|_| Code::INVALID_OPTION_VALUE)?;
                Ok(())
            }
            21 | 22 => Ok(()),
            26 => flag(value).map(|()| self.defaults.snapshot_ryw += 1),
            27 => flag(value).map(|()| self.defaults.snapshot_ryw -= 1),
            405 | 500..=503 => self.defaults.set(code, value, false),
            504 => self.defaults.set(20, value, false),
            505 => self.defaults.set(23, value, false),
            506 => self.defaults.set(505, value, false),
            700 => self.defaults.set(1100, value, false),
            701 => self.defaults.set(701, value, false),
            702 => self.defaults.set(712, value, false),
            800 | 900 => flag(value),
            _ => Err(Code::INVALID_OPTION),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_option_values_are_checked() {
        let mut options = TransactionOptions::default();
        assert_eq!(options.set(500, Some(&7i64.to_le_bytes()), false), Ok(()));
        assert_eq!(options.timeout_ms, 7);
        assert_eq!(options.set(500, Some(&7i32.to_le_bytes()), false), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(options.set(500, Some(&(-1i64).to_le_bytes()), false), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(options.set(503, Some(&31i64.to_le_bytes()), false), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(options.set(51, None, true), Err(Code::CLIENT_INVALID_OPERATION));
        assert_eq!(options.set(30, Some(b"x"), false), Err(Code::INVALID_OPTION_VALUE));
        for (len, outcome) in
            [(15, Err(Code::INVALID_OPTION)), (16, Ok(())), (255, Ok(())), (256, Err(Code::INVALID_OPTION))]
        {
            assert_eq!(
                options.set(504, Some(&vec![7; len]), false),
                outcome,
                "an idempotency id of {len} bytes"
            );
        }
        assert!(!TransactionOptions::is_known(9999));
        assert_eq!(DatabaseOptions::default().set(9999, None), Err(Code::INVALID_OPTION));
    }

    #[test]
    fn database_defaults_reach_the_transactions_and_last_over_a_retry() {
        let mut database = DatabaseOptions::default();
        database.set(501, Some(&3i64.to_le_bytes())).unwrap();
        database.set(702, None).unwrap();
        let mut options = database.defaults.clone();
        assert!(options.report_conflicting_keys && options.retry_limit == 3);
        options.set(500, Some(&9i64.to_le_bytes()), false).unwrap();
        options.set(301, None, false).unwrap();
        let after = options.persistent(&database.defaults);
        assert!(after.timeout_ms == 9 && after.report_conflicting_keys && !after.access_system_keys);
    }
}
