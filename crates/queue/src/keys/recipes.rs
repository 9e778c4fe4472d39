//! The recipes' items: `(index, random)` behind the subspace of a queue, `(priority, count, random)` behind that of a priority queue.
//!
//! Numbers are the tuple layer's integers, `random` is a byte string of 20 bytes. Written by pushes, ours and the recipes' own
//! programs'; read and cleared by any process that takes. Whatever follows the subspace is an item's id: foreign programs may have other
//! randoms, and other kinds of priorities.

use bytes::Bytes;
use foundationdb::tuple::{Bytes as TupleBytes, Element, pack, unpack};

use crate::model::id_layout::elements;
use crate::model::kind::Packing;

/// Type code of the integer 0; the others have the number of their bytes added, or subtracted if they are negative.
const ZERO: u8 = 0x14;

/// The type codes of integers that 64 bits can hold, and the first one behind them.
pub(crate) const INTEGERS: (u8, u8) = (0x0c, 0x1d);

/// A number as the tuple element that stands in keys.
pub(crate) fn number(number: i64) -> Vec<u8> {
    pack(&number)
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
    use crate::model::id_layout::{NESTED, RANDOM, is_priority_id, is_queue_id, leading_string, priority_id};

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
