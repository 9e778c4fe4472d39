//! The value of (q, "rule", pattern): fields of tag (1 byte), length (u32, little endian) and content, as a side record's.

use std::num::NonZeroU32;

use crate::model::limits::Limits;
use crate::model::rate::Rate;

const RUNNING: u8 = 1;
const WEIGHT: u8 = 2;
const ORDERED: u8 = 3;
const BLOCKS_ON_DEAD: u8 = 4;
const RATE: u8 = 5;

pub(crate) fn encode(limits: &Limits) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(running) = limits.running {
        field(&mut out, RUNNING, &running.to_le_bytes());
    }
    if let Some(weight) = limits.weight {
        field(&mut out, WEIGHT, &weight.get().to_le_bytes());
    }
    if let Some(ordered) = limits.ordered {
        field(&mut out, ORDERED, &[u8::from(ordered)]);
    }
    if let Some(blocks) = limits.blocks_on_dead {
        field(&mut out, BLOCKS_ON_DEAD, &[u8::from(blocks)]);
    }
    if let Some(rate) = limits.rate {
        field(&mut out, RATE, &rate.to_bytes());
    }
    out
}

/// Reads a rule; `None` if it is not one. Fields of later versions are passed over.
pub(crate) fn decode(mut value: &[u8]) -> Option<Limits> {
    let mut limits = Limits::default();
    while let Some((tag, rest)) = value.split_first() {
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        match *tag {
            RUNNING => limits.running = Some(u32::from_le_bytes(content.try_into().ok()?)),
            WEIGHT => {
                let weight = u32::from_le_bytes(content.try_into().ok()?);
                limits.weight = Some(NonZeroU32::new(weight)?);
            }
            ORDERED => limits.ordered = Some(content != [0]),
            BLOCKS_ON_DEAD => limits.blocks_on_dead = Some(content != [0]),
            RATE => limits.rate = Some(Rate::from_bytes(content)?),
            _ => {}
        }
        value = rest;
    }
    Some(limits)
}

fn field(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    let len = u32::try_from(content.len()).expect("fields are bounded far below 2^32 bytes");
    out.push(tag);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rules_round_trip(
            running: Option<u32>, weight: Option<u32>, ordered: Option<bool>, blocks_on_dead: Option<bool>,
            rate: Option<(u32, u64, Option<u32>)>,
        ) {
            let weight = weight.and_then(NonZeroU32::new);
            let rate = rate.and_then(|(items, per, burst)| {
                let rate = Rate::new(NonZeroU32::new(items)?, Duration::from_micros(per)).ok()?;
                Some(burst.and_then(NonZeroU32::new).map_or(rate, |burst| rate.with_burst(burst)))
            });
            let limits = Limits { running, weight, ordered, blocks_on_dead, rate };
            prop_assert_eq!(decode(&encode(&limits)), Some(limits));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = decode(&value);
        }
    }

    #[test]
    fn fields_of_later_versions_are_passed_over() {
        let mut value = encode(&Limits::default().with_running(4));
        field(&mut value, 200, b"later");
        assert_eq!(decode(&value), Some(Limits::default().with_running(4)));
    }
}
