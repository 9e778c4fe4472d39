//! The recipes' items: `(index, random)` behind the subspace of a queue, `(priority, count, random)` behind that of a priority queue.
//!
//! Numbers are the tuple layer's integers, `random` is a byte string of 20 bytes. Written by pushes, ours and the recipes' own
//! programs'; read and cleared by any process that takes. Whatever follows the subspace is an item's id: foreign programs may have other
//! randoms, and other kinds of priorities.

use bytes::Bytes;
use foundationdb::tuple::{Bytes as TupleBytes, Element, pack, unpack};

use crate::id::ItemId;
use crate::kind::Packing;

/// The length of the random element in bytes.
pub const RANDOM: usize = 20;

/// Type code of the integer 0; the others have the number of their bytes added, or subtracted if they are negative.
const ZERO: u8 = 0x14;

/// The type codes of integers that 64 bits can hold, and the first one behind them.
pub(crate) const INTEGERS: (u8, u8) = (0x0c, 0x1d);

/// A number as the tuple element that stands in keys.
pub(crate) fn number(number: i64) -> Vec<u8> {
    pack(&number)
}

/// The id of an item of a queue.
pub(crate) fn queue_id(index: i64, random: &[u8; RANDOM]) -> ItemId {
    ItemId::new(pack(&(index, TupleBytes::from(random.as_slice()))).into())
}

/// The id of an item of a priority queue.
pub(crate) fn priority_id(priority: i64, count: i64, random: &[u8; RANDOM]) -> ItemId {
    ItemId::new(pack(&(priority, count, TupleBytes::from(random.as_slice()))).into())
}

/// Whether an id is laid out as those of a queue, `(index, random)`.
pub(crate) fn is_queue_id(id: &[u8]) -> bool {
    matches!(&elements(id)[..], [Element::Int(_), Element::Bytes(random)] if random.len() == RANDOM)
}

/// Whether an id is laid out as those of a priority queue, `(priority, count, random)`.
pub(crate) fn is_priority_id(id: &[u8]) -> bool {
    matches!(&elements(id)[..], [_, Element::Int(_), Element::Bytes(random)] if random.len() == RANDOM)
}

/// The type code of a tuple within a tuple.
const NESTED: u8 = 0x05;

/// The deepest that tuples may be nested in what others have written. They are read by recursion, and the stack has an end.
const MAX_NESTING: usize = 64;

/// The elements of a packed tuple; none if it is none, or may be nested too deep.
fn elements(tuple: &[u8]) -> Vec<Element<'_>> {
    // Within the text or byte string that most values begin with that byte is a byte like any other.
    let nested = tuple[leading_string(tuple)..].iter().filter(|byte| **byte == NESTED).count();
    if nested > MAX_NESTING { Vec::new() } else { unpack(tuple).unwrap_or_default() }
}

/// The length of the text or byte string that a tuple begins with; 0 if it begins with something else.
fn leading_string(tuple: &[u8]) -> usize {
    if !matches!(tuple, [1 | 2, ..]) {
        return 0;
    }
    // It ends with a byte 0; one of its own is followed by 0xFF.
    let mut from = 1;
    while let Some(zero) = tuple[from..].iter().position(|byte| *byte == 0) {
        from += zero + 1;
        if tuple.get(from) != Some(&0xff) {
            return from;
        }
    }
    0
}

/// The integer that a packed tuple begins with, whatever follows it; `None` if something else does, or one beyond 64 bits.
pub(crate) fn leading_integer(tuple: &[u8]) -> Option<i64> {
    let len = usize::from(tuple.first()?.abs_diff(ZERO));
    unpack::<i64>(tuple.get(..1 + len)?).ok()
}

/// The value that a payload is stored as.
pub(crate) fn pack_value(packing: Packing, payload: &[u8]) -> Vec<u8> {
    match (packing, std::str::from_utf8(payload)) {
        (Packing::Raw, _) => payload.to_vec(),
        (Packing::Tuple, Ok(text)) => pack(&(text,)),
        (Packing::Tuple, Err(_)) => pack(&(TupleBytes::from(payload),)),
    }
}

/// The payload in a value.
///
/// Of a packed tuple it is the first element: the bytes of a text or byte string, or what a number or another element
/// prints as. A value that is no tuple is its own payload, so that a stray one does not stop the queue.
pub(crate) fn unpack_value(packing: Packing, value: &Bytes) -> Bytes {
    if packing == Packing::Raw {
        return value.clone();
    }
    match elements(value).into_iter().next() {
        Some(Element::String(text)) => Bytes::copy_from_slice(text.as_bytes()),
        Some(Element::Bytes(bytes)) => Bytes::copy_from_slice(&bytes),
        Some(Element::Int(number)) => number.to_string().into(),
        Some(Element::Double(number)) => number.to_string().into(),
        Some(Element::Bool(yes)) => yes.to_string().into(),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_too_deeply_nested_tuple_is_kept_as_bytes() {
        for begin in [&b""[..], b"\x02text\0", b"\x15\x01"] {
            let deep = Bytes::from([begin, &[NESTED; 90_000]].concat());
            assert_eq!(unpack_value(Packing::Tuple, &deep), deep);
            assert!(!is_queue_id(&deep) && !is_priority_id(&deep));
        }
    }

    proptest! {
        #[test]
        fn packed_payloads_round_trip(payload: Vec<u8>, text: String) {
            for payload in [payload, text.into_bytes()] {
                for packing in [Packing::Raw, Packing::Tuple] {
                    let value = Bytes::from(pack_value(packing, &payload));
                    prop_assert_eq!(unpack_value(packing, &value), &payload);
                }
            }
        }

        #[test]
        fn ids_sort_by_priority_and_count(a: (i64, i64, [u8; RANDOM]), b: (i64, i64, [u8; RANDOM])) {
            let id = |(priority, count, random): (i64, i64, [u8; RANDOM])| priority_id(priority, count, &random);
            prop_assert_eq!(id(a).cmp(&id(b)), a.cmp(&b));
            prop_assert_eq!(leading_integer(id(a).as_bytes()), Some(a.0));
        }

        #[test]
        fn ids_of_the_two_recipes_are_distinguished(numbers: (i64, i64), random: [u8; RANDOM]) {
            let (queue, priority) = (queue_id(numbers.0, &random), priority_id(numbers.0, numbers.1, &random));
            prop_assert!(is_queue_id(queue.as_bytes()) && !is_priority_id(queue.as_bytes()));
            prop_assert!(is_priority_id(priority.as_bytes()) && !is_queue_id(priority.as_bytes()));
        }

        #[test]
        fn a_leading_integer_is_read_before_any_bytes(n: i64, shift in 0..64_u32, rest: Vec<u8>) {
            let n = n >> shift;
            let element = number(n);
            prop_assert!((INTEGERS.0..INTEGERS.1).contains(&element[0]));
            prop_assert_eq!(leading_integer(&[element, rest].concat()), Some(n));
        }

        #[test]
        fn bytes_that_look_like_nested_tuples_are_read(payload in prop::collection::vec(prop::sample::select(vec![0, NESTED, 0xff]), 0..300)) {
            let value = Bytes::from(pack_value(Packing::Tuple, &payload));
            prop_assert_eq!(unpack_value(Packing::Tuple, &value), &payload);
            prop_assert_eq!(leading_string(&value), value.len());
        }

        #[test]
        fn any_value_is_read_without_panic(value: Vec<u8>) {
            let _ = unpack_value(Packing::Tuple, &value.clone().into());
            let _ = leading_integer(&value);
            let _ = (is_queue_id(&value), is_priority_id(&value));
        }
    }
}
