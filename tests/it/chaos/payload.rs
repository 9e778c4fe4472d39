//! Items: what they are called, what is in them, and how the tests' handler treats them. All of it follows from the name.

use std::{fmt, str::FromStr};

use crate::support::Random;

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
    /// Numbers that are this item's own.
    pub(super) fn random(self) -> Random {
        let Self { queue, producer, place } = self;
        Random::seeded((queue as u64) << 56 ^ producer << 28 ^ place)
    }

    /// The payload: the item's name, and filling that must arrive whole. A few payloads are stored in several parts.
    pub(super) fn payload(self) -> String {
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
    assert_eq!("3.17".parse::<Name>(), Err(NoItem));
    assert_eq!("".parse::<Name>(), Err(NoItem));
}
