//! Items: looking at them by what they are doing; deleting one, making one ready.

use std::{collections::HashMap, num::NonZeroUsize};

use actix_web::HttpResponse;
use kvqueue_queue::{Cursor, ItemEffect, ItemId, ItemPage, ItemState, ItemView};
use serde_json::{Value, json};

use super::{
    call::{Answer, Call},
    database::POLICY,
    dead::unique_taken,
    error::Failure,
};
use crate::{consumer::clock::now, json, status::Handled};

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
    let shown = Shown::of(&call, state);
    let items: Vec<Value> = page.items.iter().map(|view| shown.show(view, bytes)).collect();
    let next = page.next.map(|next| next.to_string());
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next": next, "unreadable": page.unreadable })))
}

/// What this daemon knows of items in addition to the database.
struct Shown {
    /// How many attempts an item of the queue has.
    max_attempts: Option<u32>,
    /// The items that handlers of this daemon have.
    handled: HashMap<ItemId, Handled>,
}

impl Shown {
    fn of(call: &Call, state: ItemState) -> Self {
        let name = call.value(0);
        let max_attempts = call.site.config().queues.get(name).map(|queue| queue.retry.max_attempts);
        let handled = match state {
            ItemState::Running => call.site.door.status.handled(name),
            _ => HashMap::new(),
        };
        Self { max_attempts, handled }
    }

    /// An item with the beginning of its payload.
    fn show(&self, view: &ItemView, bytes: usize) -> Value {
        let mut shown = json::beginning(json::view, view, bytes);
        if let Some(most) = self.max_attempts {
            shown["max_attempts"] = most.into();
        }
        if let Some(Handled { consumer, lasted }) = self.handled.get(&view.id) {
            let started_at = now().saturating_sub(lasted.as_millis().try_into().unwrap_or(0));
            shown["handled_by"] = json!({ "consumer": consumer, "started_at": json::time(started_at), "for_seconds": lasted.as_secs_f64() });
        }
        shown
    }
}

/// `GET /api/v1/queues/{queue}/items/{id}`
pub(super) async fn one(call: Call) -> Answer {
    let (queue, id) = (call.queue()?, call.id(1)?);
    let found = call
        .site
        .transact(|tr| async {
            let found = queue.view_item(&tr, &id).await;
            (tr, found)
        })
        .await?;
    let view = found.ok_or_else(|| gone(&id))?;
    Ok(HttpResponse::Ok().json(Shown::of(&call, view.state).show(&view, WHOLE)))
}

/// `DELETE /api/v1/queues/{queue}/items/{id}`
pub(super) async fn delete(call: Call) -> Answer {
    let (queue, id) = (call.unfrozen_queue().await?, call.id(1)?);
    let _place = call.site.place()?;
    told(&id, queue.delete_item(&call.site.door.db, &POLICY, &id).await?)
}

/// `POST /api/v1/queues/{queue}/items/{id}/requeue`
pub(super) async fn requeue(call: Call) -> Answer {
    let (queue, id) = (call.unfrozen_queue().await?, call.id(1)?);
    let _place = call.site.place()?;
    told(&id, queue.requeue_item(&call.site.door.db, &POLICY, &id).await?)
}

fn told(id: &ItemId, fate: ItemEffect) -> Answer {
    match fate {
        ItemEffect::Done => Ok(HttpResponse::Ok().json(json!({ "id": id.to_string() }))),
        ItemEffect::Gone => Err(gone(id)),
        ItemEffect::Refused => Err(unique_taken(id)),
        ItemEffect::Ready => Err(Failure::Conflict {
            code: "ready",
            message: format!("item {id} is ready already"),
            fix: "there is nothing to do",
        }),
        ItemEffect::Running => Err(Failure::Conflict {
            code: "running",
            message: format!("item {id} is running: a worker has it"),
            fix: "wait until its worker is done with it",
        }),
    }
}

fn gone(id: &ItemId) -> Failure {
    Failure::NotFound(format!("this queue has no item {id}"))
}

impl Call {
    /// The id at this place of the path.
    pub(super) fn id(&self, index: usize) -> Result<ItemId, Failure> {
        self.value(index).parse().map_err(|error| Failure::Bad(format!("{error}")))
    }
}
