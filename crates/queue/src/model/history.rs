//! The history of a queue: what became of the items that have ended.
//!
//! Off unless a queue's handle has a [`Recorder`](crate::Recorder). Then each transaction that ends items adds one record of them all, so that an item costs a part of
//! a row. The records are ordered by time, and are removed by time: the setting of the queue, [`Queue::keep_history`](crate::Queue::keep_history), says when.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::model::id::ItemId;
use crate::model::schedule::ATTRIBUTES;
use crate::model::stamp::Stamp;
use crate::model::time::millis;

/// The longest time for which ended items are kept. To find one by its id, a key range for each hour of it is read.
pub const MAX_HISTORY: Duration = Duration::from_hours(30 * 24);

/// The most bytes of a worker's name in a record.
pub const MAX_WORKER: usize = 128;

/// The longest result of an item that is kept, in bytes.
pub const MAX_RESULT: usize = 90_000;

/// The most attributes that a history is indexed by.
pub const MAX_INDEXED: usize = 8;

/// The most bytes of the name of an attribute that a history is indexed by.
pub const MAX_INDEXED_NAME: usize = 128;

/// How an item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Its handler finished it.
    Done,
    /// It became a dead letter. If that is retried, the item ends once more.
    Dead,
    /// An operator cancelled or deleted it.
    Cancelled,
    /// No attempt had begun by the time at which it expired.
    Expired,
    /// It was taken for good: by a fetch with at-most-once delivery, or a pop. Nothing tells what became of it afterwards.
    Taken,
    /// An ending of a later version, by its code.
    Unknown(u8),
}

/// A text is not an ending.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("outcome {text:?} is unknown; use done, dead, cancelled, expired or taken")]
pub struct ParseEndingError {
    text: String,
}

impl Ending {
    /// The endings of this version.
    pub const ALL: [Ending; 5] =
        [Ending::Done, Ending::Dead, Ending::Cancelled, Ending::Expired, Ending::Taken];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::Dead => "dead",
            Ending::Cancelled => "cancelled",
            Ending::Expired => "expired",
            Ending::Taken => "taken",
            Ending::Unknown(_) => "unknown",
        }
    }

    /// As records have it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Ending::Done => 1,
            Ending::Dead => 2,
            Ending::Cancelled => 3,
            Ending::Expired => 4,
            Ending::Taken => 5,
            Ending::Unknown(code) => code,
        }
    }

    pub(crate) fn of(code: u8) -> Ending {
        Ending::ALL.into_iter().find(|ending| ending.code() == code).unwrap_or(Ending::Unknown(code))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Ending {
    type Err = ParseEndingError;

    fn from_str(text: &str) -> Result<Ending, ParseEndingError> {
        let found = Ending::ALL.into_iter().find(|ending| ending.as_str() == text);
        found.ok_or_else(|| ParseEndingError { text: text.to_owned() })
    }
}

/// An item that has ended. Its payload is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedItem {
    /// Which item it was.
    pub id: ItemId,
    /// How it ended.
    pub ending: Ending,
    /// When it was pushed: as the producer says; or by the versions of its push and of its end, which is right to about a second but for jumps of
    /// the versions. `None` if its id tells no version.
    pub pushed: Option<SystemTime>,
    /// When its last fetch was made, if it ended on the lease of that fetch and the session that fetched it.
    pub started: Option<SystemTime>,
    /// When it ended, by the clock of the process that ended it.
    pub ended: SystemTime,
    /// How many attempts it had, the last one included if it ended with an attempt.
    pub attempts: u32,
    /// The worker that ended it, as [`Lease::note_worker`](crate::Lease::note_worker) named it; otherwise the process, as its [`Recorder`](crate::Recorder) says.
    pub worker: Option<String>,
    /// Why, if it is not done.
    pub reason: Option<String>,
    /// The producer's names and values.
    pub attributes: BTreeMap<String, String>,
    /// How many bytes the result has that its handler gave, if it gave one. [`Queue::result`](crate::Queue::result) reads it. Of a result of more than [`MAX_RESULT`] bytes
    /// nothing is kept but that there was one: this is `MAX_RESULT + 1` then.
    pub result: Option<usize>,
}

impl EndedItem {
    /// The schedule that pushed it, if one did.
    pub fn schedule(&self) -> Option<&str> {
        self.attributes.get(ATTRIBUTES[0]).map(String::as_str)
    }
}

/// The attributes by whose values ended items are found without reading the others: [`MAX_INDEXED`] names at most, of 1 to [`MAX_INDEXED_NAME`] bytes.
///
/// ```
/// use kvqueue_queue::HistoryIndex;
///
/// let index = HistoryIndex::new(["customer"]).unwrap();
/// assert!(index.names().eq(["customer"]));
/// assert!(HistoryIndex::new([""]).is_err());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryIndex(pub(crate) BTreeSet<String>);

/// A history cannot be indexed by these attributes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryIndexError {
    /// There are more than [`MAX_INDEXED`].
    #[error("there are {names} names, at most {MAX_INDEXED} are possible")]
    TooMany {
        /// How many there are.
        names: usize,
    },
    /// The name of one is empty, or longer than [`MAX_INDEXED_NAME`].
    #[error("name {name:?} has {} bytes, 1 to {MAX_INDEXED_NAME} are possible", .name.len())]
    Name {
        /// The name.
        name: String,
    },
}

