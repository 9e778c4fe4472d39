//! Items as people look at them, by what they are doing.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::lease_id::LeaseId;
use crate::model::progress::Progress;
use crate::model::session_id::SessionId;
use crate::model::time::{Millis, from_millis, millis};

/// The state of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ItemState {
    /// It can be fetched.
    #[default]
    Ready,
    /// It was pushed for a later time, and no attempt has begun.
    Scheduled,
    /// An attempt failed, and the next one is due at a later time.
    Retrying,
    /// It is on a lease: a worker has fetched it and has not acknowledged it.
    Running,
    /// It is a dead letter: nobody tries it any more.
    Dead,
}

/// A text is not an item's state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("item state {text:?} is unknown; use {}", ItemState::choice())]
pub struct ParseItemStateError {
    text: String,
}

impl ItemState {
    /// All of them, in the order in which an item usually goes through them.
    pub const ALL: [ItemState; 5] =
        [ItemState::Ready, ItemState::Scheduled, ItemState::Retrying, ItemState::Running, ItemState::Dead];

    /// The word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            ItemState::Ready => "ready",
            ItemState::Scheduled => "scheduled",
            ItemState::Retrying => "retrying",
            ItemState::Running => "running",
            ItemState::Dead => "dead",
        }
    }

    /// All their names, as in "ready, running or dead".
    fn choice() -> String {
        let names = ItemState::ALL.map(ItemState::as_str);
        let [others @ .., last] = &names;
        format!("{} or {last}", others.join(", "))
    }
}

impl fmt::Display for ItemState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ItemState {
    type Err = ParseItemStateError;

    fn from_str(text: &str) -> Result<ItemState, ParseItemStateError> {
        let found = ItemState::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| ParseItemStateError { text: text.to_owned() })
    }
}

/// An item in one of the states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemView {
    /// Which item it is.
    pub id: ItemId,
    /// Its state.
    pub state: ItemState,
    /// The item; or why it cannot be read: a record of it is missing or damaged. Its `attempt` is the attempt under way of a running item,
    /// and otherwise the one that comes next.
    pub item: Result<Item, String>,
    /// When it becomes ready, if it is scheduled or retrying.
    pub due: Option<SystemTime>,
    /// Its lease, if it is running.
    pub lease: Option<LeaseView>,
    /// How far its handler is, if it is running and its handler has reported that.
    pub progress: Option<Progress>,
    /// How long ago it was pushed, by the versions of a FIFO queue's stamps: to about a second, but for jumps of the versions.
    pub age: Option<Duration>,
}

impl ItemView {
    /// How many attempts are spent. The attempt under way of a running item is not.
    pub fn attempts(&self) -> u32 {
        let meta = self.item.as_ref().ok().and_then(|item| item.meta.as_ref());
        meta.map_or(0, |meta| meta.attempts)
    }
}

/// A lease, as the database has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseView {
    /// Which lease it is: the session that holds it, and a number.
    pub id: LeaseId,
    /// How long ago it was made or extended last.
    pub extended: Duration,
    /// How long it lasts yet if it is not extended. `None`: it has expired, and its items go back to the queue soon.
    pub left: Option<Duration>,
}

/// A page of items of one state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemPage {
    /// The items, in the order of the state.
    pub items: Vec<ItemView>,
    /// Where the next page begins; `None` if there are no more items. A page may be short, or even empty, and have a next one.
    pub next: Option<Cursor>,
    /// Leases of the page that cannot be read: they are damaged, or a later version of kvqueue wrote them.
    pub unreadable: usize,
}

/// A place among the items of one state: behind one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// Behind a ready item, or a dead letter.
    Item(ItemId),
    /// Behind an item that is due at a time, to the [millisecond](crate::millis).
    Due(SystemTime, ItemId),
    /// Behind the item of this index of a lease.
    Leased(LeaseId, u32),
}

/// A text is not a place among the items of a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a place among {state} items; use the `next` of the page before")]
pub struct ParseCursorError {
    text: String,
    state: ItemState,
}

