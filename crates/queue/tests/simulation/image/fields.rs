//! Records of tagged fields, read by hand.

/// The fields of a record: tag and content.
pub(super) fn fields(mut value: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut fields = Vec::new();
    while let Some((tag, rest)) = value.split_first() {
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        fields.push((*tag, content));
        value = rest;
    }
    Some(fields)
}

/// A number of 8 bytes.
pub(super) fn number(content: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(content.try_into().ok()?))
}

/// A text.
pub(super) fn text(content: &[u8]) -> Option<String> {
    String::from_utf8(content.to_vec()).ok()
}
