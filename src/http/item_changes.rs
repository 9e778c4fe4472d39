//! Changing items: cancelling them, giving one another time, another try, another payload.

use std::{slice, time::Instant};

use actix_web::HttpResponse;
use base64::{Engine, prelude::BASE64_STANDARD};
use kvqueue_queue::{CancelCounts, CancelFilter, Canceller, ItemChange, ItemId, ItemState, from_millis};
use serde::Deserialize;
use serde_json::json;

use super::{
    api_request::{Answer, ApiRequest},
    body::whole,
    database::POLICY,
    error::ApiError,
    push::due,
};
use crate::{
    config::QueueConfig,
    consumer::clock::now,
    deadlines::OPERATION,
    json,
    refusal::{Operation, Refusal},
};

/// `POST /api/v1/queues/{queue}/items/{id}/cancel`
pub(super) async fn cancel(request: ApiRequest) -> Answer {
    let (queue, id) = (request.unfrozen_queue().await?, request.id()?);
    request.store(request.record().with_items(slice::from_ref(&id))).await?;
    let _permit = request.permit()?;
    let change = queue.cancel_item(&request.app.daemon.db, &POLICY, &id).await?;
    answer(&id, Operation::Cancel, &change)
}

/// `POST /api/v1/queues/{queue}/items/{id}/retry`
pub(super) async fn retry(request: ApiRequest) -> Answer {
    let (queue, id) = (request.unfrozen_queue().await?, request.id()?);
    request.store(request.record().with_items(slice::from_ref(&id))).await?;
    let _permit = request.permit()?;
    let change = queue.retry_item(&request.app.daemon.db, &POLICY, &id).await?;
    answer(&id, Operation::Retry, &change)
}

/// When an item is to be ready.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct When {
    #[serde(deserialize_with = "whole")]
    delay_ms: Option<u64>,
    at: Option<String>,
    now: bool,
}

/// `POST /api/v1/queues/{queue}/items/{id}/reschedule`
pub(super) async fn reschedule(mut request: ApiRequest) -> Answer {
    let When { delay_ms, at, now: at_once } = request.json().await?;
    let given = usize::from(delay_ms.is_some()) + usize::from(at.is_some()) + usize::from(at_once);
    if given != 1 {
        let problem = "say when the item is to be ready: one of \"delay_ms\", \"at\" and \"now\": true";
        return Err(ApiError::Bad(problem.to_owned()));
    }
    let now = now();
    let due = due(delay_ms, at.as_deref(), now).map_err(ApiError::Bad)?.filter(|due| *due > now);
    let (queue, id) = (request.unfrozen_queue().await?, request.id()?);
    let shown = due.map_or_else(|| "now".to_owned(), json::time);
    request.store(request.record().with_items(slice::from_ref(&id)).with("due", shown)).await?;
    let _permit = request.permit()?;
    let due = due.map(from_millis);
    let change = queue.reschedule_item(&request.app.daemon.db, &POLICY, &id, due).await?;
    answer(&id, Operation::Reschedule, &change)
}

/// Another payload.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Payload {
    payload: Option<String>,
    payload_base64: Option<String>,
}

/// `PUT /api/v1/queues/{queue}/items/{id}/payload`
pub(super) async fn edit(mut request: ApiRequest) -> Answer {
    let payload = match request.long_json().await? {
        Payload { payload: Some(text), payload_base64: None } => text.into_bytes(),
        Payload { payload: None, payload_base64: Some(text) } => BASE64_STANDARD
            .decode(text)
            .map_err(|error| ApiError::Bad(format!("payload_base64 is not base 64: {error}")))?,
        _ => return Err(ApiError::Bad("give one of \"payload\" and \"payload_base64\"".to_owned())),
    };
    let configured = request.app.config().queues.get(request.value("queue")).map(|queue| queue.max_payload);
    let most = configured.unwrap_or_else(|| QueueConfig::new("").max_payload);
    if payload.len() as u64 > most {
        let problem = format!("the payload has {} bytes, at most {most} are allowed", payload.len());
        return Err(ApiError::TooLarge(problem));
    }
    let (queue, id) = (request.unfrozen_queue().await?, request.id()?);
    let record = request.record().with_items(slice::from_ref(&id)).with("bytes", payload.len());
    request.store(record).await?;
    let _permit = request.permit()?;
    let change = queue.edit_item(&request.app.daemon.db, &POLICY, &id, &payload).await?;
    answer(&id, Operation::EditPayload, &change)
}

