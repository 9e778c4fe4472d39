//! The id of a lease.

use std::fmt;
use std::str::FromStr;

use crate::model::session_id::SessionId;

/// Which lease it is: no other has or had this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    /// The session that took it.
    pub session: SessionId,
    /// The number of its attempt.
    pub number: u64,
}

/// A text is not the id of a lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lease {text:?} is not 32 hexadecimal digits, a hyphen and a number")]
pub struct ParseLeaseIdError {
    text: String,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}-{}", self.session, self.number)
    }
}

impl FromStr for LeaseId {
    type Err = ParseLeaseIdError;

    fn from_str(text: &str) -> Result<LeaseId, ParseLeaseIdError> {
        let parse = || {
            let (session, number) = text.split_once('-')?;
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            if session.len() != 32 || !session.bytes().all(is_digit) || number.starts_with(['+', '0']) {
                return None;
            }
            let session = u128::from_str_radix(session, 16).ok()?.to_be_bytes();
            Some(LeaseId { session: SessionId(session), number: number.parse().ok()? })
        };
        parse().ok_or_else(|| ParseLeaseIdError { text: text.to_owned() })
    }
}
