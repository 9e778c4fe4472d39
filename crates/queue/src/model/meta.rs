//! An item's side record: all its data except the payload.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::model::item_batch::BatchId;
use crate::model::time::{Millis, millis};

/// The most failures that are kept of an item: the newest.
pub const MAX_FAILURES: usize = 10;

/// The most bytes that are kept of what a failure says.
pub const MAX_REASON: usize = 500;

/// The side record of an item. One that was pushed without attributes and never failed has none. Its times are stored to the
/// [millisecond](crate::millis).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// How often it was taken and neither finished nor given back.
    pub attempts: u32,
    /// How many of these attempts ended with a lease that ran out: its worker died, hung, or lost the database.
    pub crashes: u32,
    /// How its attempts ended, oldest first; the newest [`MAX_FAILURES`] of them.
    pub failures: Vec<Failure>,
    /// The producer's own names and values.
    pub attributes: BTreeMap<String, String>,
    /// The payload's media type, as the producer says.
    pub content_type: Option<String>,
    /// The W3C `traceparent` of what the item was pushed for.
    pub trace_parent: Option<String>,
    /// When it was pushed.
    pub enqueued_at: Option<SystemTime>,
    /// The whole payload's length in bytes, where it is stored in several values.
    pub payload_len: Option<u64>,
    /// The key under which it is the only one.
    pub unique: Option<Vec<u8>>,
    /// Why it is a dead letter, and since when.
    pub death: Option<Failure>,
    /// When it expires, if no attempt has begun by then.
    pub expires: Option<SystemTime>,
    /// Until when the unique key is taken, whatever becomes of the item; `None`: until the item ends.
    pub unique_until: Option<SystemTime>,
    /// The batches that it is a member of, until it ends: the one that it was pushed to, and any that it joined later.
    pub batches: Vec<BatchId>,
    /// Fields of later versions, kept as they are.
    pub(crate) unknown: Vec<(u8, Vec<u8>)>,
}

/// How an attempt ended that did not finish the item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// When, stored to the [millisecond](crate::millis). The start of 1970 if that is not known.
    pub at: SystemTime,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// The reason, for people: at most [`MAX_REASON`] bytes are kept.
    pub reason: String,
}

impl Failure {
    /// A failure; a long reason is cut.
    pub fn new(at: SystemTime, attempt: u32, reason: &str) -> Failure {
        Failure { at, attempt, reason: reason[..reason.floor_char_boundary(MAX_REASON)].to_owned() }
    }

    /// The failure as it is stored.
    pub(crate) fn cut(&self) -> Failure {
        Failure::new(self.at, self.attempt, &self.reason)
    }
}

impl Meta {
    /// Whether every field is empty, so that no record is needed.
    pub fn is_empty(&self) -> bool {
        *self == Meta::default()
    }

    /// Whether the item can still expire: no attempt at it has begun, as far as is known, and it was no dead letter.
    pub fn may_expire(&self) -> bool {
        self.attempts == 0 && self.failures.is_empty()
    }

    /// Whether the item has expired at `now` by its own expiry, to the [millisecond](crate::millis).
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.may_expire() && self.expiry().is_some_and(|expires| expires <= millis(now))
    }

    /// When it expires, as rows have it.
    pub(crate) fn expiry(&self) -> Option<Millis> {
        self.expires.map(millis)
    }

    /// Until when its unique key is taken, as rows have it.
    pub(crate) fn unique_end(&self) -> Option<Millis> {
        self.unique_until.map(millis)
    }

    /// Fields that this version does not know, by their tags: of a later version, or a side record that could not be read.
    pub fn unknown_fields(&self) -> &[(u8, Vec<u8>)] {
        &self.unknown
    }

    /// The side record of the same item after a push has replaced it by `new`: what tells about its attempts, its unique key and its batches stays.
    #[must_use]
    pub(crate) fn replaced_by(self, new: Meta) -> Meta {
        let Meta { attributes, content_type, trace_parent, enqueued_at, expires, .. } = new;
        Meta { attributes, content_type, trace_parent, enqueued_at, expires, ..self }
    }

    /// Adds a failure, and drops the oldest of too many.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        self.failures.push(failure.cut());
        let excess = self.failures.len().saturating_sub(MAX_FAILURES);
        self.failures.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::model::time::from_millis;

    #[test]
    fn the_newest_failures_are_kept() {
        let mut meta = Meta::default();
        for attempt in 1..=12 {
            meta.failed(&Failure::new(UNIX_EPOCH, attempt, "no"));
        }
        assert_eq!(meta.failures.len(), MAX_FAILURES);
        assert_eq!(meta.failures.last().map(|failure| failure.attempt), Some(12));
    }

    #[test]
    fn an_item_expires_in_the_millisecond_that_is_stored() {
        let expires = from_millis(7) + Duration::from_micros(900);
        let meta = Meta { expires: Some(expires), ..Meta::default() };
        assert!(!meta.has_expired(from_millis(6) + Duration::from_micros(999)));
        assert!(meta.has_expired(from_millis(7)));
    }

    #[test]
    fn a_long_failure_reason_is_cut_between_characters() {
        let failure = Failure::new(UNIX_EPOCH, 1, &"é".repeat(300));
        assert_eq!(failure.reason, "é".repeat(250));
        let mut meta = Meta::default();
        meta.failed(&Failure { at: UNIX_EPOCH, attempt: 1, reason: "é".repeat(300) });
        assert_eq!(meta.failures, [failure]);
    }
}
