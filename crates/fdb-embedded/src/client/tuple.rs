//! The tuple encoding, as far as mapped range reads and the time keeper need it.
//!
//! The element types are those of FoundationDB's servers, which are fewer than the bindings':
//! nested tuples, integers over eight bytes and UUIDs are missing. As there, the last element may
//! be cut short.

/// Type code of a null.
const NULL: u8 = 0x00;
/// Type code of a byte string.
const BYTES: u8 = 0x01;
/// Type code of a text.
const TEXT: u8 = 0x02;
/// Type code of the integer 0; each code further away is an integer of one more byte, negative below.
const ZERO: u8 = 0x14;

/// The elements of a packed tuple with their type codes; `None` if it is malformed.
pub fn elements(packed: &[u8]) -> Option<Vec<&[u8]>> {
    let mut elements = Vec::new();
    let mut rest = packed;
    while !rest.is_empty() {
        let (element, after) = rest.split_at(element_len(rest)?.min(rest.len()));
        elements.push(element);
        rest = after;
    }
    Some(elements)
}

/// The length of the first element of `packed`, which must not be empty.
fn element_len(packed: &[u8]) -> Option<usize> {
    let len = match packed[0] {
        BYTES | TEXT => return Some(string_len(packed)),
        code @ 0x0c..=0x1c => usize::from(code.abs_diff(ZERO)),
        0x20 => 4,
        0x21 => 8,
        NULL | 0x26 | 0x27 => 0,
        0x33 => 12,
        _ => return None,
    };
    Some(1 + len)
}

/// A string ends at a zero byte that is not followed by 0xFF.
fn string_len(packed: &[u8]) -> usize {
    let mut at = 1;
    while at < packed.len() {
        match (packed[at], packed.get(at + 1)) {
            (0, Some(0xff)) => at += 2,
            (0, _) => return at + 1,
            _ => at += 1,
        }
    }
    packed.len()
}

/// The contents of a byte string or text; `None` for another type.
pub fn string(element: &[u8]) -> Option<Vec<u8>> {
    let (&(BYTES | TEXT), mut escaped) = element.split_first()? else { return None };
    let mut text = Vec::with_capacity(escaped.len());
    while let Some((byte, rest)) = escaped.split_first() {
        escaped = match (byte, rest.first()) {
            (0, Some(_)) => &rest[1..],
            (0, None) => break,
            _ => rest,
        };
        text.push(*byte);
    }
    Some(text)
}

/// Appends a byte string.
pub fn push_bytes(packed: &mut Vec<u8>, bytes: &[u8]) {
    packed.push(BYTES);
    for byte in bytes {
        packed.push(*byte);
        if *byte == 0 {
            packed.push(0xff);
        }
    }
    packed.push(0);
}

/// Appends a non-negative integer.
pub fn push_unsigned(packed: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let significant = &bytes[zeros..];
    packed.push(ZERO + u8::try_from(significant.len()).expect("at most eight"));
    packed.extend_from_slice(significant);
}

#[cfg(test)]
mod tests {
    use super::*;
    use foundationdb::tuple::{Bytes, Element, Versionstamp, pack};
    use proptest::prelude::*;

    fn element() -> impl Strategy<Value = Element<'static>> {
        let bytes = || proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..6);
        prop_oneof![
            Just(Element::Nil),
            bytes().prop_map(|b| Element::Bytes(Bytes::from(b))),
            "[\\x00a-c]{0,4}".prop_map(|s| Element::String(s.into())),
            any::<i64>().prop_map(Element::Int),
            (-300i64..300).prop_map(Element::Int),
            any::<f32>().prop_map(Element::Float),
            any::<f64>().prop_map(Element::Double),
            any::<bool>().prop_map(Element::Bool),
            any::<u16>().prop_map(|n| Element::Versionstamp(Versionstamp::complete([7; 10], n))),
        ]
    }

    proptest! {
        #[test]
        fn tuples_packed_by_the_binding_are_split_into_elements(tuple in proptest::collection::vec(element(), 0..6)) {
            let packed = pack(&tuple);
            let single: Vec<Vec<u8>> = tuple.iter().map(|e| pack(&(e,))).collect();
            prop_assert_eq!(elements(&packed).unwrap(), single.iter().map(Vec::as_slice).collect::<Vec<_>>());
            for (element, packed) in tuple.iter().zip(&single) {
                let expected = match element {
                    Element::Bytes(bytes) => Some(bytes.to_vec()),
                    Element::String(text) => Some(text.as_bytes().to_vec()),
                    _ => None,
                };
                prop_assert_eq!(string(packed), expected);
            }
        }

        #[test]
        fn tuples_are_packed_as_by_the_binding(bytes in proptest::collection::vec(0u8..3, 0..8), n in any::<u64>(), shift in 0u32..64) {
            let mut packed = Vec::new();
            push_bytes(&mut packed, &bytes);
            push_unsigned(&mut packed, n >> shift);
            prop_assert_eq!(packed, pack(&(Bytes::from(bytes), n >> shift)));
        }

        #[test]
        fn elements_of_any_bytes_concatenate_to_the_input(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Some(elements) = elements(&bytes) {
                prop_assert_eq!(elements.concat(), bytes.as_slice());
                elements.iter().for_each(|element| drop(string(element)));
            }
        }
    }

    #[test]
    fn element_types_that_servers_lack_are_refused() {
        assert_eq!(elements(&pack(&(("nested",), 1))), None);
        assert_eq!(elements(&[0x30; 17]), None, "a UUID");
        assert_eq!(elements(b"\x01open").unwrap(), [b"\x01open"]);
        assert_eq!(string(b"\x01open").unwrap(), b"open");
        assert_eq!(elements(b"\x17\x01").unwrap(), [b"\x17\x01"], "an integer that is cut short");
    }
}
