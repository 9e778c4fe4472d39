//! The value of (q, "rule", pattern): tagged [fields](crate::keys::fields).

use std::num::NonZeroU32;

use crate::keys::fields::{each, put};
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
        put(&mut out, RUNNING, &[&running.to_le_bytes()]);
    }
    if let Some(weight) = limits.weight {
        put(&mut out, WEIGHT, &[&weight.get().to_le_bytes()]);
    }
    if let Some(ordered) = limits.ordered {
        put(&mut out, ORDERED, &[&[u8::from(ordered)]]);
    }
    if let Some(blocks) = limits.blocks_on_dead {
        put(&mut out, BLOCKS_ON_DEAD, &[&[u8::from(blocks)]]);
    }
    if let Some(rate) = limits.rate {
        put(&mut out, RATE, &[&rate.to_bytes()]);
    }
    out
}

/// Reads a rule; `None` if it is not one. Fields of later versions are passed over.
pub(crate) fn decode(value: &[u8]) -> Option<Limits> {
    let mut limits = Limits::default();
    for field in each(value) {
        let (tag, content) = field?;
        match tag {
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
    }
    Some(limits)
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
        put(&mut value, 200, &[b"later"]);
        assert_eq!(decode(&value), Some(Limits::default().with_running(4)));
    }
}
