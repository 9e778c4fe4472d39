//! Dead letters: their list, and one of them.

use std::num::NonZeroUsize;

use actix_web::HttpResponse;
use kvqueue_queue::ItemId;
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
    items::{PAGE, WHOLE},
};
use crate::json;

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
    let letter = letter.ok_or_else(|| ApiError::NotFound(format!("this queue has no dead letter {id}")))?;
    Ok(HttpResponse::Ok().json(json::beginning(json::letter, &letter, WHOLE)))
}
