//! Finding the queues under a prefix.

use foundationdb::Transaction;
use futures::future::try_join_all;

use crate::error::QueueError;
use crate::keys::{Space, after, split_bytes};
use crate::kind::Kind;
use crate::ops::find::first_key;
use mutant::mutant;

/// The names of all queues behind a prefix, sorted.
///
/// A queue is a name with at least one counter or item in any state; so a queue that was used and is empty counts, until it is
/// deleted. A recipe's queue is found by what kvqueue stored for it, like any other: one that only foreign programs have used so far is
/// not, since nothing tells its keys from those of any other program. Keys that belong to no queue are passed over. A few reads per
/// name, whatever the queues hold; snapshot reads, which conflict with nothing. A prefix under which no queue can be has none.
///
/// One transaction has time for some thousand names. Use [`all_queues`](crate::all_queues) where there may be more.
pub async fn queues(tr: &Transaction, prefix: &[u8]) -> Result<Vec<Vec<u8>>, QueueError> {
    let (mut names, mut from) = (Vec::new(), None);
    loop {
        let page = queues_page(tr, prefix, from.as_deref()).await?;
        names.extend(page.names);
        from = page.next;
        if from.is_none() {
            return Ok(names);
        }
    }
}

/// The most names that one page looks at. Each costs a read or two, one after the other, and a transaction lasts five seconds; a cluster
/// under load takes some milliseconds for a read.
const PAGE: usize = 100;

/// Some of the queues behind a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueuePage {
    /// Their names, sorted.
    pub names: Vec<Vec<u8>>,
    /// The key at which the next page begins; `None` if there are no more.
    pub next: Option<Vec<u8>>,
}

/// The next [`queues`]: the first, or those from where the last page ended. A page may have no names and be followed by others.
pub async fn queues_page(
    tr: &Transaction,
    prefix: &[u8],
    from: Option<&[u8]>,
) -> Result<QueuePage, QueueError> {
    let mut names = Vec::new();
    // Names are byte strings, and their type code is 0x01.
    let mut cursor = from.map_or_else(|| [prefix, &[0x01]].concat(), <[u8]>::to_vec);
    let end = [prefix, &[0x02]].concat();
    for _ in 0..PAGE {
        let Some(key) = first_key(tr, &(cursor.clone(), end.clone())).await? else {
            return Ok(QueuePage { names, next: None });
        };
        let name = key.strip_prefix(prefix).and_then(split_bytes).map(|(name, _)| name);
        let Some(space) = name.and_then(|name| Space::new(prefix, &name, Kind::Fifo).ok()) else {
            cursor = next_key(prefix, &key);
            continue;
        };
        // Everything of this name, and nothing of names that begin with it.
        let (begin, after) = space.queue_range();
        if key < begin {
            // The bare tuple (q) is no part of a queue, but others of that name may follow.
            cursor = begin;
            continue;
        }
        if is_queue(tr, &space, &key).await? {
            names.push(space.name);
        }
        cursor = after;
    }
    let next = (!mutant("queues-of-first-page")).then_some(cursor);
    Ok(QueuePage { names, next })
}

/// Whether any record of a queue is stored under the name; `key` is the first key that is.
async fn is_queue(tr: &Transaction, space: &Space, key: &[u8]) -> Result<bool, QueueError> {
    // The first key of a queue usually tells, and no read is needed.
    let counters = space.counters();
    let items =
        [&space.bodies, &space.chunks, &space.dead, &space.held, &space.later, &space.leases, &space.meta];
    let vals = space.item_range();
    if counters.iter().any(|counter| key == counter.as_slice())
        || items.iter().any(|subspace| key.starts_with(subspace))
        || (vals.0.as_slice()..vals.1.as_slice()).contains(&key)
        || key.starts_with(&space.parted)
    {
        return Ok(true);
    }
    // Items that are put aside, held or dead have been counted; ready ones may come from programs that do not count.
    let counted = try_join_all(counters.map(|counter| tr.get(counter, true))).await?;
    Ok(counted.iter().any(Option::is_some) || first_key(tr, &vals).await?.is_some())
}

/// Where to go on behind a key that belongs to no queue: behind its first element, if that can be decoded.
fn next_key(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let rest = key.strip_prefix(prefix).and_then(split_bytes).map(|(_, rest)| rest);
    match rest {
        // An element too long for a name: pass over all keys that begin with it.
        Some(rest) => [&key[..key.len() - rest.len()], &[0xff]].concat(),
        None => after(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_queue_key_is_skipped() {
        assert_eq!(next_key(b"p", b"p\x01no end"), b"p\x01no end\0");
        let long = [b"p\x01".as_slice(), &[b'x'; 300], b"\0\x15\x01"].concat();
        assert_eq!(next_key(b"p", &long), [b"p\x01".as_slice(), &[b'x'; 300], b"\0\xff"].concat());
        // The empty name is no name of a queue.
        assert_eq!(next_key(b"p", b"p\x01\0\x01npush\0"), b"p\x01\0\xff");
    }
}
