//! Mappers: they derive the second key of a mapped range read from each index row.
//!
//! A mapper is a packed tuple. The text element `{K[i]}` stands for element i of the row's key and
//! `{V[i]}` for one of its value. `{...}` as the last element selects all keys below the derived
//! one. `{{` and `}}` stand for braces.

use super::tuple;
use crate::error::{Code, Result};

/// The source of a placeholder's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Key,
    Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MapperPart {
    /// A packed element.
    Packed(Vec<u8>),
    /// An element of the row. `None` if the index in the mapper is malformed, which is an error
    /// only if there is a row.
    Element { source: Source, index: Option<usize> },
}

/// A parsed mapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapper {
    parts: Vec<MapperPart>,
    /// True if the mapper selects all keys below the derived key, instead of that key.
    pub is_range: bool,
}

impl Mapper {
    /// Parses a packed mapper.
    pub fn parse(packed: &[u8]) -> Result<Mapper> {
        let elements = tuple::elements(packed).ok_or(Code::MAPPER_NOT_TUPLE)?;
        let mut mapper = Mapper { parts: Vec::with_capacity(elements.len()), is_range: false };
        let last = elements.len().wrapping_sub(1);
        for (place, element) in elements.into_iter().enumerate() {
            let text = tuple::string(element);
            if text.as_deref() != Some(b"{...}") {
                mapper.parts.push(part(element, text));
            } else if place == last {
                mapper.is_range = true;
            } else {
                return Err(Code::MAPPER_BAD_RANGE);
            }
        }
        Ok(mapper)
    }

    /// Derives the key from a row.
    pub fn apply(&self, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let (mut keys, mut values) = (None, None);
        let mut made = Vec::new();
        for part in &self.parts {
            match part {
                MapperPart::Packed(packed) => made.extend_from_slice(packed),
                MapperPart::Element { source, index } => {
                    let index = index.ok_or(Code::MAPPER_BAD_INDEX)?;
                    let elements = match source {
                        Source::Key => unpacked(&mut keys, key, Code::KEY_NOT_TUPLE)?,
                        Source::Value => unpacked(&mut values, value, Code::VALUE_NOT_TUPLE)?,
                    };
                    made.extend_from_slice(elements.get(index).ok_or(Code::MAPPER_BAD_INDEX)?);
                }
            }
        }
        Ok(made)
    }
}

/// A row's key or value is unpacked when a placeholder first needs it; otherwise it need not be a
/// tuple.
fn unpacked<'s, 'b>(
    slot: &'s mut Option<Vec<&'b [u8]>>,
    packed: &'b [u8],
    error: Code,
) -> Result<&'s Vec<&'b [u8]>> {
    if slot.is_none() {
        *slot = Some(tuple::elements(packed).ok_or(error)?);
    }
    slot.as_ref().ok_or(error)
}

fn part(element: &[u8], text: Option<Vec<u8>>) -> MapperPart {
    let Some(text) = text else { return MapperPart::Packed(element.to_vec()) };
    let literal = replaced(&replaced(&text, b"{{", b'{'), b"}}", b'}');
    if literal != text {
        let mut packed = Vec::new();
        // As in FoundationDB, a text becomes a byte string here.
        tuple::push_bytes(&mut packed, &literal);
        return MapperPart::Packed(packed);
    }
    match placeholder(&text) {
        Some((source, index)) => MapperPart::Element { source, index: number(index) },
        None => MapperPart::Packed(element.to_vec()),
    }
}

fn replaced(text: &[u8], pair: &[u8; 2], single: u8) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let is_pair = rest.starts_with(pair);
        replaced.push(if is_pair { single } else { *byte });
        rest = if is_pair { &rest[2..] } else { after };
    }
    replaced
}

/// The source and the index of `{K[index]}` or `{V[index]}`.
fn placeholder(text: &[u8]) -> Option<(Source, &[u8])> {
    let inner = text.strip_prefix(b"{")?.strip_suffix(b"]}")?;
    let (source, index) = match inner.split_at_checked(2)? {
        (b"K[", index) => (Source::Key, index),
        (b"V[", index) => (Source::Value, index),
        _ => return None,
    };
    (!index.is_empty()).then_some((source, index))
}

/// Parses an `int` as C does: skips white space before it, and ignores anything after it. A
/// negative index is beyond every tuple.
fn number(text: &[u8]) -> Option<usize> {
    let text = text.trim_ascii_start();
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number: i32 = std::str::from_utf8(&text[..sign + digits]).ok()?.parse().ok()?;
    Some(usize::try_from(number).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foundationdb::tuple::{Bytes, pack};

    fn apply(mapper: &[u8], key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        Mapper::parse(mapper)?.apply(key, value)
    }

    #[test]
    fn placeholders_take_elements_of_the_row() {
        let mapper = pack(&("data", "{V[1]}", 7, "{K[0]}"));
        let made = apply(&mapper, &pack(&(Bytes::from(&b"k\0"[..]), 1)), &pack(&(0, -5.5)));
        assert_eq!(made, Ok(pack(&("data", -5.5, 7, Bytes::from(&b"k\0"[..])))));
        assert!(Mapper::parse(&pack(&("a", "{...}"))).unwrap().is_range);
        assert_eq!(apply(&pack(&("{K[ 0x]}",)), &pack(&("a",)), b""), Ok(pack(&("a",))));
    }

    #[test]
    fn doubled_braces_are_braces() {
        for (mapper, literal) in
            [("{{K[0]}}", "{K[0]}"), ("a}}b", "a}b"), ("{{{...}", "{{...}"), ("{{...}}", "{...}")]
        {
            let made = apply(&pack(&(mapper,)), b"\xee", b"\xee");
            assert_eq!(made, Ok(pack(&(Bytes::from(literal.as_bytes()),))), "{mapper}");
        }
        for plain in ["{K[]}", "{X[0]}", "{", "K[0]"] {
            assert_eq!(apply(&pack(&(plain,)), b"\xee", b"\xee"), Ok(pack(&(plain,))));
        }
    }

    #[test]
    fn each_mapper_error_has_its_own_code() {
        let key = pack(&("a", "b"));
        let code = |mapper: &str| apply(&pack(&(mapper,)), &key, b"\xee");
        assert_eq!(code("{K[2]}"), Err(Code::MAPPER_BAD_INDEX));
        assert_eq!(code("{K[-1]}"), Err(Code::MAPPER_BAD_INDEX));
        assert_eq!(code("{K[x]}"), Err(Code::MAPPER_BAD_INDEX));
        assert_eq!(code("{K[99999999999999999999]}"), Err(Code::MAPPER_BAD_INDEX));
        assert_eq!(code("{V[0]}"), Err(Code::VALUE_NOT_TUPLE));
        assert_eq!(apply(&pack(&("{K[0]}",)), b"\xee", b""), Err(Code::KEY_NOT_TUPLE));
        assert_eq!(apply(&pack(&("{K[-1]}",)), b"\xee", b""), Err(Code::KEY_NOT_TUPLE), "before its index");
        assert_eq!(Mapper::parse(b"\xee"), Err(Code::MAPPER_NOT_TUPLE));
        assert_eq!(Mapper::parse(&pack(&("{...}", "a"))), Err(Code::MAPPER_BAD_RANGE));
    }
}
