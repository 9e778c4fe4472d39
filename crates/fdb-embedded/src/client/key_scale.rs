//! Maps keys to numbers, to estimate the distance between them.
//!
//! A key's bytes are digits, and the digits are the bytes that occur. So the decimal texts `1999`
//! and `2000` are one step apart, without a wide gap of bytes that are not digits.

/// The most digits of a key to use, after its shared prefix.
const DIGITS: usize = 16;
/// The largest difference in the lengths of shared prefixes at which distances are still compared.
const MAX_SHIFT: i32 = 30;

/// The bytes that occur in some keys.
#[derive(Debug)]
pub struct Scale {
    /// In order; at least two.
    digits: Vec<u8>,
    /// For each byte, the number of digits below it.
    ranks: [u8; 256],
}

/// The length of the common prefix of two keys.
pub fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Scale {
    /// The scale of keys that all lie between the first and the last of `keys`.
    pub fn new<'k>(keys: impl DoubleEndedIterator<Item = &'k [u8]> + Clone) -> Scale {
        let ends = (keys.clone().next(), keys.clone().next_back());
        let shared = ends.0.zip(ends.1).map_or(0, |(first, last)| shared_len(first, last));
        let mut occurs = [false; 256];
        for byte in keys.flat_map(|key| &key[shared..]) {
            occurs[usize::from(*byte)] = true;
        }
        let mut digits: Vec<u8> = (0..=255).filter(|byte| occurs[usize::from(*byte)]).collect();
        if digits.len() < 2 {
            digits = (0..=255).collect();
        }
        let mut ranks = [0; 256];
        for byte in 0..=255 {
            let rank = digits.partition_point(|digit| *digit < byte);
            ranks[usize::from(byte)] = u8::try_from(rank).unwrap_or(u8::MAX);
        }
        Scale { digits, ranks }
    }

    fn base(&self) -> u128 {
        self.digits.len() as u128
    }

    /// The first digits of a key as a number. Missing ones are zeros.
    fn number(&self, key: &[u8]) -> u128 {
        let ranks = key.iter().map(|byte| self.ranks[usize::from(*byte)]);
        let digits = ranks.chain(std::iter::repeat(0)).take(DIGITS);
        digits.fold(0u128, |number, digit| number.saturating_mul(self.base()).saturating_add(digit.into()))
    }

    /// The distance from `a` to `b`, in units of the last digit after the first `shared` bytes.
    pub fn distance(&self, a: &[u8], b: &[u8], shared: usize) -> f64 {
        let own = shared_len(a, b);
        let difference = self.number(&b[own..]).saturating_sub(self.number(&a[own..]));
        let shift = i32::try_from(shared).unwrap_or(0) - i32::try_from(own).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "it serves an estimate")]
        let (difference, base) = (difference as f64, self.base() as f64);
        difference * base.powi(shift.clamp(-MAX_SHIFT, MAX_SHIFT))
    }

    /// The key at a distance after `key`, as measured by [`Scale::distance`].
    pub fn advance(&self, key: &[u8], distance: f64, shared: usize) -> Vec<u8> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and the key need not be exact"
        )]
        let distance = distance as u128;
        let mut number = self.number(&key[shared..]).saturating_add(distance);
        let mut tail = [0; DIGITS];
        for place in tail.iter_mut().rev() {
            let digit = usize::try_from(number % self.base()).expect("the base is at most 256");
            *place = self.digits[digit];
            number /= self.base();
        }
        [&key[..shared], &tail].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_texts_are_as_far_apart_as_their_numbers() {
        let texts: Vec<String> = (1_000..3_000).map(|n| format!("user/{n}")).collect();
        let scale = Scale::new(texts.iter().map(String::as_bytes));
        let distance = |a: &str, b: &str| scale.distance(a.as_bytes(), b.as_bytes(), 5);
        let one = distance("user/1000", "user/1001");
        assert!((distance("user/1000", "user/3000") / one - 2_000.0).abs() < 1e-6);
        assert!((distance("user/1999", "user/2000") / one - 1.0).abs() < 1e-6);
        assert!(scale.advance(b"user/1000", 500.0 * one, 5).starts_with(b"user/1500"));
    }

    #[test]
    fn distance_is_defined_for_keys_of_any_bytes() {
        let keys: [&[u8]; 3] = [b"", b"\0\xff", b"\xff"];
        let scale = Scale::new(keys.into_iter());
        assert!(scale.distance(b"", b"\xff\xff", 0) > 0.0);
        assert!(scale.distance(b"b", b"a", 0) >= 0.0);
        assert!(!scale.advance(b"", f64::INFINITY, 0).is_empty());
        assert!(Scale::new([&b"a"[..]].into_iter()).distance(b"a", b"b", 0) > 0.0);
    }
}