fn answer(id: &ItemId, operation: Operation, change: &ItemChange) -> Answer {
    match operation.result(change) {
        Ok(before) => {
            Ok(HttpResponse::Ok().json(json!({ "id": id.to_string(), "state_before": before.as_str() })))
        }
        Err(_) if *change == ItemChange::Gone => {
            Err(ApiError::NotFound(format!("this queue has no item {id}")))
        }
        Err(Refusal { code, why, fix }) => Err(ApiError::Conflict {
            code,
            message: format!("item {id} is not {}: {why}", operation.past()),
            fix,
        }),
    }
}

/// An attribute.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    name: String,
    value: String,
}

/// Which items are to be cancelled: an item has to match all that is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    /// The queue's name again.
    confirm: String,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    key_base64: Option<String>,
    #[serde(default)]
    attribute: Option<Attribute>,
}

impl Which {
    fn filter(self) -> Result<CancelFilter, ApiError> {
        let state = self.state.map(|text| text.parse::<ItemState>()).transpose();
        let state = state.map_err(|error| ApiError::Bad(format!("state: {error}")))?;
        if state == Some(ItemState::Dead) {
            let problem = "state: a dead letter cannot be cancelled; purge it instead";
            return Err(ApiError::Bad(problem.to_owned()));
        }
        let key = match (self.key, self.key_base64) {
            (Some(_), Some(_)) => {
                return Err(ApiError::Bad("it has both key and key_base64; leave one out".to_owned()));
            }
            (Some(text), None) => Some(text.into_bytes()),
            (None, Some(text)) => Some(
                BASE64_STANDARD
                    .decode(text)
                    .map_err(|error| ApiError::Bad(format!("key_base64 is not base 64: {error}")))?,
            ),
            (None, None) => None,
        };
        let attribute = self.attribute.map(|Attribute { name, value }| (name, value));
        Ok(CancelFilter { state, key, attribute })
    }
}

/// `POST /api/v1/queues/{queue}/cancel`
pub(super) async fn cancel_all(mut request: ApiRequest) -> Answer {
    let which: Which = request.json().await?;
    request.confirmed(&which.confirm, "items of")?;
    let filter = which.filter()?;
    let queue = request.unfrozen_queue().await?;
    let mut record = request.record();
    if let Some(key) = &filter.key {
        record = record.with_name("key", key);
    }
    if let Some((name, value)) = &filter.attribute {
        record = record.with("attribute", format!("{name}={value}"));
    }
    if let Some(state) = filter.state {
        record = record.with("state", state.as_str());
    }
    request.store(record).await?;
    let _permit = request.permit()?;
    let (db, until) = (&request.app.daemon.db, Instant::now() + OPERATION);
    let (mut canceller, mut all, mut more) = (Canceller::new(queue, filter), CancelCounts::default(), false);
    while let Some(page) = canceller.page(db, &POLICY).await? {
        all.cancelled += page.cancelled;
        // An item that cannot be read is found again in each round.
        all.unreadable = all.unreadable.max(page.unreadable);
        more = Instant::now() >= until;
        if more {
            break;
        }
    }
    // The items are cancelled, even if this fails: sweepers clear the mark later.
    let _ = canceller.close(db, &POLICY).await;
    let done = json!({ "cancelled": all.cancelled, "unreadable": all.unreadable, "more": more });
    Ok(HttpResponse::Ok().json(done))
}
