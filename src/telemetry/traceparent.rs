//! The trace that an item was pushed for, as W3C's Trace Context has it: `00-TRACE-PARENT-FLAGS` in hexadecimal digits.

use std::fmt;

use kvqueue_queue::Item;

/// The trace that the item is a part of. It comes from outside, so a text of another form is
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(super) trace: u128,
    pub(super) parent: u64,
    pub(super) flags: u8,
}

impl TraceParent {
    /// The trace parent that an item was pushed with, or its attribute `traceparent`.
    pub(crate) fn of(item: &Item) -> Option<Self> {
        let meta = item.meta.as_ref()?;
        let text = meta.trace_parent.as_deref().or_else(|| item.attribute("traceparent"))?;
        Self::parse(text)
    }

    /// Later versions than 00 may have more after the flags, which is ignored.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |digits| parts.next().filter(|part| is_hex(part, digits));
        let (version, trace, parent, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let more = parts.next();
        if version == "ff" || (version == "00" && more.is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok()?;
        let parent = u64::from_str_radix(parent, 16).ok()?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (trace != 0 && parent != 0).then_some(Self { trace, parent, flags })
    }
}

/// The error for a text of another form.
pub(crate) const NO_TRACE_PARENT: &str =
    "not a W3C traceparent; write it as in 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Whether a text has the form of a trace parent.
pub(crate) fn is_trace_parent(text: &str) -> bool {
    TraceParent::parse(text).is_some()
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.parent, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sample;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_parent_round_trips() {
        let parent = TraceParent::parse(TEXT).unwrap();
        assert_eq!((parent.parent, parent.flags), (0x00f0_67aa_0ba9_02b7, 1));
        assert_eq!(parent.to_string(), TEXT);
    }

    #[test]
    fn a_trace_parent_of_a_later_version_may_have_more_fields() {
        let later = TEXT.replacen("00", "01", 1) + "-more";
        assert_eq!(TraceParent::parse(&later), TraceParent::parse(TEXT));
    }

    #[test]
    fn a_malformed_trace_parent_is_refused() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn trace_parent_is_read_from_an_attribute() {
        let of = |sample: Sample| TraceParent::of(&sample.build()).map(|parent| parent.to_string());
        assert_eq!(of(Sample::new("")), None);
        assert_eq!(of(Sample::new("").attribute("traceparent", TEXT)).as_deref(), Some(TEXT));
        assert_eq!(of(Sample::new("").trace_parent("no").attribute("traceparent", TEXT)), None);
    }
}
