//! The tuple encoding, read by hand: the simulation shares no code with the layer that it judges.

use std::collections::HashMap;

use kvqueue_queue::{ItemId, SessionId, Stamp};

/// Splits the first element off: its bytes, type code included, and the rest.
pub(super) fn split(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = match *key.first()? {
        0x01 | 0x02 => 1 + string_len(&key[1..])?,
        code @ 0x0c..=0x1c => 1 + usize::from(code.abs_diff(0x14)),
        0x30 => 17,
        0x33 => 13,
        _ => return None,
    };
    key.split_at_checked(len)
}

/// The length of an escaped string and the zero byte that ends it.
fn string_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)) {
            (0x00, Some(0xff)) => at += 2,
            (0x00, _) => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Splits a byte string off.
pub(super) fn split_bytes(key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (element, rest) = split(key).filter(|(element, _)| element[0] == 0x01)?;
    Some((unescaped(element), rest))
}

/// The text or byte string that is packed alone.
pub(super) fn unpacked(value: &[u8]) -> Option<Vec<u8>> {
    let (element, rest) = split(value).filter(|(element, _)| matches!(element[0], 0x01 | 0x02))?;
    rest.is_empty().then(|| unescaped(element))
}

fn unescaped(element: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut escaped = element[1..element.len() - 1].iter();
    while let Some(byte) = escaped.next() {
        bytes.push(*byte);
        if *byte == 0x00 {
            escaped.next();
        }
    }
    bytes
}

/// Splits a number from 0 off.
pub(super) fn split_number(key: &[u8]) -> Option<(u64, &[u8])> {
    let (element, rest) = split(key).filter(|(element, _)| matches!(element[0], 0x14..=0x1c))?;
    Some((element[1..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), rest))
}

/// Splits a UUID off.
pub(super) fn split_session(key: &[u8]) -> Option<(SessionId, &[u8])> {
    let (element, rest) = split(key).filter(|(element, _)| element[0] == 0x30)?;
    Some((SessionId(element[1..].try_into().ok()?), rest))
}

/// Splits off what comes before the last element.
pub(super) fn split_last(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut at, mut rest) = (0, key);
    loop {
        let (element, after) = split(rest)?;
        if after.is_empty() {
            return Some(key.split_at(at));
        }
        (at, rest) = (at + element.len(), after);
    }
}

/// Splits a stamp off.
pub(super) fn split_stamp(key: &[u8]) -> Option<(Stamp, &[u8])> {
    let (element, rest) = split(key).filter(|(element, _)| element[0] == 0x33)?;
    Some((Stamp::from(<[u8; Stamp::LEN]>::try_from(&element[1..]).ok()?), rest))
}

/// The integers that a recipe's id begins with.
pub(crate) fn integers(id: &ItemId) -> Vec<i64> {
    let (mut integers, mut rest) = (Vec::new(), id.as_bytes());
    while let Some((element, after)) = split(rest).filter(|(element, _)| matches!(element[0], 0x0c..=0x1c)) {
        let size = element[1..].iter().fold(0, |number: i64, byte| number << 8 | i64::from(*byte));
        // A negative number is written as the largest one of its length less its absolute value.
        let most = (1_i64 << (8 * (element.len() - 1))) - 1;
        integers.push(if element[0] < 0x14 { size - most } else { size });
        rest = after;
    }
    integers
}

/// Ids by the bytes that stand in keys. Reading one is slow, and they are read again after every commit.
#[derive(Debug, Default)]
pub(crate) struct Ids(HashMap<Vec<u8>, ItemId>);

impl Ids {
    pub(super) fn get(&mut self, bytes: &[u8]) -> Option<ItemId> {
        if !self.0.contains_key(bytes) {
            self.0.insert(bytes.to_vec(), read_id(bytes)?);
        }
        self.0.get(bytes).cloned()
    }
}

fn read_id(bytes: &[u8]) -> Option<ItemId> {
    let stamp = |bytes: &[u8]| Some(Stamp::from(<[u8; Stamp::LEN]>::try_from(bytes).ok()?));
    match bytes.split_first()? {
        (0x33, rest) => Some(stamp(rest)?.into()),
        // In a partition; the first element of a recipe's id is followed by one of another type.
        (0x15, [partition, 0x33, rest @ ..]) => format!("{}-{partition}", stamp(rest)?).parse().ok(),
        _ => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x{digits}").parse().ok()
        }
    }
}
