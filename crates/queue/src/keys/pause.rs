//! (q, "pause"): the queue is paused. The record is there as long as it is.
//!
//! Written and cleared by any process that operates the queue; read and watched by everyone who hands out its items. A value of a layout that
//! this version does not know pauses the queue all the same.

use crate::model::meta::MAX_REASON;
use crate::model::pause::Pause;
use crate::model::time::{from_millis, millis};

/// Second element of the record's key.
pub(crate) const PAUSE: &[u8] = b"pause";

/// The first byte of a value.
const FORMAT: u8 = 1;

/// The flag of a queue that sweepers leave alone too.
const FROZEN: u8 = 1;

impl Pause {
    /// The value: format, flags, time (u64, little endian), reason.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let reason = &self.reason[..self.reason.floor_char_boundary(MAX_REASON)];
        let mut out = vec![FORMAT, if self.frozen { FROZEN } else { 0 }];
        out.extend_from_slice(&millis(self.at).to_le_bytes());
        out.extend_from_slice(reason.as_bytes());
        out
    }

    /// Reads a value. What another version may have meant by one of another layout is not known, so then nothing is to move.
    pub(crate) fn decode(value: &[u8]) -> Pause {
        Pause::decode_known(value).unwrap_or(Pause { frozen: true, ..Pause::default() })
    }

    fn decode_known(value: &[u8]) -> Option<Pause> {
        let (&FORMAT, rest) = value.split_first()? else { return None };
        let (flags, rest) = rest.split_first()?;
        let (at, reason) = rest.split_first_chunk::<8>()?;
        let reason = std::str::from_utf8(reason).ok()?.to_owned();
        Some(Pause { at: from_millis(u64::from_le_bytes(*at)), frozen: flags & FROZEN != 0, reason })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_unreadable_pause_record_counts_as_a_freeze() {
        let unknown = Pause { frozen: true, ..Pause::default() };
        let known = Pause { at: from_millis(7), frozen: false, reason: "why".to_owned() }.encode();
        let other_format = [&[FORMAT + 1], &known[1..]].concat();
        let not_text = [&known[..], b"\xff"].concat();
        for value in [&b""[..], &known[..1], &known[..9], &other_format, &not_text] {
            assert_eq!(Pause::decode(value), unknown, "{value:?}");
        }
        // Flags of later versions are passed over.
        let flags = [&[FORMAT, 0xfe], &known[2..]].concat();
        assert_eq!(
            Pause::decode(&flags),
            Pause { at: from_millis(7), frozen: false, reason: "why".to_owned() }
        );
    }

    #[test]
    fn a_long_pause_reason_is_cut_between_characters() {
        let pause = Pause { reason: "é".repeat(300), ..Pause::default() };
        assert_eq!(Pause::decode(&pause.encode()).reason, "é".repeat(250));
    }

    proptest! {
        #[test]
        fn pauses_round_trip(at: u64, frozen: bool, reason in "\\PC{0,100}") {
            let pause = Pause { at: from_millis(at), frozen, reason };
            prop_assert_eq!(Pause::decode(&pause.encode()), pause);
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = Pause::decode(&value);
        }
    }
}
