//! Looking at items. They stay where they are.

use std::num::NonZeroUsize;

use actix_web::HttpResponse;
use kvqueue_queue::{Item, ItemId};
use serde_json::{Value, json};

use super::{
    call::{Answer, Call},
    error::Failure,
};
use crate::json;

/// The most items of a page.
pub(super) const PAGE: [usize; 2] = [1, 100];

/// The bytes of each payload on a page: the most, and without a word about it.
const BYTES: [usize; 2] = [0, 65_536];
const SOME_BYTES: usize = 1_024;

/// The bytes of a payload that is asked for by itself.
pub(super) const WHOLE: usize = 1 << 20;

/// `GET /api/v1/queues/{queue}/items`
pub(super) async fn list(call: Call) -> Answer {
    let (queue, after) = (call.queue()?, call.query.parsed::<ItemId>("after")?);
    let limit = call.query.number("limit", PAGE, PAGE[1])?;
    let bytes = call.query.number("bytes", BYTES, SOME_BYTES)?;
    let (items, more) = call
        .site
        .transact(|tr| async {
            let page = page(&queue, &tr, after.as_ref(), limit).await;
            (tr, page)
        })
        .await?;
    let next = items.last().filter(|_| more).map(|item| item.id.to_string());
    let items: Vec<Value> = items.iter().map(|item| json::beginning(json::item, item, bytes)).collect();
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next": next })))
}

/// The items of a page, and whether there are more.
async fn page(
    queue: &kvqueue_queue::Queue,
    tr: &foundationdb::Transaction,
    after: Option<&ItemId>,
    limit: usize,
) -> Result<(Vec<Item>, bool), kvqueue_queue::QueueError> {
    // One more than wanted tells whether there are more.
    let mut items = queue.peek_after(tr, after, NonZeroUsize::MIN.saturating_add(limit)).await?;
    if items.len() > limit {
        items.truncate(limit);
        return Ok((items, true));
    }
    // There may be fewer because they are long.
    let Some(last) = items.last() else { return Ok((items, false)) };
    let more = !queue.peek_after(tr, Some(&last.id), NonZeroUsize::MIN).await?.is_empty();
    Ok((items, more))
}

/// `GET /api/v1/queues/{queue}/items/{id}`
pub(super) async fn one(call: Call) -> Answer {
    let (queue, id) = (call.queue()?, call.id(1)?);
    let item = call
        .site
        .transact(|tr| async {
            let item = queue.item(&tr, &id).await;
            (tr, item)
        })
        .await?;
    let none = || Failure::NotFound(format!("no item {id} is ready in this queue"));
    let item = item.ok_or_else(none)?;
    Ok(HttpResponse::Ok().json(json::beginning(json::item, &item, WHOLE)))
}

impl Call {
    /// The id at this place of the path.
    pub(super) fn id(&self, index: usize) -> Result<ItemId, Failure> {
        self.value(index).parse().map_err(|error| Failure::Bad(format!("{error}")))
    }
}
