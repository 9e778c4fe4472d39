//! Items that come with a history: from another queue, or from an export.

use std::time::SystemTime;

use bytes::Bytes;

use crate::model::meta::{MAX_FAILURES, Meta};

/// The state of a stored item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum State {
    /// To be taken.
    #[default]
    Ready,
    /// For this time, to become ready; stored to the [millisecond](crate::millis).
    Later(SystemTime),
    /// For somebody to decide: it is a dead letter.
    Dead,
}

/// An item with all that is known of it, but for its place in a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredItem {
    /// The payload, whole.
    pub payload: Bytes,
    /// The side record. Its `payload_len` means nothing here, and `death` only for a dead letter.
    pub meta: Meta,
    /// Its state.
    pub state: State,
    /// Its priority in a priority queue; 0 in any other.
    pub priority: i64,
    /// Its key in a keyed queue; `None` in any other.
    pub key: Option<Vec<u8>>,
}

impl StoredItem {
    /// Its side record, but for what depends on how the payload is stored.
    pub(crate) fn record(&self) -> Meta {
        let meta = &self.meta;
        let excess = meta.failures.len().saturating_sub(MAX_FAILURES);
        let dead = self.state == State::Dead;
        Meta {
            failures: meta.failures[excess..].iter().map(|failure| failure.cut()).collect(),
            death: meta.death.as_ref().filter(|_| dead).map(|death| death.cut()),
            payload_len: None,
            ..meta.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::PushError;
    use crate::model::kind::Kind;
    use crate::model::meta::Failure;
    use crate::model::sizes::MAX_VALUE;
    use crate::model::time::from_millis;

    #[test]
    fn a_record_too_long_for_a_value_is_refused() {
        let mut item = StoredItem::default();
        assert!(item.meta.add_unknown_field(200, vec![0; MAX_VALUE]));
        let error = item.check(Kind::Fifo, 10).expect_err("it is over the limit").to_string();
        assert_eq!(
            error,
            "side record has 100005 bytes, at most 100000 are possible; leave out fields that are not needed"
        );
        item.meta = Meta::default();
        item.priority = 1;
        assert!(matches!(item.check(Kind::Fifo, 10), Err(PushError::NoPriorities { priority: 1 })));
    }

    #[test]
    fn only_a_dead_letters_record_has_its_cause() {
        let death = Some(Failure::new(from_millis(1), 1, "no"));
        let meta = Meta { death: death.clone(), payload_len: Some(3), ..Meta::default() };
        let of = |state| StoredItem { meta: meta.clone(), state, ..StoredItem::default() }.record();
        assert_eq!(of(State::Dead), Meta { death, ..Meta::default() });
        assert_eq!((of(State::Ready), of(State::Later(from_millis(7)))), (Meta::default(), Meta::default()));
    }

    #[test]
    fn too_many_failures_and_long_reasons_are_cut() {
        let failure = |attempt| Failure { at: from_millis(1), attempt, reason: "x".repeat(1_000) };
        let meta = Meta { failures: (1..=12).map(failure).collect(), ..Meta::default() };
        let record = StoredItem { meta, ..StoredItem::default() }.record();
        let kept: Vec<_> =
            (3..=12).map(|attempt| Failure::new(from_millis(1), attempt, &"x".repeat(500))).collect();
        assert_eq!(record.failures, kept);
    }
}
