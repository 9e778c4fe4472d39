//! (q, event, time, id): what happens at a time, in milliseconds since 1970. Each [`Event`] has rows of its own, in the order of their times.
//!
//! `docs/KEYSPACE.md` lists the rows with their ids and values.

use crate::keys::{append_bytes, range, split_bytes};
use crate::model::element::{UUID, UUID_LEN, append_number, split_number};
use crate::model::id::ItemId;
use crate::model::time::Millis;

/// What happens at a time. The order is that in which a sweeper does what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A scheduled item becomes ready.
    Ready,
    /// A schedule fires.
    Schedule,
    /// An item expires, if no attempt has begun by then; or its unique key is free from then on. A fetch does not touch the row. So there may be a
    /// row of an item that is running, was tried before, or has ended.
    Expiry,
    /// A batch is looked at: its deadline has come. With the time 0 the row is a mark: members have ended, or the batch was committed.
    Batch,
}

impl Event {
    /// All events.
    pub(crate) const ALL: [Event; 4] = [Event::Ready, Event::Schedule, Event::Expiry, Event::Batch];

    /// Second element of the keys of its rows.
    pub(crate) const fn element(self) -> &'static [u8] {
        match self {
            Event::Ready => b"later",
            Event::Schedule => b"schedule-due",
            Event::Expiry => b"expiry",
            Event::Batch => b"batch-due",
        }
    }

    /// Whether it takes something away that cannot be brought back. A sweeper that may be ahead of others waits with that.
    pub(crate) fn is_removal(self) -> bool {
        self == Event::Expiry
    }

    /// Whether bytes can be an id of its rows.
    fn has_id(self, id: &[u8]) -> bool {
        match self {
            Event::Ready | Event::Expiry => !id.is_empty(),
            Event::Schedule => split_name(id).is_some(),
            Event::Batch => id.len() == UUID_LEN && id[0] == UUID,
        }
    }
}

/// The rows of one event in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agenda {
    event: Event,
    /// The packed (q, element).
    prefix: Vec<u8>,
}

impl Agenda {
    /// The rows of the queue whose packed (q) this is.
    pub(crate) fn new(queue: &[u8], event: Event) -> Agenda {
        let mut prefix = queue.to_vec();
        append_bytes(&mut prefix, event.element());
        Agenda { event, prefix }
    }

    pub(crate) fn event(&self) -> Event {
        self.event
    }

    /// The beginning of the keys of all rows.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The beginning of all keys with this time.
    pub(crate) fn at(&self, time: Millis) -> Vec<u8> {
        let mut key = self.prefix.clone();
        append_number(&mut key, time);
        key
    }

    /// The key of a row; the id as it is packed.
    pub(crate) fn key(&self, time: Millis, id: &[u8]) -> Vec<u8> {
        let mut key = self.at(time);
        key.extend_from_slice(id);
        key
    }

    /// Time and packed id of a row; `None`: it is none of this event.
    pub(crate) fn decode<'a>(&self, key: &'a [u8]) -> Option<(Millis, &'a [u8])> {
        self.split(key).filter(|(_, id)| self.event.has_id(id))
    }

    /// Time of a row, and what stands in its key behind it. That may be an id of another layout.
    pub(crate) fn split<'a>(&self, key: &'a [u8]) -> Option<(Millis, &'a [u8])> {
        split_number(key.strip_prefix(self.prefix.as_slice())?)
    }

    /// The time in the key of a row, whatever its id is; `None`: there is none.
    pub(crate) fn time(&self, key: &[u8]) -> Option<Millis> {
        self.split(key).map(|(time, _)| time)
    }

    /// Time and item of a row of an item.
    pub(crate) fn decode_item(&self, key: &[u8]) -> Option<(Millis, ItemId)> {
        self.decode(key).map(|(time, id)| (time, ItemId::new(id.to_vec().into())))
    }

    /// All rows.
    pub(crate) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.prefix)
    }

    /// The rows of all times up to this one.
    pub(crate) fn by(&self, time: Millis) -> (Vec<u8>, Vec<u8>) {
        let (begin, end) = self.all();
        (begin, time.checked_add(1).map_or(end, |next| self.at(next)))
    }
}

/// The name that is packed as an id.
pub(crate) fn split_name(id: &[u8]) -> Option<String> {
    let (name, rest) = split_bytes(id)?;
    rest.is_empty().then(|| String::from_utf8(name).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::element::append_uuid;
    use crate::testing::listed_in_keyspace;

    /// An id of a row of this event, of these bytes.
    fn id(event: Event, bytes: [u8; 16]) -> Vec<u8> {
        let mut id = Vec::new();
        match event {
            Event::Ready | Event::Expiry => id.extend(bytes),
            Event::Schedule => append_bytes(&mut id, format!("{bytes:?}").as_bytes()),
            Event::Batch => append_uuid(&mut id, bytes),
        }
        id
    }

    proptest! {
        #[test]
        fn rows_round_trip_sort_by_time_and_are_found_by_it(a: (u64, [u8; 16]), b: (u64, [u8; 16]), shift in 0..64_u32) {
            for event in Event::ALL {
                let agenda = Agenda::new(b"\x01q\x00", event);
                let row = |(time, bytes): (u64, [u8; 16])| agenda.key(time >> shift, &id(event, bytes));
                let (key, other) = (row(a), row(b));
                let packed = id(event, a.1);
                prop_assert_eq!(agenda.decode(&key), Some((a.0 >> shift, packed.as_slice())));
                if a.0 >> shift != b.0 >> shift {
                    prop_assert_eq!(key.cmp(&other), (a.0 >> shift).cmp(&(b.0 >> shift)));
                }
                let (begin, end) = agenda.by(b.0 >> shift);
                prop_assert_eq!((&begin..&end).contains(&&key), a.0 >> shift <= b.0 >> shift);
                let (begin, end) = agenda.all();
                prop_assert!((&begin..&end).contains(&&key));
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(key: Vec<u8>) {
            for event in Event::ALL {
                let agenda = Agenda::new(b"", event);
                let key = [agenda.prefix(), &key].concat();
                let _ = agenda.decode(&key);
            }
        }
    }

    #[test]
    fn the_page_lists_the_events_in_their_order() {
        assert_eq!(
            listed_in_keyspace("Agenda"),
            Event::ALL.map(|event| str::from_utf8(event.element()).unwrap())
        );
    }

    #[test]
    fn a_row_without_an_id_or_with_a_longer_number_is_none() {
        for event in Event::ALL {
            let agenda = Agenda::new(b"", event);
            assert_eq!(agenda.decode(&agenda.at(7)), None, "{event:?}");
            let id = id(event, [1; 16]);
            let longer = [agenda.prefix(), b"\x16\x00\x07", &id].concat();
            assert_eq!(agenda.decode(&longer), None, "{event:?}");
        }
    }
}
