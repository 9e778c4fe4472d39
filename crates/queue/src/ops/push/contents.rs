//! A digest of the items that are pushed under an idempotency key. It tells a repetition from another push that was
//! given the same id.
//!
//! The digest is stored, so it has to stay the same in later versions: docs/KEYSPACE.md describes it.

use twox_hash::xxhash3_128::Hasher;

use super::entry::Entry;
use crate::keys::operations::Digest;
use crate::model::stored::State;

/// Of an item that replaces another.
const REPLACES: u8 = 3;

/// The digests of what is pushed under an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digests {
    /// The one that is stored. What differs when the same push is repeated does not count: due times, which may have been a delay, or have passed meanwhile, the times
    /// of the push, and trace parents.
    pub(super) digest: Digest,
    /// The one that earlier versions stored: it tells items that have a due time from others, and has no keys of keyed queues.
    earlier: Digest,
}

impl Digests {
    /// Those of items, in their order.
    pub(super) fn of(entries: &[Entry<'_>]) -> Digests {
        let (digest, earlier) = (digest(entries, Version::Now), digest(entries, Version::Earlier));
        Digests { digest, earlier }
    }

    /// Whether a stored digest is that of these items.
    pub(super) fn matches(&self, stored: &Digest) -> bool {
        [&self.digest, &self.earlier].contains(&stored)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Earlier,
    Now,
}

fn digest(entries: &[Entry<'_>], version: Version) -> Digest {
    let mut hasher = Hasher::new();
    for entry in entries {
        add(&mut hasher, entry, version);
    }
    hasher.finish_128().to_be_bytes()
}

/// Stands before the key of a keyed queue, where the length of the next item's payload would stand.
const KEY: u64 = u64::MAX - 2;

/// Stands before the batch, where the length of the next item's payload would stand.
const BATCH: u64 = u64::MAX - 1;

fn add(hasher: &mut Hasher, entry: &Entry<'_>, version: Version) {
    let mut bytes = |bytes: &[u8]| {
        hasher.write(&(bytes.len() as u64).to_le_bytes());
        hasher.write(bytes);
    };
    bytes(entry.payload);
    bytes(entry.unique_key().unwrap_or_default());
    bytes(entry.content_type().unwrap_or_default().as_bytes());
    for (name, value) in entry.attributes() {
        bytes(name.as_bytes());
        bytes(value.as_bytes());
    }
    // An item has fewer attributes than that, so the next item's fields are not taken for attributes.
    hasher.write(&u64::MAX.to_le_bytes());
    hasher.write(&entry.priority().to_le_bytes());
    let state = match entry.state() {
        State::Ready => 0,
        State::Later(_) => u8::from(version == Version::Earlier),
        State::Dead => 2,
    };
    hasher.write(&[state]);
    if entry.replaces() {
        hasher.write(&[REPLACES]);
    }
    // Digests of items without a batch are those of earlier versions.
    if let Some(batch) = entry.batch() {
        hasher.write(&BATCH.to_le_bytes());
        hasher.write(&(batch.as_bytes().len() as u64).to_le_bytes());
        hasher.write(batch.as_bytes());
    }
    if version == Version::Now && !entry.key().is_empty() {
        hasher.write(&KEY.to_le_bytes());
        hasher.write(&(entry.key().len() as u64).to_le_bytes());
        hasher.write(entry.key());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::item_batch::BatchId;
    use crate::model::new_item::NewItem;
    use crate::model::time::from_millis;

    fn of(items: &[NewItem]) -> Digest {
        digests(items).digest
    }

    fn digests(items: &[NewItem]) -> Digests {
        Digests::of(&items.iter().map(Entry::from).collect::<Vec<_>>())
    }

    fn item() -> NewItem {
        NewItem { content_type: Some("text/plain".to_owned()), ..NewItem::new("a") }.with_attribute("k", "v")
    }

    /// The digest is stored, so it must not change.
    #[test]
    fn golden_digest_of_pushed_items() {
        let unique =
            NewItem { unique: Some(b"u".to_vec()), due: Some(from_millis(7)), priority: -1, ..item() };
        let hex = |digest: Digest| digest.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(hex(of(&[NewItem::new("a")])), "42ce2d7aa97fc3aa18c938ce6cc7a9e2");
        let both = digests(&[unique, NewItem::new("b")]);
        assert_eq!(hex(both.earlier), "dfa6aff12c0d18b334da97076a7b59fc");
        assert_eq!(hex(both.digest), "0723b6da097712487c59011cd334506d");
        let keyed = digests(&[NewItem::new("a").with_key("t/k")]);
        assert_eq!(hex(keyed.earlier), "42ce2d7aa97fc3aa18c938ce6cc7a9e2");
        assert_eq!(hex(keyed.digest), "fa006a8a268ae890a22a3e6e010fb74f");
    }

    #[test]
    fn digest_depends_on_items_and_their_fields() {
        let others = [
            vec![],
            vec![item(), item()],
            vec![NewItem { payload: "b".into(), ..item() }],
            vec![item().with_attribute("k", "w")],
            vec![item().with_attribute("l", "v")],
            vec![NewItem { content_type: None, ..item() }],
            vec![NewItem { unique: Some(b"u".to_vec()), ..item() }],
            vec![item().with_key("k")],
            vec![item().with_key("l")],
            vec![NewItem { priority: 1, ..item() }],
            vec![item().replacing()],
            vec![item().with_batch(BatchId::with_unique(b"q", [1; 16]))],
            vec![item().with_batch(BatchId::with_unique(b"q", [2; 16]))],
        ];
        assert!(others.iter().all(|other| of(other) != of(&[item()])));
        // The same bytes in other fields.
        assert_ne!(
            of(&[NewItem::new("ab"), NewItem::new("c")]),
            of(&[NewItem::new("a"), NewItem::new("bc")])
        );
    }

    #[test]
    fn digest_ignores_the_time_of_the_push() {
        let now = NewItem {
            due: Some(from_millis(7)),
            enqueued_at: Some(from_millis(1)),
            trace_parent: Some("1".to_owned()),
            ..item()
        };
        let again = NewItem {
            due: Some(from_millis(9)),
            enqueued_at: Some(from_millis(3)),
            trace_parent: Some("2".to_owned()),
            ..item()
        };
        let now = [now];
        assert_eq!(of(&now), of(&[again]));
        // Its time has come meanwhile.
        let at_once = NewItem { due: None, ..now[0].clone() };
        assert_eq!(of(&now), of(&[at_once]));
        assert!(digests(&now).matches(&digests(&now).earlier));
    }
}
