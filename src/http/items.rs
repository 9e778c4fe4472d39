//! Looking at items. They stay where they are.

use std::{collections::HashMap, num::NonZeroUsize};

use actix_web::HttpResponse;
use kvqueue_queue::{Cursor, ItemId, ItemPage, ItemState};
use serde_json::{Value, json};

use super::{
    call::{Answer, Call},
    error::Failure,
};
use crate::{board::Handled, consumer::ambient::now, json};

/// The most items of a page.
pub(super) const PAGE: [usize; 2] = [1, 100];

/// The bytes of each payload on a page: the most, and without a word about it.
const BYTES: [usize; 2] = [0, 65_536];
const SOME_BYTES: usize = 1_024;

/// The bytes of a payload that is asked for by itself.
pub(super) const WHOLE: usize = 1 << 20;

/// `GET /api/v1/queues/{queue}/items`
pub(super) async fn list(call: Call) -> Answer {
    let queue = call.queue()?;
    let state = call.query.parsed::<ItemState>("state")?.unwrap_or_default();
    let limit = call.query.number("limit", PAGE, PAGE[1])?;
    let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
    let bytes = call.query.number("bytes", BYTES, SOME_BYTES)?;
    let after = call.query.text("after").map(|text| Cursor::parse(state, text)).transpose();
    let after = after.map_err(|error| Failure::NotFound(format!("parameter after: {error}")))?;
    let page: ItemPage = call
        .site
        .transact(|tr| async {
            let page = queue.view(&tr, state, after.as_ref(), limit).await;
            (tr, page)
        })
        .await?;
    let name = call.value(0);
    let config = call.site.config();
    let max_attempts = config.queues.get(name).map(|queue| queue.retry.max_attempts);
    let handled = match state {
        ItemState::Running => call.site.door.board.handled(name),
        _ => HashMap::new(),
    };
    let shown = page.items.iter().map(|view| {
        let mut shown = json::beginning(json::view, view, bytes);
        if let Some(most) = max_attempts {
            shown["max_attempts"] = most.into();
        }
        if let Some(Handled { consumer, lasted }) = handled.get(&view.id) {
            let started_at = now().saturating_sub(lasted.as_millis().try_into().unwrap_or(0));
            shown["handled_by"] =
                json!({ "consumer": consumer, "started_at": json::time(started_at), "for_seconds": lasted.as_secs_f64() });
        }
        shown
    });
    let items: Vec<Value> = shown.collect();
    let next = page.next.map(|next| next.to_string());
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next": next, "unreadable": page.unreadable })))
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
