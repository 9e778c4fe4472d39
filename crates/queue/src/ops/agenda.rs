//! The first row of each event: when a sweeper has something to do. Reads the row with its value. See [`keys::agenda`](crate::keys::agenda).

use std::ops::{Index, IndexMut};

use foundationdb::Transaction;
use futures::future::try_join_all;

use crate::keys::Space;
use crate::keys::agenda::{Agenda, Event};
use crate::keys::batches::mark_version;
use crate::model::error::QueueError;
use crate::model::time::Millis;
use crate::run::range_read::RangeRead;

/// Something for each event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ByEvent<T>([T; Event::ALL.len()]);

impl<T> ByEvent<T> {
    /// What `of` makes for each.
    pub(crate) fn of(of: impl FnMut(Event) -> T) -> ByEvent<T> {
        ByEvent(Event::ALL.map(of))
    }
}

impl<T: Copy> ByEvent<Option<T>> {
    /// All that there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        self.0.into_iter().flatten()
    }
}

impl<T> Index<Event> for ByEvent<T> {
    type Output = T;

    fn index(&self, event: Event) -> &T {
        &self.0[event as usize]
    }
}

impl<T> IndexMut<Event> for ByEvent<T> {
    fn index_mut(&mut self, event: Event) -> &mut T {
        &mut self.0[event as usize]
    }
}

/// When the first row of an event is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// At this time.
    At(Millis),
    /// Since the transaction of this version, if that is known: the row is a mark.
    Marked(Option<u64>),
}

impl First {
    /// The time; `now` is that of `version`. A mark is due since its version, and at once if versions went back meanwhile.
    pub(crate) fn at(self, now: Millis, version: u64) -> Millis {
        match self {
            First::At(at) => at,
            First::Marked(of) => {
                let age = of.and_then(|of| version.checked_sub(of));
                age.map_or(0, |age| now.saturating_sub(age / 1_000))
            }
        }
    }
}

/// The first row of each event. Snapshot reads.
pub(crate) async fn firsts(space: &Space, tr: &Transaction) -> Result<ByEvent<Option<First>>, QueueError> {
    let mut firsts =
        try_join_all(Event::ALL.map(async |event| first(&space.agenda(event), tr).await)).await?;
    Ok(ByEvent::of(|event| firsts[event as usize].take()))
}

/// The first row of an event. A snapshot read.
///
/// A row that cannot be read is due at its time, as any other. One without a time counts as due, so that the sweeper [names it](check_first); but for
/// one whose key sorts behind the highest time.
pub(crate) async fn first(agenda: &Agenda, tr: &Transaction) -> Result<Option<First>, QueueError> {
    let page = RangeRead::of(agenda.all()).limit(1).page(tr).await?;
    let Some(row) = page.last() else { return Ok(None) };
    Ok(match agenda.decode(row.key()) {
        Some((0, _)) if agenda.event() == Event::Batch => Some(First::Marked(mark_version(row.value()))),
        Some((time, _)) => Some(First::At(time)),
        None => match agenda.time(row.key()) {
            None => is_among_times(agenda, row.key()).then_some(First::At(0)),
            time => time.map(First::At),
        },
    })
}

/// Makes sure that the first row of all can be read, if it counts as due at `now`. For a caller that was to do what is due and has found nothing.
pub(crate) async fn check_first(agenda: &Agenda, tr: &Transaction, now: Millis) -> Result<(), QueueError> {
    let Some(key) = RangeRead::of(agenda.all()).first_row_key(tr).await? else { return Ok(()) };
    let is_due = || agenda.time(&key).map_or_else(|| is_among_times(agenda, &key), |time| time <= now);
    if agenda.decode(&key).is_none() && is_due() { Err(QueueError::unreadable(&key)) } else { Ok(()) }
}

/// Whether a key stands before or among those of some time.
fn is_among_times(agenda: &Agenda, key: &[u8]) -> bool {
    key <= agenda.at(Millis::MAX).as_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_due_since_its_version_and_at_once_if_versions_went_back() {
        let marked = First::Marked(Some(5_000_000));
        assert_eq!(marked.at(100_000, 7_000_000), 98_000);
        assert_eq!(marked.at(100_000, 4_000_000), 0);
        assert_eq!(First::Marked(None).at(100_000, 7_000_000), 0);
        assert_eq!(First::At(7).at(100_000, 7_000_000), 7);
    }

    #[test]
    fn each_event_has_a_place_of_its_own() {
        let events = ByEvent::of(Some);
        assert!(Event::ALL.iter().all(|event| events[*event] == Some(*event)));
        assert!(events.iter().eq(Event::ALL));
    }
}
