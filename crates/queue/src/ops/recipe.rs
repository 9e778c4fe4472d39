//! Where the recipes' pushes put their items.
//!
//! An item of a queue comes behind the last index there is; one of a priority queue behind the last count of its priority. Both
//! are read at snapshot isolation, so pushes conflict with nothing: two that go on at the same time may get the same number,
//! and their random elements then decide. Numbers begin again when the queue, or the priority, is empty.

use std::collections::BTreeMap;

use foundationdb::Transaction;
use futures::future::try_join_all;

use crate::keys::{Space, recipes};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::id_layout::{RANDOM, priority_id, queue_id};
use crate::model::kind::Kind;
use crate::model::sizes::MAX_PUSHES;
use crate::run::range_read::RangeRead;

/// The numbers of a queue's pushes in one transaction: read once, then counted on.
///
/// Use one for all pushes of a transaction, at most [`MAX_PUSHES`], and drop it with the transaction; after a retry the numbers may be
/// others.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The last one of each priority; a queue without priorities has one entry, at 0.
    last: BTreeMap<i64, i64>,
}

impl Numbers {
    /// Reads where numbering goes on, for priorities of which that is not known yet. Without priorities it is read for 0.
    pub(crate) async fn read(
        &mut self,
        space: &Space,
        tr: &Transaction,
        mut priorities: Vec<i64>,
    ) -> Result<(), QueueError> {
        priorities.retain(|priority| !self.last.contains_key(priority));
        priorities.sort_unstable();
        priorities.dedup();
        let last = try_join_all(priorities.iter().map(|priority| last(space, tr, *priority))).await?;
        self.last.extend(priorities.into_iter().zip(last));
        Ok(())
    }

    /// The id of the next item of a priority, for which [`read`](Numbers::read) has been called.
    ///
    /// `random` makes the id unique: 20 bytes that no other item of the queue has.
    pub(crate) fn next_id(&mut self, space: &Space, priority: i64, random: &[u8; RANDOM]) -> ItemId {
        let last = self.last.get_mut(&priority).expect("numbers are read before items are added");
        *last += 1;
        match space.kind {
            Kind::Priority(..) => priority_id(priority, *last, random),
            Kind::Fifo | Kind::Keyed | Kind::Recipe(_) => queue_id(*last, random),
        }
    }
}

/// The last number of a priority's items, with room for those of a transaction behind it.
async fn last(space: &Space, tr: &Transaction, priority: i64) -> Result<i64, QueueError> {
    let last = match space.kind {
        Kind::Priority(..) => last_count(space, tr, priority).await?,
        Kind::Fifo | Kind::Keyed | Kind::Recipe(_) => last_index(space, tr).await?,
    };
    // A number above all others can only come from a program that does not count.
    if last > i64::MAX - MAX_PUSHES as i64 {
        return Err(foreign(&space.ready));
    }
    Ok(last)
}

/// The highest index among a queue's items; 0 if there are none. The recipe's first index is 1.
pub(crate) async fn last_index(space: &Space, tr: &Transaction) -> Result<i64, QueueError> {
    Ok(last_number(tr, &space.ready).await?.unwrap_or(0))
}

/// The highest count among the items of a priority; -1 if there are none. The recipe's first count is 0.
async fn last_count(space: &Space, tr: &Transaction, priority: i64) -> Result<i64, QueueError> {
    let subspace = [space.ready.as_slice(), &recipes::number(priority)].concat();
    Ok(last_number(tr, &subspace).await?.unwrap_or(-1))
}

/// The highest integer that stands behind a subspace as the next element of a key.
///
/// Elements of other types are passed over: a stray key does not keep items from being pushed.
async fn last_number(tr: &Transaction, subspace: &[u8]) -> Result<Option<i64>, QueueError> {
    let (low, high) = recipes::INTEGERS;
    let (begin, end) = ([subspace, &[low]].concat(), [subspace, &[high]].concat());
    let Some(key) = RangeRead::of((begin, end)).reverse(true).first_row_key(tr).await? else {
        return Ok(None);
    };
    let number = key.strip_prefix(subspace).and_then(recipes::leading_integer);
    number.map(Some).ok_or_else(|| foreign(&key))
}

fn foreign(key: &[u8]) -> QueueError {
    QueueError::ForeignKey { key: key.escape_ascii().to_string() }
}