impl HistoryIndex {
    /// An index by the attributes of these names.
    pub fn new(
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<HistoryIndex, HistoryIndexError> {
        let names: BTreeSet<String> = names.into_iter().map(Into::into).collect();
        if names.len() > MAX_INDEXED {
            return Err(HistoryIndexError::TooMany { names: names.len() });
        }
        match names.iter().find(|name| !(1..=MAX_INDEXED_NAME).contains(&name.len())) {
            Some(name) => Err(HistoryIndexError::Name { name: name.clone() }),
            None => Ok(HistoryIndex(names)),
        }
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Which ended items are meant: items that match everything given here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Items that ended so.
    pub ending: Option<Ending>,
    /// Items that have these attributes, by their names, with these values.
    pub attributes: Vec<(String, String)>,
    /// Items of this schedule.
    pub schedule: Option<String>,
    /// Items that ended in the [millisecond](crate::millis) of this time or later.
    pub since: Option<SystemTime>,
    /// Items that ended before the millisecond of this time.
    pub until: Option<SystemTime>,
}

impl HistoryFilter {
    pub(crate) fn matches(&self, item: &EndedItem) -> bool {
        let has = |(name, value): &(String, String)| item.attributes.get(name) == Some(value);
        self.ending.is_none_or(|ending| ending == item.ending)
            && self.attributes.iter().all(has)
            && self.schedule.as_deref().is_none_or(|schedule| item.schedule() == Some(schedule))
            && self.since.is_none_or(|since| millis(item.ended) >= millis(since))
            && self.until.is_none_or(|until| millis(item.ended) < millis(until))
    }
}

/// A page of ended items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryPage {
    /// The items, the newest first.
    pub items: Vec<EndedItem>,
    /// Where the next page begins; `None` if there are no older items. A page may be short, or even empty, and have a next one.
    pub next: Option<HistoryCursor>,
    /// Groups of items that cannot be read: they are damaged, or a later version of kvqueue wrote them.
    pub unreadable: usize,
}

/// The key of a group of ended items, which one transaction wrote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) minute: u64,
    /// Of its transaction.
    pub(crate) stamp: Stamp,
    /// Its first item.
    pub(crate) first: ItemId,
}

/// A place among the ended items: before one of them, by time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryCursor {
    pub(crate) group: GroupKey,
    /// The number of the item in its group.
    pub(crate) index: u32,
}

/// A text is not a place among ended items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a place in a history; use the `next` of the page before")]
pub struct ParseHistoryCursorError {
    text: String,
}

impl fmt::Display for HistoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupKey { minute, stamp, first } = &self.group;
        write!(f, "{minute}.{stamp}.{first}.{}", self.index)
    }
}

impl FromStr for HistoryCursor {
    type Err = ParseHistoryCursorError;

    fn from_str(text: &str) -> Result<HistoryCursor, ParseHistoryCursorError> {
        let parsed = || {
            let mut parts = text.split('.');
            let minute = parts.next()?.parse().ok()?;
            let (stamp, first) = (parts.next()?.parse::<Stamp>().ok()?, parts.next()?.parse().ok()?);
            let index = parts.next()?.parse().ok()?;
            let group = GroupKey { minute, stamp, first };
            parts.next().is_none().then_some(HistoryCursor { group, index })
        };
        parsed().ok_or_else(|| ParseHistoryCursorError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_ending_parses_from_its_name() {
        for ending in Ending::ALL {
            assert_eq!(ending.to_string().parse(), Ok(ending));
            assert_eq!(Ending::of(ending.code()), ending);
        }
        let error = "finished".parse::<Ending>().unwrap_err().to_string();
        assert_eq!(error, "outcome \"finished\" is unknown; use done, dead, cancelled, expired or taken");
    }

    #[test]
    fn an_index_has_a_few_short_names() {
        let many = (0..9).map(|n| n.to_string());
        let refused = HistoryIndex::new(many).unwrap_err();
        assert_eq!(refused.to_string(), "there are 9 names, at most 8 are possible");
        let refused = HistoryIndex::new(["a", ""]).unwrap_err();
        assert_eq!(refused.to_string(), "name \"\" has 0 bytes, 1 to 128 are possible");
        assert!(HistoryIndex::new(["x".repeat(129)]).is_err());
        assert!(HistoryIndex::new(["x".repeat(128)]).is_ok());
        assert_eq!(HistoryIndex::new(["b", "a", "b"]).unwrap().names().collect::<Vec<_>>(), ["a", "b"]);
    }

    proptest! {
        #[test]
        fn places_round_trip(minute: u64, stamp: [u8; 12], id in prop::collection::vec(any::<u8>(), 1..40), index: u32) {
            let group = GroupKey { minute, stamp: Stamp::from(stamp), first: ItemId::new(id.into()) };
            let cursor = HistoryCursor { group, index };
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }

        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = text.parse::<HistoryCursor>();
        }
    }
}
