//! Finding the queues under a prefix.

use foundationdb::Transaction;
use futures::future::try_join_all;

use crate::keys::{Space, after, append_bytes, split_bytes};
use crate::model::error::QueueError;
use crate::model::kind::Kind;
use crate::model::sizes::MAX_NAME;
use crate::ops::find::first_key;
use crate::run::range_read::RangeRead;
use mutant::{bound, mutant};

/// The names of all queues behind a prefix, sorted.
///
/// A queue is a name with at least one counter or item in any state; so a queue that was used and is empty counts, until it is
/// deleted. A recipe's queue is found by what kvqueue stored for it, like any other: one that only foreign programs have used so far is
/// not, since nothing tells its keys from those of any other program. Keys that belong to no queue are passed over. Where queues are
/// small, one read finds many names; otherwise a few reads are needed per name, whatever the queues hold. Snapshot reads, which conflict
/// with nothing. A prefix under which no queue can be has none.
///
/// One transaction has time for some thousand names at least. Use [`all_queues`](crate::all_queues) where there may be more.
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

/// The most steps of a page. Each costs a read or two, one after the other, and a transaction lasts five seconds; a cluster under load
/// takes some milliseconds for a read.
fn page_steps() -> usize {
    bound("queues-page-steps", 100)
}

/// A page that has this many names ends after the step that is under way.
fn page_names() -> usize {
    bound("queues-page", 2_000)
}

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
    queues_page_named(tr, prefix, b"", from).await
}

/// The next [`queues`] whose names begin with `named`, as [`queues_page`] finds them.
pub async fn queues_page_named(
    tr: &Transaction,
    prefix: &[u8],
    named: &[u8],
    from: Option<&[u8]>,
) -> Result<QueuePage, QueueError> {
    // The packed name without its end: all names that begin with it are packed alike so far.
    let mut begin = prefix.to_vec();
    append_bytes(&mut begin, named);
    begin.pop();
    let end = [&begin[..], &[0xff; MAX_NAME + 1]].concat();
    // Names are byte strings, and their type code is 0x01.
    let end = if named.is_empty() { [prefix, &[0x02]].concat() } else { end };
    let mut walk = Walk {
        tr,
        prefix,
        end,
        cursor: from.map_or(&*begin, |from| from.max(&begin)).to_vec(),
        ahead: Ahead::default(),
    };
    let mut names = Vec::new();
    for _ in 0..page_steps() {
        if !walk.step(&mut names).await? {
            return Ok(QueuePage { names, next: None });
        }
        if names.len() >= page_names() {
            break;
        }
    }
    let next = (!mutant("queues-of-first-page")).then_some(walk.cursor);
    Ok(QueuePage { names, next })
}

/// The way through the keys of the queues behind a prefix.
struct Walk<'a> {
    tr: &'a Transaction,
    prefix: &'a [u8],
    end: Vec<u8>,
    /// All names before this key have been found.
    cursor: Vec<u8>,
    ahead: Ahead,
}

impl Walk<'_> {
    /// Reads the next keys and adds the names that they show. Returns whether there may be more.
    async fn step(&mut self, names: &mut Vec<Vec<u8>>) -> Result<bool, QueueError> {
        let (keys, more) = self.read().await?;
        let (mut at, mut seen) = (0, 0);
        while let Some(key) = keys.get(at) {
            let name = key.strip_prefix(self.prefix).and_then(split_bytes).map(|(name, _)| name);
            let space = name.and_then(|name| Space::new(self.prefix, &name, Kind::Fifo).ok());
            if let Some(space) = space {
                // Everything of this name, and nothing of names that begin with it.
                let (begin, after) = space.queue_range();
                if key < &begin {
                    // The bare tuple (q) is no part of a queue, but others of that name may follow.
                    self.cursor = begin;
                } else {
                    let own = keys[at..].partition_point(|key| key < &after);
                    let is_complete = at + own < keys.len() || !more;
                    if is_queue(self.tr, &space, &keys[at..at + own], is_complete).await? {
                        names.push(space.name);
                    }
                    seen += 1;
                    self.cursor = after;
                }
            } else {
                self.cursor = next_key(self.prefix, key);
            }
            at += keys[at..].partition_point(|key| key < &self.cursor);
        }
        self.ahead.learn(seen);
        Ok(more && self.cursor < self.end)
    }

    /// The next keys, and whether others may follow.
    async fn read(&self) -> Result<(Vec<Vec<u8>>, bool), QueueError> {
        let Some(bytes) = self.ahead.bytes() else {
            let key = first_key(self.tr, &(self.cursor.clone(), self.end.clone())).await?;
            let more = key.is_some();
            return Ok((key.into_iter().collect(), more));
        };
        let range = (&self.cursor[..], &self.end[..]);
        let page = RangeRead::of(range).page_bytes(bytes).page(self.tr).await?;
        Ok((page.iter().map(|row| row.key().to_vec()).collect(), page.has_more()))
    }
}

