//! Encoding of a message's fields: little-endian integers, and byte strings preceded by their
//! length.

use crate::error::Code;
use crate::limits::{MAX_SYSTEM_KEY, MAX_VALUE};
use crate::range_set::KeyRange;

/// The longest frame in bytes. A transaction of FoundationDB's size limit fits.
pub const MAX_FRAME: usize = 16 << 20;

/// A message that does not match its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub &'static str);

/// Appends fields to a buffer.
pub struct Writer<'b>(pub &'b mut Vec<u8>);

impl Writer<'_> {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A number of elements or bytes.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("a message is far smaller than 4 GiB"));
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub fn optional(&mut self, bytes: Option<&[u8]>) {
        self.bool(bytes.is_some());
        if let Some(bytes) = bytes {
            self.bytes(bytes);
        }
    }

    pub fn ranges(&mut self, ranges: &[KeyRange]) {
        self.count(ranges.len());
        for (begin, end) in ranges {
            self.bytes(begin);
            self.bytes(end);
        }
    }

    pub fn code(&mut self, code: Code) {
        self.i64(i64::from(code.raw()));
    }
}

/// Reads fields from a frame. Checks each length against the rest of the frame before it allocates.
pub struct Reader<'b>(pub &'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("it was cut to N bytes"))
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// The number of elements that follow, each of at least `least` bytes.
    pub fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed("a count is too large"))?;
        let fits = count.checked_mul(least).is_some_and(|bytes| bytes <= self.0.len());
        if fits { Ok(count) } else { Err(Malformed("it has fewer elements than it counts")) }
    }

    /// A byte string no longer than `limit`.
    pub fn bytes(&mut self, limit: usize) -> Result<&'b [u8], Malformed> {
        let length = self.count(1)?;
        if length > limit { Err(Malformed("a byte string is too long")) } else { self.take(length) }
    }

    /// A key or the bound of a range: at most a few bytes longer than the longest key.
    pub fn key(&mut self) -> Result<&'b [u8], Malformed> {
        self.bytes(MAX_SYSTEM_KEY + 16)
    }

    pub fn value(&mut self) -> Result<&'b [u8], Malformed> {
        self.bytes(MAX_VALUE)
    }

    pub fn optional_value(&mut self) -> Result<Option<&'b [u8]>, Malformed> {
        if self.bool()? { self.value().map(Some) } else { Ok(None) }
    }

    /// Ranges, which must be disjoint, not empty and in key order. Bounds may be longer than any
    /// key, because a transaction may read keys that cannot exist.
    pub fn ranges(&mut self) -> Result<Vec<KeyRange>, Malformed> {
        let count = self.count(8)?;
        let mut ranges: Vec<KeyRange> = Vec::with_capacity(count);
        for _ in 0..count {
            let (begin, end) = (self.bytes(MAX_FRAME)?, self.bytes(MAX_FRAME)?);
            let is_after = ranges.last().is_none_or(|(_, last)| last.as_slice() <= begin);
            if begin >= end || !is_after {
                return Err(Malformed("its ranges are empty or out of order"));
            }
            ranges.push((begin.to_vec(), end.to_vec()));
        }
        Ok(ranges)
    }

    pub fn code(&mut self) -> Result<Code, Malformed> {
        let raw = i32::try_from(self.i64()?).ok().filter(|raw| *raw > 0);
        raw.and_then(Code::from_raw).ok_or(Malformed("an error code is not one"))
    }

    /// Fails if anything follows the last field.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("it goes on after its end")) }
    }
}
