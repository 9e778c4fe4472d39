//! A set of small numbers, such as the minutes at which a schedule fires.

use std::ops::RangeInclusive;

/// A set of numbers from 0 to 63, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Values(u64);

impl Values {
    /// All numbers of a range that ends before 64.
    pub(crate) fn range(range: RangeInclusive<u8>) -> Values {
        range.collect()
    }

    pub(crate) fn insert(&mut self, value: u8) {
        self.0 |= 1 << value;
    }

    pub(crate) fn remove(&mut self, value: u8) {
        self.0 &= !(1 << value);
    }

    pub(crate) fn contains(self, value: u8) -> bool {
        self.0 & (1 << value) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many numbers the set has.
    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn union(self, other: Values) -> Values {
        Values(self.0 | other.0)
    }

    pub(crate) fn intersection(self, other: Values) -> Values {
        Values(self.0 & other.0)
    }

    /// The least number of the set that is `value` or more.
    pub(crate) fn at_or_after(self, value: u8) -> Option<u8> {
        let rest = self.0 & u64::MAX.checked_shl(value.into()).unwrap_or(0);
        (rest != 0).then(|| rest.trailing_zeros() as u8)
    }

    /// The greatest number of the set that is less than `value`, which is at most 64.
    pub(crate) fn before(self, value: u8) -> Option<u8> {
        let rest = self.0 & !u64::MAX.checked_shl(value.into()).unwrap_or(0);
        rest.checked_ilog2().map(|bit| bit as u8)
    }

    /// The numbers of the set, the least one first.
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |&value| self.contains(value))
    }
}

impl FromIterator<u8> for Values {
    fn from_iter<I: IntoIterator<Item = u8>>(values: I) -> Values {
        let mut set = Values::default();
        values.into_iter().for_each(|value| set.insert(value));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_every_number_are_found() {
        let numbers = [0, 1, 5, 31, 62, 63];
        let set: Values = numbers.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), numbers);
        for value in 0..=64 {
            let after = numbers.into_iter().find(|&number| number >= value);
            let before = numbers.into_iter().rfind(|&number| number < value);
            assert_eq!((set.at_or_after(value), set.before(value)), (after, before), "{value}");
        }
        assert_eq!(Values::default().at_or_after(0), None);
        assert_eq!(Values::default().before(64), None);
    }
}