/// How many bytes of rows a step reads: a range of rows shows the names of many small queues at once, and a single key is enough to pass
/// over a large one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Bytes(usize),
    /// Only the first key, for this many steps.
    Key(usize),
}

impl Ahead {
    /// The fewest bytes of a range, and the most. The database gives 80,000 at a time.
    const BYTES: [usize; 2] = [1 << 10, 1 << 16];

    /// How many single keys are read before the next range.
    const KEYS: usize = 8;

    /// How much the next step reads; `None`: one key.
    fn bytes(self) -> Option<usize> {
        match self {
            Ahead::Bytes(bytes) => Some(bytes),
            Ahead::Key(_) => None,
        }
    }

    /// The last step has found this many names.
    fn learn(&mut self, names: usize) {
        let [least, most] = Self::BYTES;
        *self = match *self {
            Ahead::Bytes(bytes) if names > 1 => Ahead::Bytes((bytes * 2).min(most)),
            Ahead::Bytes(bytes) if bytes > least => Ahead::Bytes((bytes / 8).max(least)),
            Ahead::Bytes(_) => Ahead::Key(Self::KEYS),
            Ahead::Key(0 | 1) => Ahead::Bytes(least),
            Ahead::Key(left) => Ahead::Key(left - 1),
        }
    }
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead::Bytes(4 << 10)
    }
}

/// Whether any record of a queue is stored under the name. `keys` are the first keys that are, at least one; `is_complete`: and all.
async fn is_queue(
    tr: &Transaction,
    space: &Space,
    keys: &[Vec<u8>],
    is_complete: bool,
) -> Result<bool, QueueError> {
    let counters = space.compared_counters();
    let vals = space.item_range();
    let is_counted = |key: &Vec<u8>| counters.contains(&key.as_slice()) || (&vals.0..&vals.1).contains(&key);
    // The first key of a queue usually tells, and no read is needed.
    let items = [
        &space.bodies,
        &space.chunks,
        &space.dead,
        &space.held,
        space.later.prefix(),
        &space.leases,
        &space.meta,
        &space.parted,
    ];
    if keys.first().is_some_and(|key| items.iter().any(|subspace| key.starts_with(subspace)))
        || keys.iter().any(is_counted)
    {
        return Ok(true);
    }
    if is_complete {
        return Ok(false);
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

    #[test]
    fn small_queues_are_read_many_at_a_time_and_large_ones_by_a_key() {
        let mut ahead = Ahead::default();
        (0..10).for_each(|_| ahead.learn(20));
        assert_eq!(ahead.bytes(), Some(1 << 16));
        // A large queue between small ones costs a few reads.
        ahead.learn(1);
        assert_eq!(ahead.bytes(), Some(1 << 13));
        (0..2).for_each(|_| ahead.learn(1));
        assert_eq!(ahead.bytes(), None);
        let reads: Vec<_> = std::iter::repeat_with(|| {
            ahead.learn(1);
            ahead.bytes()
        })
        .take(2 * (Ahead::KEYS + 1))
        .collect();
        assert_eq!(reads.iter().filter(|bytes| bytes.is_some()).count(), 2);
    }
}
