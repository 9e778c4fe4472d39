//! Side records, read by hand.

use kvqueue_queue::item_batch::BatchId;
use kvqueue_queue::{Failure, Meta, from_millis};

/// What a side record comes to: how the payload is stored is not what it is, and the layer's own words are for people.
pub(crate) fn essence(mut meta: Meta) -> Meta {
    meta.payload_len = None;
    for failure in meta.failures.iter_mut().chain(&mut meta.death) {
        if failure.reason.contains("the lease ran out") || failure.reason.starts_with("expired: ") {
            failure.reason.clear();
        }
    }
    meta
}

/// Reads a side record; `None` if it is none.
pub(super) fn decode(mut value: &[u8]) -> Option<Meta> {
    let mut meta = Meta::default();
    while let Some((tag, rest)) = value.split_first() {
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        match tag {
            1 => meta.attempts = u32::from_le_bytes(content.try_into().ok()?),
            2 => meta.crashes = u32::from_le_bytes(content.try_into().ok()?),
            3 => meta.failures.push(failure(content)?),
            4 => {
                let (len, rest) = content.split_first_chunk::<4>()?;
                let (name, text) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
                meta.attributes.insert(string(name)?, string(text)?);
            }
            5 => meta.content_type = Some(string(content)?),
            6 => meta.trace_parent = Some(string(content)?),
            7 => meta.enqueued_at = Some(from_millis(u64::from_le_bytes(content.try_into().ok()?))),
            8 => meta.payload_len = Some(u64::from_le_bytes(content.try_into().ok()?)),
            9 => meta.unique = Some(content.to_vec()),
            10 => meta.death = Some(failure(content)?),
            12 => meta.expires = Some(from_millis(u64::from_le_bytes(content.try_into().ok()?))),
            13 => {
                let (unique, home) = content.split_first_chunk()?;
                meta.batches.push(BatchId::with_unique(home, *unique));
            }
            14 => meta.unique_until = Some(from_millis(u64::from_le_bytes(content.try_into().ok()?))),
            _ => return None,
        }
        value = rest;
    }
    Some(meta)
}

fn failure(content: &[u8]) -> Option<Failure> {
    let (at, rest) = content.split_first_chunk::<8>()?;
    let (attempt, reason) = rest.split_first_chunk::<4>()?;
    Some(Failure::new(from_millis(u64::from_le_bytes(*at)), u32::from_le_bytes(*attempt), &string(reason)?))
}

fn string(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}
