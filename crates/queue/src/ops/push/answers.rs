//! What a push under an idempotency key has answered for its items, behind the rest of its record: a repetition answers the same.
//!
//! A push that added all its items has none of this: its items are known by their number.

use std::sync::Arc;

use bytes::Bytes;

use crate::model::id::ItemId;
use crate::model::pushed::{PushEffect, Spot};

/// About how many bytes the ids of items may have that were not added. Beyond that a repetition has effects without ids: a value has 100,000 bytes.
const MOST: usize = 20_000;

const ADDED: u8 = 0;
const DUPLICATE: u8 = 1;
const REPLACED: u8 = 2;
/// Added to the effect: the number of an item of the same transaction follows.
const USER: u8 = 0x10;
/// Added to the effect: what stands before its stamp follows, and then the number.
const BEHIND: u8 = 0x20;
/// Added to the effect: the item's id follows.
const ID: u8 = 0x30;

pub(super) type Places = Vec<(PushEffect, Option<Spot>)>;

/// The bytes of the answers; none if the push added all items.
pub(super) fn encode(places: &[(PushEffect, Option<Spot>)]) -> Vec<u8> {
    if places.iter().all(|(effect, _)| *effect == PushEffect::Added) {
        return Vec::new();
    }
    let (mut out, mut ids) = (Vec::with_capacity(places.len()), 0);
    for (effect, spot) in places {
        let effect = match effect {
            PushEffect::Added | PushEffect::Repeated => {
                out.push(ADDED);
                continue;
            }
            PushEffect::Duplicate => DUPLICATE,
            PushEffect::Replaced => REPLACED,
        };
        let before = out.len();
        match spot.as_ref().filter(|_| ids < MOST) {
            None => out.push(effect),
            Some(Spot::User(user)) => {
                out.push(effect | USER);
                out.extend_from_slice(&user.to_le_bytes());
            }
            Some(Spot::Behind(bytes, user)) => {
                out.push(effect | BEHIND);
                add_bytes(&mut out, bytes);
                out.extend_from_slice(&user.to_le_bytes());
            }
            Some(Spot::Id(id)) => {
                out.push(effect | ID);
                add_bytes(&mut out, id.as_bytes());
            }
        }
        ids += out.len() - before - 1;
    }
    out
}

fn add_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).expect("ids and keys are bounded far below 2^16 bytes");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads answers; `None` if they are of another layout. Added items have no place here.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Places> {
    let mut places = Places::new();
    while let Some((code, rest)) = bytes.split_first() {
        let effect = match code & 0x0f {
            ADDED => PushEffect::Added,
            DUPLICATE => PushEffect::Duplicate,
            REPLACED => PushEffect::Replaced,
            _ => return None,
        };
        let (spot, rest) = match code & 0xf0 {
            0 => (None, rest),
            USER => {
                let (user, rest) = number(rest)?;
                (Some(Spot::User(user)), rest)
            }
            BEHIND => {
                let (before, rest) = take(rest)?;
                let (user, rest) = number(rest)?;
                (Some(Spot::Behind(Arc::from(before), user)), rest)
            }
            ID => {
                let (id, rest) = take(rest)?;
                (Some(Spot::Id(ItemId::new(Bytes::copy_from_slice(id)))), rest)
            }
            _ => return None,
        };
        places.push((effect, spot));
        bytes = rest;
    }
    Some(places)
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_le_bytes(*number), rest))
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = number(bytes)?;
    rest.split_at_checked(len.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spots() -> impl Strategy<Value = Option<Spot>> {
        prop_oneof![
            Just(None),
            any::<u16>().prop_map(|user| Some(Spot::User(user))),
            any::<(Vec<u8>, u16)>().prop_map(|(before, user)| Some(Spot::Behind(before.into(), user))),
            any::<Vec<u8>>().prop_map(|id| Some(Spot::Id(ItemId::new(id.into())))),
        ]
    }

    fn places() -> impl Strategy<Value = (PushEffect, Option<Spot>)> {
        prop_oneof![
            Just((PushEffect::Added, None)),
            spots().prop_map(|spot| (PushEffect::Duplicate, spot)),
            spots().prop_map(|spot| (PushEffect::Replaced, spot)),
        ]
    }

    proptest! {
        #[test]
        fn answers_round_trip(places in prop::collection::vec(places(), 0..40)) {
            let is_plain = places.iter().all(|(effect, _)| *effect == PushEffect::Added);
            let expected = if is_plain { Places::new() } else { places.clone() };
            prop_assert_eq!(decode(&encode(&places)), Some(expected));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn the_answers_of_very_many_items_stay_below_the_limit_of_a_value() {
        let id = Some(Spot::Id(ItemId::new(vec![7; 1_000].into())));
        let bytes = encode(&vec![(PushEffect::Duplicate, id.clone()); crate::model::sizes::MAX_PUSHES]);
        assert!(bytes.len() < 95_000, "{}", bytes.len());
        let places = decode(&bytes).unwrap();
        assert_eq!(
            (places.len(), &places[0].1, &places[100].1),
            (crate::model::sizes::MAX_PUSHES, &id, &None)
        );
    }
}