impl Cursor {
    /// The item that it is behind, by its id alone.
    pub(crate) fn item(&self) -> Option<&ItemId> {
        if let Cursor::Item(id) = self { Some(id) } else { None }
    }

    /// The item that it is behind, by its time and id.
    pub(crate) fn due(&self) -> Option<(Millis, &ItemId)> {
        if let Cursor::Due(due, id) = self { Some((millis(*due), id)) } else { None }
    }

    /// The lease that it is in.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        if let Cursor::Leased(lease, _) = self { Some(*lease) } else { None }
    }

    /// Reads a place among items of this state, as [`Display`](fmt::Display) writes it.
    ///
    /// # Errors
    /// [`ParseCursorError`] if it is none, or one of another state.
    pub fn parse(state: ItemState, text: &str) -> Result<Cursor, ParseCursorError> {
        let parsed = match state {
            ItemState::Ready | ItemState::Dead => text.parse().ok().map(Cursor::Item),
            ItemState::Scheduled | ItemState::Retrying => parse_due(text),
            ItemState::Running => parse_leased(text),
        };
        parsed.ok_or_else(|| ParseCursorError { text: text.to_owned(), state })
    }
}

fn parse_due(text: &str) -> Option<Cursor> {
    let (due, id) = text.split_once('.')?;
    Some(Cursor::Due(from_millis(due.parse().ok()?), id.parse().ok()?))
}

fn parse_leased(text: &str) -> Option<Cursor> {
    let mut parts = text.split('.');
    let (session, number, index) = (parts.next()?, parts.next()?, parts.next()?);
    if session.len() != 32 || !session.bytes().all(|byte| byte.is_ascii_hexdigit()) || parts.next().is_some()
    {
        return None;
    }
    let session = SessionId(u128::from_str_radix(session, 16).ok()?.to_be_bytes());
    Some(Cursor::Leased(LeaseId { session, number: number.parse().ok()? }, index.parse().ok()?))
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cursor::Item(id) => id.fmt(f),
            Cursor::Due(due, id) => write!(f, "{}.{id}", millis(*due)),
            Cursor::Leased(LeaseId { session, number }, index) => write!(f, "{session:?}.{number}.{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::stamp::Stamp;

    #[test]
    fn each_item_state_parses_from_its_name() {
        for state in ItemState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert_eq!(
            "later".parse::<ItemState>().unwrap_err().to_string(),
            "item state \"later\" is unknown; use ready, scheduled, retrying, running or dead"
        );
    }

    #[test]
    fn a_page_position_of_another_state_is_refused() {
        let id = ItemId::from(Stamp::from([7; 12]));
        let cursors = [
            (ItemState::Ready, Cursor::Item(id.clone())),
            (ItemState::Scheduled, Cursor::Due(from_millis(7), id)),
            (ItemState::Running, Cursor::Leased(LeaseId { session: SessionId([1; 16]), number: 2 }, 3)),
        ];
        for (state, _) in &cursors {
            for (of, cursor) in &cursors {
                let parsed = Cursor::parse(*state, &cursor.to_string());
                assert_eq!(parsed.is_ok(), state == of, "{cursor} among {state} items");
            }
        }
    }

    proptest! {
        #[test]
        fn page_positions_round_trip(id: [u8; 12], due: u64, session: [u8; 16], number: u64, index: u32) {
            let id = ItemId::from(Stamp::from(id));
            let cursors = [
                (ItemState::Dead, Cursor::Item(id.clone())),
                (ItemState::Retrying, Cursor::Due(from_millis(due), id)),
                (ItemState::Running, Cursor::Leased(LeaseId { session: SessionId(session), number }, index)),
            ];
            for (state, cursor) in cursors {
                prop_assert_eq!(Cursor::parse(state, &cursor.to_string()), Ok(cursor));
            }
        }

        #[test]
        fn a_page_position_of_any_text_is_read_without_panic(text: String) {
            for state in ItemState::ALL {
                let _ = Cursor::parse(state, &text);
            }
        }
    }
}
