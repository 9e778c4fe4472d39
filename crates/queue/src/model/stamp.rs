//! The stamp of a push.

use std::fmt;
use std::str::FromStr;

/// A 96-bit versionstamp: commit version, order within it, and order within the transaction, each big-endian.
///
/// Stamps of one cluster order as their commits did. They print as 24 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp([u8; Stamp::LEN]);

/// A text is not a stamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stamp {text:?} is not 24 hexadecimal digits")]
pub struct ParseStampError {
    text: String,
}

impl Stamp {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// The stamp of the push number `user` in the transaction that committed as `transaction`.
    pub(crate) fn new(transaction: [u8; 10], user: u16) -> Stamp {
        let mut bytes = [0; Stamp::LEN];
        bytes[..10].copy_from_slice(&transaction);
        bytes[10..].copy_from_slice(&user.to_be_bytes());
        Stamp(bytes)
    }

    /// The bytes as they stand in keys.
    pub fn as_bytes(&self) -> &[u8; Stamp::LEN] {
        &self.0
    }

    /// The database version the push committed at, about 10^6 a second.
    pub fn version(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// Which push of its transaction it was, from 0.
    pub fn user_version(&self) -> u16 {
        u16::from_be_bytes([self.0[10], self.0[11]])
    }
}

impl From<[u8; Stamp::LEN]> for Stamp {
    fn from(bytes: [u8; Stamp::LEN]) -> Stamp {
        Stamp(bytes)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp({self})")
    }
}

impl FromStr for Stamp {
    type Err = ParseStampError;

    fn from_str(text: &str) -> Result<Stamp, ParseStampError> {
        let refused = || ParseStampError { text: text.to_owned() };
        if text.len() != 2 * Stamp::LEN || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(refused());
        }
        let mut bytes = [0; Stamp::LEN];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| refused())?;
        }
        Ok(Stamp(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stamp_parts_are_big_endian() {
        let stamp = Stamp::new([0, 0, 0, 0, 0, 0, 1, 2, 0, 3], 0x0405);
        assert_eq!(stamp.to_string(), "000000000000010200030405");
        assert_eq!(stamp.version(), 0x0102);
        assert_eq!(stamp.user_version(), 0x0405);
    }

    #[test]
    fn a_malformed_stamp_is_refused() {
        for text in
            ["", "00", "00000000000001020003040g", "+00000000000010200030405", "é0000000000000102000304"]
        {
            assert_eq!(text.parse::<Stamp>(), Err(ParseStampError { text: text.to_owned() }));
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(bytes: [u8; Stamp::LEN]) {
            let stamp = Stamp::from(bytes);
            prop_assert_eq!(stamp.to_string().parse(), Ok(stamp));
        }

        #[test]
        fn later_commits_sort_later(a: ([u8; 10], u16), b: ([u8; 10], u16)) {
            prop_assert_eq!(Stamp::new(a.0, a.1).cmp(&Stamp::new(b.0, b.1)), a.cmp(&b));
        }
    }
}
