//! Looking at items: pages of one state, and one item by its id. Reads that conflict with nothing.

use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::Transaction;
use mutant::bound;

use crate::keys::Space;
use crate::model::dead::DeadLetter;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::model::time::{Millis, from_millis};
use crate::model::view::{Cursor, ItemPage, ItemState, ItemView};
use crate::ops::aside::{delayed, read_records};
use crate::ops::locate::{Located, ScheduledRecord, locate, state_of};
use crate::ops::scan::Row;
use crate::ops::{dead, peek, running, scan};
use crate::run::version::now;

/// The most records that one page reads. It may show none of them: scheduled and retrying items share a range.
fn most_passed() -> usize {
    bound("view-items-passed", 2_000)
}

/// The bytes of side records after which a page ends.
fn most_passed_bytes() -> usize {
    bound("view-bytes-passed", 1_000_000)
}

/// Items of one state.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    state: ItemState,
    after: Option<&Cursor>,
    k: NonZeroUsize,
) -> Result<ItemPage, QueueError> {
    match state {
        ItemState::Ready => ready(space, tr, after, k).await,
        ItemState::Scheduled | ItemState::Retrying => waiting(space, tr, state, after, k).await,
        ItemState::Running => running::page(space, tr, after, k).await,
        ItemState::Dead => dead(space, tr, after, k).await,
    }
}

/// The item of this id, whatever it is doing.
pub(crate) async fn one(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<ItemView>, QueueError> {
    Ok(match locate(space, tr, id).await? {
        Some(Located::Ready(row)) => scan::items(space, tr, &[row]).await?.pop().map(of_ready),
        Some(Located::Running(found)) => Some(running::show(space, tr, &found).await?),
        Some(Located::Dead) => dead::get(space, tr, id).await?.map(of_letter),
        Some(Located::ScheduledRecord(ScheduledRecord { due, record, .. })) => {
            let state = state_of(&record);
            let read = read_records(space, tr, &[(id.clone(), record)], MAX_TAKE_BYTES).await?.pop();
            read.map(|read| of_waiting(id.clone(), state, due, read))
        }
        None => None,
    })
}

async fn ready(
    space: &Space,
    tr: &Transaction,
    after: Option<&Cursor>,
    k: NonZeroUsize,
) -> Result<ItemPage, QueueError> {
    let after = after.and_then(Cursor::item);
    // One more than wanted tells whether there are more.
    let mut items = peek::after(space, tr, after, k.saturating_add(1)).await?;
    let mut more = items.len() > k.get();
    items.truncate(k.get());
    if !more && let Some(last) = items.last() {
        // There may be fewer because they are long.
        more = !peek::after(space, tr, Some(&last.id), NonZeroUsize::MIN).await?.is_empty();
    }
    let next = items.last().filter(|_| more).map(|item| Cursor::Item(item.id.clone()));
    Ok(ItemPage { items: items.into_iter().map(of_ready).collect(), next, unreadable: 0 })
}

fn of_ready(item: Item) -> ItemView {
    ItemView {
        id: item.id.clone(),
        state: ItemState::Ready,
        item: Ok(item),
        due: None,
        lease: None,
        progress: None,
        age: None,
    }
}

/// Scheduled or retrying items. Both lie in one range, by time; whether attempts are spent tells them apart.
async fn waiting(
    space: &Space,
    tr: &Transaction,
    state: ItemState,
    after: Option<&Cursor>,
    k: NonZeroUsize,
) -> Result<ItemPage, QueueError> {
    let mut place = after.and_then(Cursor::due).map(|(due, id)| (due, id.clone()));
    let (mut wanted, mut more) = (Vec::new(), true);
    let (mut passed, mut bytes) = (0, 0);
    while more && wanted.len() < k.get() && passed < most_passed() && bytes < most_passed_bytes() {
        let limit = NonZeroUsize::new(most_passed() - passed).unwrap_or(NonZeroUsize::MIN);
        let found = delayed(space, tr, place.as_ref().map(|(due, id)| (*due, id)), limit).await?;
        more = !found.is_empty();
        for (due, id, record) in found {
            if wanted.len() == k.get() {
                break;
            }
            passed += 1;
            bytes += record.len();
            place = Some((due, id.clone()));
            if state_of(&record) == state {
                wanted.push((due, id, record));
            }
        }
    }
    let records: Vec<_> = wanted.iter().map(|(_, id, record)| (id.clone(), record.clone())).collect();
    let read = read_records(space, tr, &records, MAX_TAKE_BYTES).await?;
    if read.len() < wanted.len() {
        // The others are too long for this page.
        place = read.len().checked_sub(1).map(|last| (wanted[last].0, wanted[last].1.clone()));
        more = true;
    }
    let items = wanted.into_iter().zip(read);
    let items = items.map(|((due, id, _), read)| of_waiting(id, state, due, read)).collect();
    let next = match place {
        Some((due, id)) if more => {
            let last = delayed(space, tr, Some((due, &id)), NonZeroUsize::MIN).await?.is_empty();
            (!last).then_some(Cursor::Due(from_millis(due), id))
        }
        _ => None,
    };
    Ok(ItemPage { items, next, unreadable: 0 })
}

fn of_waiting(id: ItemId, state: ItemState, due: Millis, read: Result<(Row, Item), QueueError>) -> ItemView {
    let item = read.map(|(_, item)| item).map_err(|error| error.to_string());
    ItemView { id, state, item, due: Some(from_millis(due)), lease: None, progress: None, age: None }
}

async fn dead(
    space: &Space,
    tr: &Transaction,
    after: Option<&Cursor>,
    k: NonZeroUsize,
) -> Result<ItemPage, QueueError> {
    let after = after.and_then(Cursor::item);
    let letters = dead::after(space, tr, after, k).await?;
    let last = letters.last().map(|letter| letter.id.clone());
    let more = match &last {
        Some(last) => !dead::records(space, tr, Some(last), NonZeroUsize::MIN).await?.is_empty(),
        None => false,
    };
    let next = last.filter(|_| more).map(Cursor::Item);
    Ok(ItemPage { items: letters.into_iter().map(of_letter).collect(), next, unreadable: 0 })
}

fn of_letter(letter: DeadLetter) -> ItemView {
    let attempt = letter.meta.attempts.saturating_add(1);
    let item = match (letter.payload, letter.unreadable) {
        (Some(payload), None) => {
            Ok(Item { id: letter.id.clone(), payload, attempt, meta: Some(letter.meta) })
        }
        (_, why) => Err(why.unwrap_or(letter.reason)),
    };
    ItemView {
        id: letter.id,
        state: ItemState::Dead,
        item,
        due: None,
        lease: None,
        progress: None,
        age: None,
    }
}

/// Adds how old items are whose ids tell.
pub(crate) async fn tell_ages(tr: &Transaction, items: &mut [ItemView]) -> Result<(), QueueError> {
    let now = now(tr).await?;
    for item in items {
        let pushed = item.id.pushed_at();
        item.age = pushed.map(|pushed| Duration::from_micros(now.saturating_sub(pushed)));
    }
    Ok(())
}
