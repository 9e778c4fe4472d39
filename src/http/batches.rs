//! The batches of a queue: making, committing, showing and cancelling them.

use std::{collections::BTreeSet, num::NonZeroUsize};

use actix_web::HttpResponse;
use kvqueue_queue::{
    ItemId, Queue, QueueError,
    item_batch::{BatchCommit, BatchError, BatchId, Missing, NewBatch, ParseBatchIdError},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest, PAGE},
    body::{Object, whole},
    database::POLICY,
    error::ApiError,
    push::Entry,
};
use crate::{
    access::Scope,
    batches::{BatchCancel, Waits, batch_object, counts_object, gone},
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
    /// Items that are there already, and are its only members.
    #[serde(default, deserialize_with = "some")]
    after: Option<Vec<Object<Predecessor>>>,
    /// What an item of `after` means that is not there.
    missing: Option<MissingWord>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MissingWord {
    Refused,
    Ended,
}

/// A list that is there. One that is null by mistake must not make a batch that nobody commits.
fn some<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Vec<Object<Predecessor>>>, D::Error> {
    Vec::deserialize(value).map(Some)
}

/// An item that is waited for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Predecessor {
    id: String,
    /// Without it, the queue of the callback.
    queue: Option<String>,
}

/// `POST /api/v1/queues/{queue}/batches`
pub(super) async fn create(mut request: ApiRequest) -> Answer {
    // In base 64 a payload is longer than the body of other requests may be.
    let BatchBody { then: Object(then), deadline_ms, after, missing } = request.long_json().await?;
    let (queue, now) = (request.queue()?, clock::now());
    let mut callback = then.item(now, None).map_err(|problem| ApiError::Bad(format!("then: {problem}")))?;
    // The sweeper sets it when it pushes the item.
    callback.enqueued_at = None;
    let deadline = deadline_ms.map(|ms| now.saturating_add(ms));
    if after.is_none() && missing.is_some() {
        return Err(ApiError::Bad("missing is for the items of after; leave it out".to_owned()));
    }
    let missing = match missing {
        Some(MissingWord::Ended) => Missing::HasEnded,
        Some(MissingWord::Refused) | None => Missing::Refused,
    };
    let batch = NewBatch { callback, deadline };
    let db = &request.app.daemon.db;
    let mut answer = json!({});
    let id = match after {
        Some(after) => {
            let after = request.predecessors(after)?;
            let _permit = request.permit()?;
            let (id, joins) =
                queue.push_after(db, &POLICY, &batch, (&after, missing), now).await.map_err(refused)?;
            answer = Waits::of(&joins).counts();
            id
        }
        None => {
            let _permit = request.permit()?;
            queue.create_batch(db, &POLICY, &batch, now).await.map_err(refused)?
        }
    };
    answer["id"] = json!(id.to_string());
    Ok(HttpResponse::Created().json(answer))
}

fn refused(error: BatchError) -> ApiError {
    match error {
        BatchError::Retry(error) => match error.error {
            // An id that the queue cannot have.
            wrong @ QueueError::WrongKind { .. } => ApiError::Bad(format!("after: {wrong}")),
            other @ QueueError::OtherKind { .. } => ApiError::Conflict {
                code: "other_kind",
                message: other.to_string(),
                fix: "configure the queue with its `kind`",
            },
            _ => error.into(),
        },
        missing @ BatchError::Missing { .. } => ApiError::Conflict {
            code: "missing",
            message: missing.to_string(),
            fix: "correct the id or the queue, or send \"missing\": \"ended\"",
        },
        error => ApiError::Bad(with_causes(&error)),
    }
}

/// `POST /api/v1/queues/{queue}/batches/{batch}/commit`
pub(super) async fn commit(request: ApiRequest) -> Answer {
    let (queue, id) = (request.queue()?, request.batch()?);
    let _permit = request.permit()?;
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
        .transact(|tr| async move {
            let counts = cancel.write(&tr, queue, audit, record).await;
            (tr, counts)
        })
        .await?;
    let counts = counts.ok_or_else(|| ApiError::NotFound(gone(id)))?;
    Ok(HttpResponse::Ok().json(json!({ "counts": counts_object(&counts) })))
}

impl ApiRequest {
    /// The items that are waited for, each once. Their records change, so the caller has to be allowed to push to their queues, too.
    fn predecessors(&self, after: Vec<Object<Predecessor>>) -> Result<Vec<(Queue, ItemId)>, ApiError> {
        let mut found: BTreeSet<(String, ItemId)> = BTreeSet::new();
        for Object(Predecessor { id, queue }) in after {
            let id = id.parse().map_err(|error| ApiError::Bad(format!("after: {error}")))?;
            found.insert((queue.unwrap_or_else(|| self.value("queue").to_owned()), id));
        }
        let open = |(name, id): (String, ItemId)| {
            self.caller.check(Scope::Push, Some(&name))?;
            Ok((self.app.queue(&name)?, id))
        };
        found.into_iter().map(open).collect()
    }

    /// The batch that the path names.
    fn batch(&self) -> Result<BatchId, ApiError> {
        self.value("batch").parse().map_err(|error: ParseBatchIdError| ApiError::Bad(error.to_string()))
    }
}
