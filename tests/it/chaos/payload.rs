//! Items: what they are called, what is in them, and how the tests' handler treats them. All of it follows from the name.

use std::{fmt, str::FromStr};

use crate::support::Random;

/// The number of a schedule among producers: no other has it.
const SCHEDULE: u64 = 0;

/// The payload of a schedule's items, before the queue's place in the plan. Their times tell them apart.
const TICK: &str = "tick ";

/// How the unique keys begin that are taken for a time.
pub(super) const TAKEN: &str = "taken ";

/// Which item it is: no two pushes of a run have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name {
    /// The queue's place in the plan.
    pub(super) queue: usize,
    /// The producer's number.
    pub(super) producer: u64,
    /// The item's place in what it pushes, from 0.
    pub(super) place: u64,
}

impl Name {
    /// An item of the queue's schedule, by its time in ms.
    pub(super) fn of_time(queue: usize, time: u64) -> Self {
        Self { queue, producer: SCHEDULE, place: time / 1_000 }
    }

    /// The item with this payload; and, if a schedule has pushed it, with this attribute `schedule-time`.
    pub(super) fn read(payload: &str, time: Option<&str>) -> Result<Self, NoItem> {
        let Some(time) = time else { return payload.parse() };
        let queue = payload.strip_prefix(TICK).and_then(|queue| queue.parse().ok()).ok_or(NoItem)?;
        Ok(Self::of_time(queue, time.parse().map_err(|_| NoItem)?))
    }

    /// Numbers that are this item's own.
    pub(super) fn random(self) -> Random {
        let Self { queue, producer, place } = self;
        Random::seeded((queue as u64) << 56 ^ producer << 28 ^ place)
    }

    /// The payload: the item's name, and filling that must arrive whole. A few payloads are stored in several parts.
    pub(super) fn payload(self) -> String {
        if self.producer == SCHEDULE {
            return format!("{TICK}{}", self.queue);
        }
        let mut random = self.random().branch();
        let length = match random.below(1_000) {
            0..=2 => 100_001 + random.below(100_000),
            3..=30 => random.below(10_000),
            _ => random.below(30),
        };
        let letter = char::from(b'a' + random.below(26) as u8);
        format!("{self} {}", letter.to_string().repeat(length as usize))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.queue, self.producer, self.place)
    }
}

/// A text that no item has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoItem;

/// Reads a whole payload.
impl FromStr for Name {
    type Err = NoItem;

    fn from_str(payload: &str) -> Result<Self, NoItem> {
        let (name, _) = payload.split_once(' ').ok_or(NoItem)?;
        let name = parse(name).ok_or(NoItem)?;
        if name.payload() == payload { Ok(name) } else { Err(NoItem) }
    }
}

/// Reads a name alone.
pub(super) fn parse(name: &str) -> Option<Name> {
    let mut numbers = name.split('.').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let name = Name { queue: next()? as usize, producer: next()?, place: next()? };
    numbers.next().is_none().then_some(name)
}

#[test]
fn a_payload_contains_its_name_and_a_checksum() {
    let names = (0..2_000).map(|place| Name { queue: 3, producer: 17, place });
    for name in names {
        let payload = name.payload();
        assert_eq!(payload.parse(), Ok(name));
        assert_eq!(format!("{payload}!").parse::<Name>(), Err(NoItem));
    }
    let tick = Name::of_time(3, 17_000);
    assert_eq!(Name::read(&tick.payload(), Some("17000")), Ok(tick));
    assert_eq!(Name::read(&tick.payload(), None), Err(NoItem));
    assert_eq!("3.17".parse::<Name>(), Err(NoItem));
    assert_eq!("".parse::<Name>(), Err(NoItem));
}
