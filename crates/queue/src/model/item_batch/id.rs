//! Which batch it is.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::model::session_id::SessionId;
use crate::model::sizes::MAX_NAME;

/// The most batches that one item is a member of.
pub const MAX_ITEM_BATCHES: usize = 100;

/// The length of what tells batches of one queue apart.
const UNIQUE: usize = 16;

/// How the hexadecimal form of a name begins that cannot stand in an id as it is.
const HEX: &str = "x.";

/// The id of a batch: its home, which is the queue that gets the callback, and 16 bytes that no other batch has.
///
/// Its text is the name of the home, a hyphen and 32 hexadecimal digits. A name of other bytes than letters, digits, `.`, `_` and `-` is written in
/// hexadecimal digits behind `x.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(Bytes);

/// A text is not the id of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "batch id {text:?} is not the name of a queue, a hyphen and 32 hexadecimal digits; use the id that `kvqueue batch new` printed"
)]
pub struct ParseBatchIdError {
    text: String,
}

impl BatchId {
    /// The id of a new batch whose callback goes to the queue of this name. It has random bytes, and is different each time.
    pub fn new(home: &[u8]) -> BatchId {
        BatchId::with_unique(home, SessionId::new().0)
    }

    /// An id with bytes of the caller's, which no other batch of the queue has. Simulations use it, so that a run can be repeated.
    pub fn with_unique(home: &[u8], unique: [u8; UNIQUE]) -> BatchId {
        BatchId([unique.as_slice(), home].concat().into())
    }

    /// The name of the queue that gets the callback.
    pub fn home(&self) -> &[u8] {
        &self.0[UNIQUE..]
    }

    pub(crate) fn unique(&self) -> [u8; UNIQUE] {
        *self.0.first_chunk().expect("an id begins with its unique bytes")
    }

    /// As side records have it.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<BatchId> {
        let is_one = (UNIQUE + 1..=UNIQUE + MAX_NAME).contains(&bytes.len());
        is_one.then(|| BatchId(Bytes::copy_from_slice(bytes)))
    }
}

/// Whether a name stands in an id as it is.
fn is_plain(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    name.iter().all(is_plain) && !name.starts_with(HEX.as_bytes())
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.home()) {
            Ok(name) if is_plain(self.home()) => f.write_str(name)?,
            _ => {
                f.write_str(HEX)?;
                self.home().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
        }
        f.write_str("-")?;
        self.unique().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchId({self})")
    }
}

impl FromStr for BatchId {
    type Err = ParseBatchIdError;

    fn from_str(text: &str) -> Result<BatchId, ParseBatchIdError> {
        let parse = || {
            let (name, unique) = text.rsplit_once('-')?;
            let unique = bytes_of(unique)?.try_into().ok()?;
            let name = match name.strip_prefix(HEX) {
                Some(digits) => bytes_of(digits)?,
                None => name.as_bytes().to_vec(),
            };
            let id = BatchId::from_bytes(BatchId::with_unique(&name, unique).as_bytes())?;
            // A batch has one name.
            (id.to_string() == text).then_some(id)
        };
        parse().ok_or_else(|| ParseBatchIdError { text: text.to_owned() })
    }
}

/// The bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_whole = digits.len().is_multiple_of(2) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    if is_whole { (0..digits.len()).step_by(2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_text_of_a_batch_id_names_its_home() {
        let text = |name: &[u8]| BatchId::with_unique(name, [0xab; 16]).to_string();
        let digits = "ab".repeat(16);
        assert_eq!(text(b"daily-reports"), format!("daily-reports-{digits}"));
        assert_eq!(text(b"a/b"), format!("x.612f62-{digits}"));
        assert_eq!(text(b"x.y"), format!("x.782e79-{digits}"));
    }

    #[test]
    fn a_malformed_batch_id_is_refused() {
        let digits = "ab".repeat(16);
        let upper = digits.to_uppercase();
        let others = [
            String::new(),
            digits.clone(),
            format!("-{digits}"),
            format!("q-{upper}"),
            format!("q-{digits}0"),
            format!("x.71-{digits}"),
            format!("x.7-{digits}"),
            format!("é-{digits}"),
            format!("{}-{digits}", "q".repeat(256)),
        ];
        for text in others {
            assert_eq!(text.parse::<BatchId>(), Err(ParseBatchIdError { text }));
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(home in prop::collection::vec(any::<u8>(), 1..=MAX_NAME), unique: [u8; 16]) {
            let id = BatchId::with_unique(&home, unique);
            prop_assert_eq!(id.to_string().parse(), Ok(id.clone()));
            prop_assert_eq!(BatchId::from_bytes(id.as_bytes()), Some(id.clone()));
            prop_assert_eq!((id.home(), id.unique()), (home.as_slice(), unique));
        }
    }
}
