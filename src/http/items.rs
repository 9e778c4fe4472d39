//! Items: their list by state, and one of them.

use std::{collections::HashMap, num::NonZeroUsize, sync::Arc, time::Duration};

use actix_web::HttpResponse;
use bytes::Bytes;
use kvqueue_queue::{Cursor, ItemId, ItemPage, ItemState, ItemView, Queue};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
    item_wait::{Waited, wait},
    pull::LONGEST_WAIT,
};
use crate::{
    consumer::clock::now,
    item_history,
    item_wait::ItemWait,
    json,
    status::{Handled, Workers},
    why::Why,
};

/// The most items of a page.
pub(super) const PAGE: [usize; 2] = [1, 100];

/// The bytes of each payload on a page: the limit, and the default.
const BYTES: [usize; 2] = [0, 65_536];
const SOME_BYTES: usize = 1_024;

/// The most bytes of a payload in an answer about one item.
pub(super) const WHOLE: usize = 1 << 20;

/// `GET /api/v1/queues/{queue}/items`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let queue = request.queue()?;
    let state = request.query.parsed::<ItemState>("state")?.unwrap_or_default();
    let limit = request.query.number("limit", PAGE, PAGE[1])?;
    let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
    let bytes = request.query.number("bytes", BYTES, SOME_BYTES)?;
    let after = request.query.text("after").map(|text| Cursor::parse(state, text)).transpose();
    // Not a bad request: the cursor may be one of another state.
    let after = after.map_err(|error| ApiError::NotFound(format!("parameter after: {error}")))?;
    if let Some(key) = request.query.text("unique") {
        return by_unique(&request, key).await;
    }
    let page: ItemPage = request
        .transact(|tr| async {
            let page = queue.view(&tr, state, after.as_ref(), limit).await;
            (tr, page)
        })
        .await?;
    let shown = Shown::of(&request, state);
    let items: Vec<Value> = page.items.iter().map(|view| shown.show(view, bytes)).collect();
    let next = page.next.map(|next| next.to_string());
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next": next, "unreadable": page.unreadable })))
}

/// The item that has a unique key, whatever its state, as a page of one item or none.
async fn by_unique(request: &ApiRequest, key: &str) -> Answer {
    let queue = request.queue()?;
    let bytes = request.query.number("bytes", BYTES, SOME_BYTES)?;
    let found = request
        .transact(|tr| async {
            let found = async {
                match queue.unique_item(&tr, key.as_bytes()).await? {
                    Some(id) => queue.view_item(&tr, &id).await,
                    None => Ok(None),
                }
            };
            let found = found.await;
            (tr, found)
        })
        .await?;
    let items: Vec<Value> =
        found.iter().map(|view| Shown::of(request, view.state).show(view, bytes)).collect();
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next": null, "unreadable": 0 })))
}

/// The data about items that this daemon adds to the database's.
struct Shown {
    /// How many attempts an item of the queue has.
    max_attempts: Option<u32>,
    /// The items that handlers of this daemon have.
    handled: HashMap<ItemId, Handled>,
    /// Who has which lease over HTTP.
    workers: Arc<Workers>,
}

impl Shown {
    fn of(request: &ApiRequest, state: ItemState) -> Self {
        let name = request.value("queue");
        let max_attempts = request.app.config().queues.get(name).map(|queue| queue.retry.max_attempts);
        let handled = match state {
            ItemState::Running => request.app.daemon.status.handled(name),
            _ => HashMap::new(),
        };
        Self { max_attempts, handled, workers: request.app.daemon.status.workers.clone() }
    }

    /// An item with the beginning of its payload.
    fn show(&self, view: &ItemView, bytes: usize) -> Value {
        let mut shown = json::beginning(json::view, view, bytes);
        if let Some(most) = self.max_attempts {
            shown["max_attempts"] = most.into();
        }
        if let Some(worker) = view.lease.and_then(|lease| self.workers.of(lease.id)) {
            shown["worker"] = json!(worker);
        }
        if let Some(Handled { consumer, lasted }) = self.handled.get(&view.id) {
            let started_at = now().saturating_sub(lasted.as_millis().try_into().unwrap_or(0));
            shown["handled_by"] = json!({ "consumer": consumer, "started_at": json::time(started_at), "for_seconds": lasted.as_secs_f64() });
        }
        shown
    }
}

/// What is known of an item.
struct State {
    shown: Value,
    /// Whether it is a dead letter, or has ended.
    has_ended: bool,
}

/// `GET /api/v1/queues/{queue}/items/{id}`
pub(super) async fn one(request: ApiRequest) -> Answer {
    let (queue, id) = (request.queue()?, request.id()?);
    let longest = usize::try_from(LONGEST_WAIT.as_millis()).unwrap_or(usize::MAX);
    let millis = request.query.number("wait_ms", [0, longest], 0)?;
    let until = Instant::now() + Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    let mut item_wait = ItemWait::default();
    loop {
        let waited = match millis {
            0 => Waited::Over,
            _ => wait(&request, (&queue, &id), &mut item_wait, until).await?,
        };
        let state = match state(&request, &queue, &id).await? {
            Some(state) => state,
            None if item_wait.has_seen() => left(&request, &queue, &id).await?,
            None => return Err(gone(&id)),
        };
        // A dead letter may have been retried meanwhile.
        if state.has_ended || waited == Waited::Over {
            return Ok(HttpResponse::Ok().json(state.shown));
        }
    }
}

/// An item, whatever it is doing; `None` if neither the queue nor its history has it.
async fn state(request: &ApiRequest, queue: &Queue, id: &ItemId) -> Result<Option<State>, ApiError> {
    let found = request
        .transact(|tr| async move {
            let found = Why::read(queue, &tr, id).await;
            (tr, found)
        })
        .await?;
    if let Some(why) = found {
        let mut shown = Shown::of(request, why.view.state).show(&why.view, WHOLE);
        why.insert(&mut shown);
        return Ok(Some(State { shown, has_ended: why.view.state == ItemState::Dead }));
    }
    let ended = request
        .transact(|tr| async move {
            let ended = item_history::read(queue, &tr, id).await;
            (tr, ended)
        })
        .await?;
    let shown = |(item, result): (_, Option<Bytes>)| json::ended_with(&item, result.as_deref());
    Ok(ended.map(|ended| State { shown: shown(ended), has_ended: true }))
}

/// An item that was there and has left its queue, which has no history of it.
async fn left(request: &ApiRequest, queue: &Queue, id: &ItemId) -> Result<State, ApiError> {
    let exists = request
        .transact(|tr| async move {
            let exists = queue.exists(&tr).await;
            (tr, exists)
        })
        .await?;
    match exists {
        true => Ok(State { shown: json::left(id), has_ended: true }),
        false => Err(ApiError::NotFound(format!("the queue of item {id} was deleted"))),
    }
}

fn gone(id: &ItemId) -> ApiError {
    ApiError::NotFound(format!("this queue has no item {id}"))
}

impl ApiRequest {
    /// The id in the path.
    pub(super) fn id(&self) -> Result<ItemId, ApiError> {
        self.value("id").parse().map_err(|error| ApiError::Bad(format!("{error}")))
    }
}
