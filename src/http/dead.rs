//! Dead letters: listing, retrying and purging them.

use std::{num::NonZeroUsize, slice, time::Instant};

use actix_web::HttpResponse;
use kvqueue_queue::{AllDead, DeadLetterEffect, ItemId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest},
    database::POLICY,
    error::ApiError,
    items::{PAGE, WHOLE},
};
use crate::{deadlines::OPERATION, json};

/// `GET /api/v1/queues/{queue}/dead`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let (queue, after) = (request.queue()?, request.query.parsed::<ItemId>("after")?);
    let limit = request.query.number("limit", PAGE, PAGE[1])?;
    // One more than wanted tells whether there are more.
    let wanted = NonZeroUsize::MIN.saturating_add(limit);
    let mut letters = request
        .transact(|tr| async {
            let letters = queue.dead_list(&tr, after.as_ref(), wanted).await;
            (tr, letters)
        })
        .await?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let next = letters.last().filter(|_| more).map(|letter| letter.id.to_string());
    let letters: Vec<Value> = letters.iter().map(json::letter).collect();
    Ok(HttpResponse::Ok().json(json!({ "letters": letters, "next": next })))
}

/// `GET /api/v1/queues/{queue}/dead/{id}`
pub(super) async fn one(request: ApiRequest) -> Answer {
    let (queue, id) = (request.queue()?, request.id()?);
    let letter = request
        .transact(|tr| async {
            let letter = queue.dead_get(&tr, &id).await;
            (tr, letter)
        })
        .await?;
    let letter = letter.ok_or_else(|| gone(&id))?;
    Ok(HttpResponse::Ok().json(json::beginning(json::letter, &letter, WHOLE)))
}

/// `POST /api/v1/queues/{queue}/dead/{id}/retry`
pub(super) async fn retry(request: ApiRequest) -> Answer {
    let (queue, id) = (request.unfrozen_queue().await?, request.id()?);
    request.store(request.record().with_items(slice::from_ref(&id))).await?;
    let _permit = request.permit()?;
    answer(&id, queue.retry_dead(&request.app.daemon.db, &POLICY, &id).await?)
}

/// `DELETE /api/v1/queues/{queue}/dead/{id}`
pub(super) async fn purge(request: ApiRequest) -> Answer {
    let (queue, id) = (request.unfrozen_queue().await?, request.id()?);
    request.store(request.record().with_items(slice::from_ref(&id))).await?;
    let _permit = request.permit()?;
    answer(&id, queue.purge_dead(&request.app.daemon.db, &POLICY, &id).await?)
}

fn answer(id: &ItemId, effect: DeadLetterEffect) -> Answer {
    match effect {
        DeadLetterEffect::Moved => Ok(HttpResponse::Ok().json(json!({ "id": id.to_string() }))),
        DeadLetterEffect::Gone => Err(gone(id)),
        DeadLetterEffect::Refused => Err(unique_taken(id)),
    }
}

/// The error for a letter whose unique key another item has.
pub(super) fn unique_taken(id: &ItemId) -> ApiError {
    ApiError::Conflict {
        code: "unique_taken",
        message: format!("another item has the unique key of dead letter {id}"),
        fix: "retry it when that one is finished, or purge one of them",
    }
}

fn gone(id: &ItemId) -> ApiError {
    ApiError::NotFound(format!("this queue has no dead letter {id}"))
}

/// `POST /api/v1/queues/{queue}/dead/retry`
pub(super) async fn retry_all(request: ApiRequest) -> Answer {
    let queue = request.unfrozen_queue().await?;
    request.store(request.record().with("all", true)).await?;
    let _permit = request.permit()?;
    Ok(all(queue.retry_all_dead(&request.app.daemon.db, &POLICY, until()).await?))
}

/// The confirmation of a purge.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Purge {
    /// The queue's name again.
    confirm: String,
}

/// `POST /api/v1/queues/{queue}/dead/purge`
pub(super) async fn purge_all(mut request: ApiRequest) -> Answer {
    let Purge { confirm } = request.json().await?;
    request.confirmed(&confirm, "all dead letters of")?;
    let queue = request.unfrozen_queue().await?;
    request.store(request.record().with("all", true)).await?;
    let _permit = request.permit()?;
    let AllDead { moved: purged, unreadable, more, .. } =
        queue.purge_all_dead(&request.app.daemon.db, &POLICY, until()).await?;
    Ok(HttpResponse::Ok().json(json!({ "purged": purged, "unreadable": unreadable, "more": more })))
}

/// When a request that changes many items stops; the client sends another for the rest.
pub(super) fn until() -> Option<Instant> {
    Some(Instant::now() + OPERATION)
}

pub(super) fn all(AllDead { moved, refused, unreadable, more }: AllDead) -> HttpResponse {
    let done = json!({ "moved": moved, "refused": refused, "unreadable": unreadable, "more": more });
    HttpResponse::Ok().json(done)
}
