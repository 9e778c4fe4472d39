//! Dead letters: looking at them, and deciding about them.

use std::num::NonZeroUsize;

use actix_web::HttpResponse;
use kvqueue_queue::{AllDead, DeadLetterEffect, ItemId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    call::{Answer, Call},
    database::POLICY,
    error::Failure,
    items::{PAGE, WHOLE},
};
use crate::json;

/// `GET /api/v1/queues/{queue}/dead`
pub(super) async fn list(call: Call) -> Answer {
    let (queue, after) = (call.queue()?, call.query.parsed::<ItemId>("after")?);
    let limit = call.query.number("limit", PAGE, PAGE[1])?;
    // One more than wanted tells whether there are more.
    let wanted = NonZeroUsize::MIN.saturating_add(limit);
    let mut letters = call
        .site
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
pub(super) async fn one(call: Call) -> Answer {
    let (queue, id) = (call.queue()?, call.id(1)?);
    let letter = call
        .site
        .transact(|tr| async {
            let letter = queue.dead_get(&tr, &id).await;
            (tr, letter)
        })
        .await?;
    let letter = letter.ok_or_else(|| gone(&id))?;
    Ok(HttpResponse::Ok().json(json::beginning(json::letter, &letter, WHOLE)))
}

/// `POST /api/v1/queues/{queue}/dead/{id}/retry`
pub(super) async fn retry(call: Call) -> Answer {
    let (queue, id) = (call.unfrozen_queue().await?, call.id(1)?);
    let _place = call.site.place()?;
    told(&id, queue.retry_dead(&call.site.door.db, &POLICY, &id).await?)
}

/// `DELETE /api/v1/queues/{queue}/dead/{id}`
pub(super) async fn purge(call: Call) -> Answer {
    let (queue, id) = (call.unfrozen_queue().await?, call.id(1)?);
    let _place = call.site.place()?;
    told(&id, queue.purge_dead(&call.site.door.db, &POLICY, &id).await?)
}

fn told(id: &ItemId, fate: DeadLetterEffect) -> Answer {
    match fate {
        DeadLetterEffect::Moved => Ok(HttpResponse::Ok().json(json!({ "id": id.to_string() }))),
        DeadLetterEffect::Gone => Err(gone(id)),
        DeadLetterEffect::Refused => Err(unique_taken(id)),
    }
}

/// A letter cannot be made an item again.
pub(super) fn unique_taken(id: &ItemId) -> Failure {
    Failure::Conflict {
        code: "unique_taken",
        message: format!("another item has the unique key of dead letter {id}"),
        fix: "retry it when that one is finished, or purge one of them",
    }
}

fn gone(id: &ItemId) -> Failure {
    Failure::NotFound(format!("this queue has no dead letter {id}"))
}

/// `POST /api/v1/queues/{queue}/dead/retry`
pub(super) async fn retry_all(call: Call) -> Answer {
    let queue = call.unfrozen_queue().await?;
    let _place = call.site.place()?;
    Ok(all(queue.retry_all_dead(&call.site.door.db, &POLICY).await?))
}

/// That it is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Purge {
    /// The queue's name once more.
    confirm: String,
}

/// `POST /api/v1/queues/{queue}/dead/purge`
pub(super) async fn purge_all(mut call: Call) -> Answer {
    let Purge { confirm } = call.json().await?;
    call.confirmed(&confirm, "all dead letters of")?;
    let queue = call.unfrozen_queue().await?;
    let _place = call.site.place()?;
    let AllDead { moved: purged, unreadable, .. } = queue.purge_all_dead(&call.site.door.db, &POLICY).await?;
    Ok(HttpResponse::Ok().json(json!({ "purged": purged, "unreadable": unreadable })))
}

pub(super) fn all(all: AllDead) -> HttpResponse {
    HttpResponse::Ok()
        .json(json!({ "moved": all.moved, "refused": all.refused, "unreadable": all.unreadable }))
}
