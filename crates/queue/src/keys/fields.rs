//! Records of tagged fields: tag (1 byte), length (u32, little endian), content. Readers pass over tags that they do not know.

/// Tag and content of a field.
type Field<'a> = (u8, &'a [u8]);

/// Appends a field whose content is these parts, one after the other.
pub(crate) fn put(out: &mut Vec<u8>, tag: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.push(tag);
    out.extend_from_slice(
        &u32::try_from(len).expect("fields are bounded far below 2^32 bytes").to_le_bytes(),
    );
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// The fields of a record in their order. `None` in the place of the first one that is cut off, and then no more.
pub(crate) fn each(value: &[u8]) -> impl Iterator<Item = Option<Field<'_>>> {
    let mut left = Some(value).filter(|value| !value.is_empty());
    std::iter::from_fn(move || {
        let value = left.take()?;
        let Some((field, rest)) = split(value) else { return Some(None) };
        left = Some(rest).filter(|rest| !rest.is_empty());
        Some(Some(field))
    })
}

/// The first field, and what follows it.
fn split(value: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (tag, rest) = value.split_first()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some(((*tag, content), rest))
}

/// Appends a field whose content is a name and a value. There may be several of the same tag.
pub(crate) fn put_pair(out: &mut Vec<u8>, tag: u8, name: &str, value: &str) {
    let len = u32::try_from(name.len()).expect("names are bounded far below 2^32 bytes");
    put(out, tag, &[&len.to_le_bytes(), name.as_bytes(), value.as_bytes()]);
}

/// A content that is a name and a value.
pub(crate) fn pair(content: &[u8]) -> Option<(String, String)> {
    let (len, rest) = content.split_first_chunk::<4>()?;
    let (name, value) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((text(name)?, text(value)?))
}

/// A content that is nothing but a number.
pub(crate) fn number(content: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(content.try_into().ok()?))
}

/// Splits a number off the front of a content.
pub(crate) fn take_number(content: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = content.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// A content that is text.
pub(crate) fn text(content: &[u8]) -> Option<String> {
    std::str::from_utf8(content).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_round_trip(fields: Vec<(u8, Vec<u8>)>) {
            let mut value = Vec::new();
            fields.iter().for_each(|(tag, content)| put(&mut value, *tag, &[content]));
            let read: Option<Vec<_>> = each(&value).map(|field| Some((field?.0, field?.1.to_vec()))).collect();
            prop_assert_eq!(read, Some(fields));
        }

        #[test]
        fn pairs_round_trip(name: String, value: String) {
            let mut record = Vec::new();
            put_pair(&mut record, 7, &name, &value);
            let (tag, content) = each(&record).next().unwrap().unwrap();
            prop_assert_eq!((tag, pair(content)), (7, Some((name, value))));
        }

        #[test]
        fn a_truncated_record_ends_with_an_error(tag: u8, content: Vec<u8>, cut in 1..5_usize) {
            let mut value = Vec::new();
            put(&mut value, tag, &[&content]);
            value.truncate(value.len() - cut.min(value.len() - 1));
            prop_assert_eq!(each(&value).collect::<Vec<_>>(), [None]);
        }
    }
}
