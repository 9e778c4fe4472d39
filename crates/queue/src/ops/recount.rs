//! Comparing counters with rows, and adding what they lack.

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use futures::future::{try_join, try_join3};

use crate::keys::keyed::KeyedSpace;
use crate::keys::{Counter, Space, after, counters, range};
use crate::model::element::{append_bytes, append_text, split_text};
use crate::model::error::QueueError;
use crate::model::kind::Kind;
use crate::model::recount::{Counted, IndexFaults, Recount};
use crate::ops::find::{count_all, first_key};
use crate::ops::index::rows::Faults;
use crate::ops::index::unlisted::UnlistedPage;
use crate::ops::index::{repair, unlisted};
use crate::ops::len::between;
use crate::ops::{index, kinds};
use crate::run::conflict;
use crate::run::pause::check_unfrozen;
use mutant::{bound, mutant};

/// The most texts that are looked at.
fn page_texts() -> usize {
    bound("recount-texts", 100)
}

pub(crate) async fn compare(space: &Space, tr: &Transaction) -> Result<Recount, QueueError> {
    let ready = async {
        match space.kind {
            Kind::Fifo | Kind::Keyed => {
                let plain =
                    counted(tr, between(space, tr, Counter::Push, Counter::Pop, true), space.item_range());
                let (plain, parted) = try_join(plain, count_all(tr, space.parted_range())).await?;
                Ok(Some(Counted { by_rows: plain.by_rows + parted.cast_signed(), ..plain }))
            }
            Kind::Recipe(_) | Kind::Priority(..) => Ok(None),
        }
    };
    let dead = async {
        let dead = tr.get(space.counter(Counter::Dead), true).await?;
        Ok::<_, QueueError>(counters::decode(dead.as_deref()).cast_signed())
    };
    let (ready, waiting, dead) = try_join3(
        ready,
        counted(tr, between(space, tr, Counter::Later, Counter::Due, true), space.later.all()),
        counted(tr, dead, range(&space.dead)),
    )
    .await?;
    Ok(Recount { ready, waiting, dead, index: None })
}

/// What is wrong with the index of a keyed queue; `None` for another queue, or if the index is too large to be read in one transaction.
pub(crate) async fn index_faults(space: &Space, tr: &Transaction) -> Result<Option<IndexFaults>, QueueError> {
    let Some(keyed) = &space.keyed else { return Ok(None) };
    let Some(rows) = index::read::read(space, keyed, tr).await? else { return Ok(None) };
    let (mut faults, mut behind) = (rows.faults(), None);
    loop {
        let page = unlisted::page(space, keyed, tr, behind.as_deref()).await?;
        faults.keys.extend(page.keys);
        behind = page.through;
        if behind.is_none() {
            return Ok(Some(faults.counts()));
        }
    }
}

async fn counted(
    tr: &Transaction,
    counter: impl Future<Output = Result<i64, QueueError>>,
    rows: (Vec<u8>, Vec<u8>),
) -> Result<Counted, QueueError> {
    let (by_counters, rows) = try_join(counter, count_all(tr, rows)).await?;
    Ok(Counted { by_counters, by_rows: rows.cast_signed() })
}

pub(crate) async fn recount(space: &Space, tr: &Transaction) -> Result<Recount, QueueError> {
    try_join(check_unfrozen(space, tr), kinds::check(space, tr)).await?;
    let found = compare(space, tr).await?;
    if found.is_right() {
        return Ok(found);
    }
    exclude_others(space, tr)?;
    let ready = found.ready.unwrap_or_default();
    add(space, tr, ready.missing(), Counter::Push, Counter::Pop);
    add(space, tr, found.waiting.missing(), Counter::Later, Counter::Due);
    // An item that no longer waits counts as due, and still counts as pushed: the number of pushes never falls.
    let due = found.waiting.missing().min(0);
    if due < 0 {
        tr.atomic_op(space.counter(Counter::Back), &due.to_le_bytes(), MutationType::Add);
    }
    add(space, tr, found.dead.missing(), Counter::Dead, Counter::Dead);
    Ok(found)
}

/// Two corrections would add the same twice, and one next to a deletion would leave a counter. So they conflict.
fn exclude_others(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    if mutant("recounts-do-not-conflict") {
        return Ok(());
    }
    let mut marker = space.queue.clone();
    append_bytes(&mut marker, b"recount");
    conflict::as_reader(tr, &marker)?;
    conflict::as_writer(tr, &marker)
}

/// Repairs the index of a keyed queue, as far as one transaction can, as [`repair::repair`].
pub(crate) async fn repair_index(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
) -> Result<Option<(Faults, bool)>, QueueError> {
    check_unfrozen(space, tr).await?;
    let found = repair::repair(space, keyed, tr).await?;
    if found.as_ref().is_some_and(|(faults, _)| !faults.is_empty()) {
        exclude_others(space, tr)?;
    }
    Ok(found)
}

/// Lists keys of a page that have items, and are not listed.
pub(crate) async fn list_page(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
    behind: Option<&[u8]>,
) -> Result<UnlistedPage, QueueError> {
    check_unfrozen(space, tr).await?;
    let page = repair::list_page(space, keyed, tr, behind).await?;
    if !page.keys.is_empty() {
        exclude_others(space, tr)?;
    }
    Ok(page)
}

/// Adds to one of two counters, so that the first less the second grows by so much. The second may be the first: that one may shrink.
fn add(space: &Space, tr: &Transaction, missing: i64, came: Counter, went: Counter) {
    let (counter, number) = match missing {
        0 => return,
        1.. => (came, missing),
        _ if came == went => (came, missing),
        _ => (went, missing.wrapping_neg()),
    };
    tr.atomic_op(space.counter(counter), &number.to_le_bytes(), MutationType::Add);
}

/// Whether what follows a queue's name is the counter of pushes, as a program has it that names the queue by a text.
pub(crate) fn is_npush(rest: &[u8]) -> bool {
    npush().iter().any(|npush| rest == npush)
}

fn npush() -> [Vec<u8>; 2] {
    let (mut bytes, mut text) = (Vec::new(), Vec::new());
    append_bytes(&mut bytes, Counter::Push.name().as_bytes());
    append_text(&mut text, Counter::Push.name());
    [bytes, text]
}

pub(crate) async fn text_queues(tr: &Transaction, prefix: &[u8]) -> Result<Vec<String>, QueueError> {
    let (mut cursor, end) = ([prefix, &[0x02]].concat(), [prefix, &[0x03]].concat());
    let mut found = Vec::new();
    for _ in 0..page_texts() {
        let Some(key) = first_key(tr, &(cursor, end.clone())).await? else { break };
        let Some((name, rest)) = key.strip_prefix(prefix).and_then(split_text) else {
            cursor = after(&key);
            continue;
        };
        let queue = &key[..key.len() - rest.len()];
        let [bytes, text] = npush().map(|npush| [queue, &npush].concat());
        let (bytes, text) = try_join(tr.get(&bytes, true), tr.get(&text, true)).await?;
        if bytes.or(text).is_some() {
            found.push(String::from_utf8_lossy(&name).into_owned());
        }
        cursor = [queue, &[0xff]].concat();
    }
    Ok(found)
}
