//! What the status shows. Only `?all=true` reads the database here. Every request asks the stats poller for fresh figures.

use std::time::Duration;

use actix_web::HttpResponse;
use foundationdb::Transaction;
use futures::{StreamExt, TryStreamExt, stream};
use kvqueue_queue::{Queue, QueueError, queues_page};
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
};
use crate::{
    json,
    status::{QueueJson, Snapshot},
};

/// How long an answer waits for the stats poller. After that it has the last known figures, with their age.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most queues that are listed without being in the configuration.
const MOST_OTHERS: usize = 1_000;

/// How many of them are counted at a time.
const TOGETHER: usize = 16;

/// `GET /api/v1/status`
pub(super) async fn whole(request: ApiRequest) -> Answer {
    Ok(HttpResponse::Ok().json(snapshot(&request).await))
}

/// `GET /api/v1/queues`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let all = request.query.flag("all")?;
    let configured = snapshot(&request).await.queues;
    let others = if all { others(&request, &configured).await? } else { Vec::new() };
    let configured = configured.iter().map(|queue| json!(queue));
    Ok(HttpResponse::Ok().json(json!({ "queues": configured.chain(others).collect::<Vec<_>>() })))
}

/// The queues that only the database has, with their counts.
async fn others(request: &ApiRequest, configured: &[QueueJson]) -> Result<Vec<Value>, ApiError> {
    let prefix = request.app.config().prefix.clone();
    request
        .app
        .transact(|tr| async {
            let others = counted(&tr, prefix.as_bytes(), configured).await;
            (tr, others)
        })
        .await
}

async fn counted(
    tr: &Transaction,
    prefix: &[u8],
    configured: &[QueueJson],
) -> Result<Vec<Value>, QueueError> {
    let is_other = |name: &Vec<u8>| configured.iter().all(|it| it.queue.as_bytes() != *name);
    let (mut names, mut from) = (Vec::new(), None);
    while names.len() < MOST_OTHERS {
        let page = queues_page(tr, prefix, from.as_deref()).await?;
        names.extend(page.names.into_iter().filter(is_other));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    let others = names.iter();
    let counted = others.take(MOST_OTHERS).map(async |name| {
        let Ok(queue) = Queue::new(prefix, name) else { return Ok(None) };
        let view = json::counts(name, "ready", queue.counts(tr).await?, queue.paused(tr).await?);
        Ok(Some(view))
    });
    stream::iter(counted).buffered(TOGETHER).try_filter_map(async |view| Ok(view)).try_collect().await
}

/// `GET /api/v1/queues/{queue}`
pub(super) async fn queue(request: ApiRequest) -> Answer {
    let name = request.value("queue");
    let queues = snapshot(&request).await.queues;
    let found = queues.into_iter().find(|queue| queue.queue == name).ok_or_else(|| no_queue(&name))?;
    Ok(HttpResponse::Ok().json(found))
}

/// `GET /api/v1/queues/{queue}/history`
pub(super) async fn history(request: ApiRequest) -> Answer {
    let name = request.value("queue");
    let samples = request.app.daemon.status.history(&name).ok_or_else(|| no_queue(&name))?;
    Ok(HttpResponse::Ok().json(json!({ "samples": samples })))
}

/// `GET /api/v1/consumers`
pub(super) async fn consumers(request: ApiRequest) -> Answer {
    Ok(HttpResponse::Ok().json(json!({ "consumers": snapshot(&request).await.consumers })))
}

/// The error for a queue that this daemon does not process.
pub(super) fn no_queue(name: &str) -> ApiError {
    ApiError::NotFound(format!("this daemon does not process a queue {name:?}"))
}

/// The status, after the stats poller has looked.
pub(super) async fn snapshot(request: &ApiRequest) -> Snapshot {
    let status = &request.app.daemon.status;
    status.viewers.refresh(PATIENCE).await;
    status.snapshot()
}
