//! The batches of a queue: making, committing, showing and cancelling them.

use std::num::NonZeroUsize;

use actix_web::HttpResponse;
use kvqueue_queue::item_batch::{BatchCommit, BatchError, BatchId, NewBatch, ParseBatchIdError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest},
    body::{Object, whole},
    database::POLICY,
    error::ApiError,
    items::PAGE,
    push::Entry,
};
use crate::{
    batches::{BatchCancel, batch_object, counts_object, gone},
    causes::with_causes,
    consumer::clock,
};

/// A batch to be made.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    /// The item that is pushed in the end.
    then: Object<Entry>,
    /// How long it waits for its members.
    #[serde(default, deserialize_with = "whole")]
    deadline_ms: Option<u64>,
}

/// `POST /api/v1/queues/{queue}/batches`
pub(super) async fn create(mut request: ApiRequest) -> Answer {
    // In base 64 a payload is longer than the body of other requests may be.
    let BatchBody { then: Object(then), deadline_ms } = request.long_json().await?;
    let (queue, now) = (request.queue()?, clock::now());
    let mut callback = then.item(now, None).map_err(|problem| ApiError::Bad(format!("then: {problem}")))?;
    // The sweeper sets it when it pushes the item.
    callback.enqueued_at = None;
    let deadline = deadline_ms.map(|ms| now.saturating_add(ms));
    let batch = NewBatch { callback, deadline };
    let _permit = request.app.permit()?;
    let made = queue.create_batch(&request.app.daemon.db, &POLICY, &batch, now).await;
    let id = made.map_err(|error| match error {
        BatchError::Retry(error) => error.into(),
        error => ApiError::Bad(with_causes(&error)),
    })?;
    Ok(HttpResponse::Created().json(json!({ "id": id.to_string() })))
}

/// `POST /api/v1/queues/{queue}/batches/{batch}/commit`
pub(super) async fn commit(request: ApiRequest) -> Answer {
    let (queue, id) = (request.queue()?, request.batch()?);
    let _permit = request.app.permit()?;
    match queue.finish_batch(&request.app.daemon.db, &POLICY, &id, clock::now()).await? {
        BatchCommit::Committed => Ok(HttpResponse::Ok().json(json!({ "changed": true }))),
        BatchCommit::WasCommitted => Ok(HttpResponse::Ok().json(json!({ "changed": false }))),
        BatchCommit::Gone => Err(ApiError::NotFound(gone(&id))),
    }
}

/// `GET /api/v1/queues/{queue}/batches`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let queue = &request.queue()?;
    let after = request.query.parsed::<BatchId>("after")?;
    let limit = request.query.number("limit", PAGE, PAGE[1])?;
    let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
    let after = after.as_ref();
    let page = request
        .app
        .transact(|tr| async move {
            let page = queue.batches_after(&tr, after, limit).await;
            (tr, page)
        })
        .await?;
    let next = page.last().map(|view| view.id.to_string());
    let batches: Vec<Value> = page.iter().map(batch_object).collect();
    Ok(HttpResponse::Ok().json(json!({ "batches": batches, "next": next })))
}

/// `GET /api/v1/queues/{queue}/batches/{batch}`
pub(super) async fn one(request: ApiRequest) -> Answer {
    let (queue, id) = (&request.queue()?, &request.batch()?);
    let found = request
        .app
        .transact(|tr| async move {
            let found = queue.batch(&tr, id).await;
            (tr, found)
        })
        .await?;
    let view = found.ok_or_else(|| ApiError::NotFound(gone(id)))?;
    Ok(HttpResponse::Ok().json(batch_object(&view)))
}

/// `DELETE /api/v1/queues/{queue}/batches/{batch}`
pub(super) async fn cancel(request: ApiRequest) -> Answer {
    let (queue, id) = (&request.queue()?, &request.batch()?);
    let (audit, record) = (&request.app.audit(), &request.record().with("batch", id.to_string()));
    let cancel = &BatchCancel::new(id);
    let counts = request
        .app
        .transact(|tr| async move {
            let counts = cancel.write(&tr, queue, audit, record).await;
            (tr, counts)
        })
        .await?;
    let counts = counts.ok_or_else(|| ApiError::NotFound(gone(id)))?;
    Ok(HttpResponse::Ok().json(json!({ "counts": counts_object(&counts) })))
}

impl ApiRequest {
    /// The batch that the path names.
    fn batch(&self) -> Result<BatchId, ApiError> {
        self.value("batch").parse().map_err(|error: ParseBatchIdError| ApiError::Bad(error.to_string()))
    }
}
