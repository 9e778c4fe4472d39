//! Which items were seen how often: payloads carry a number.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::cell::PAYLOAD;
use crate::error::Error;

/// Digits of the number at the beginning of a payload.
const DIGITS: usize = 20;

/// Puts an item's number into its payload.
pub fn write_number(payload: &mut [u8], mut number: u64) {
    for digit in payload[..DIGITS].iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

/// Payloads for the numbers from `first` on.
pub fn payloads(first: u64, count: usize) -> Vec<Vec<u8>> {
    let mut batch = vec![vec![b'.'; PAYLOAD]; count];
    renumber(&mut batch, first);
    batch
}

/// The same payloads for other numbers.
pub fn renumber(batch: &mut [Vec<u8>], first: u64) {
    for (number, payload) in (first..).zip(batch) {
        write_number(payload, number);
    }
}

/// The number that a payload carries.
pub fn number_of(payload: &[u8]) -> Result<u64, Error> {
    let foreign = || Error::Foreign(String::from_utf8_lossy(payload).into_owned());
    if payload.len() != PAYLOAD {
        return Err(foreign());
    }
    let digits = std::str::from_utf8(&payload[..DIGITS]).map_err(|_| foreign())?;
    digits.parse().map_err(|_| foreign())
}

/// How often each of the items `0..count` was seen.
pub struct Tally(Vec<AtomicU8>);

impl Tally {
    /// For items `0..count`, none of them seen.
    pub fn new(count: u64) -> Self {
        let count = usize::try_from(count).expect("items of a cell fit into memory");
        Self((0..count).map(|_| AtomicU8::new(0)).collect())
    }

    /// Notes that an item was seen.
    pub fn saw(&self, number: u64) -> Result<(), Error> {
        let seen = usize::try_from(number).ok().and_then(|number| self.0.get(number));
        let seen = seen.ok_or_else(|| Error::Foreign(format!("number {number}")))?;
        if seen.load(Ordering::Relaxed) < u8::MAX {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Items never seen.
    pub fn lost(&self) -> u64 {
        self.0.iter().map(|seen| u64::from(seen.load(Ordering::Relaxed) == 0)).sum()
    }

    /// Times an item was seen after the first.
    pub fn repeated(&self) -> u64 {
        self.0.iter().map(|seen| u64::from(seen.load(Ordering::Relaxed).saturating_sub(1))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_carries_its_number() {
        let mut batch = payloads(7, 2);
        assert_eq!(batch[1].len(), PAYLOAD);
        assert_eq!(number_of(&batch[1]).unwrap(), 8);
        renumber(&mut batch, u64::MAX - 9);
        assert_eq!(number_of(&batch[0]).unwrap(), u64::MAX - 9);
    }

    #[test]
    fn an_item_that_was_not_pushed_is_an_error() {
        assert!(number_of(b"short").is_err());
        assert!(number_of(&[b'x'; PAYLOAD]).is_err());
        assert!(Tally::new(3).saw(3).is_err());
    }

    #[test]
    fn losses_and_repeats_are_counted() {
        let tally = Tally::new(4);
        for number in [0, 2, 2, 2] {
            tally.saw(number).unwrap();
        }
        assert_eq!((tally.lost(), tally.repeated()), (2, 2));
    }
}
