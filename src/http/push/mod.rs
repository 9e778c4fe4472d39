//! `POST /api/v1/queues/{queue}/items`
//!
//! Several items are pushed in one transaction, all or none.

mod body;
mod producers;

use std::{collections::BTreeSet, time::Duration};

use actix_web::{
    HttpResponse,
    http::header::{HeaderMap, HeaderValue},
};
use kvqueue_queue::{
    NewItem, ProduceError, PushError, PushOptions, PushedItem, Queue, Session, item_batch::BatchId,
};
use tokio::time::timeout;

use self::body::PushBody;
pub(super) use self::producers::Producers;
use super::{
    api_request::{Answer, ApiRequest},
    backend::{POLICY, silent},
    error::ApiError,
};
use crate::{
    access::Scope,
    base::{clock, deadlines::PUSH},
    config::QueueConfig,
    operations::{Refusal, push::PushAnswer},
};

/// A header that stands for `idempotency_key` in the body.
const KEY: &str = "Idempotency-Key";

/// The end of the error if the outcome of a push is unknown.
const MAYBE: &str =
    "; the items may be in the queue all the same: with an idempotency key a push can be repeated safely";

/// Pushes what the body has.
pub(super) async fn push(mut request: ApiRequest) -> Answer {
    let body: PushBody = request.long_json().await?;
    let (mut items, in_body) = body.items(clock::now(), ttl(&request))?;
    let key = idempotency_key(request.http.headers(), in_body)?;
    // A member also changes the batch in the queue of its callback.
    let homes: BTreeSet<_> = items.iter().filter_map(|item| item.batch.as_ref()).map(BatchId::home).collect();
    for home in homes {
        request.caller.check(Scope::Push, Some(&String::from_utf8_lossy(home)))?;
    }
    let queue = request.queue()?;
    let mut options = PushOptions::default().with_max_payload(max_payload(&request));
    options.idempotency_key = key;
    let (pushed, already) = match items.pop() {
        Some(item) if items.is_empty() && options.idempotency_key.is_none() => {
            (one(&request, queue, item, options.max_payload).await?, false)
        }
        last => {
            items.extend(last);
            request.reserve_answer(items.iter().map(length_of_id).sum())?;
            several(&request, queue, items, options).await?
        }
    };
    Ok(HttpResponse::Created().json(PushAnswer::new(pushed, already)))
}

/// How many bytes the id and the effect of a pushed item have in the answer, at most. The id of an item with a key has two digits for each byte
/// of the key, and two more for each zero byte.
fn length_of_id(item: &NewItem) -> usize {
    100 + 4 * item.key.as_ref().map_or(0, Vec::len)
}

/// The idempotency key, from the body or the header.
fn idempotency_key(headers: &HeaderMap, body: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, ApiError> {
    let mut given = body;
    for key in headers.get_all(KEY).map(HeaderValue::as_bytes) {
        if given.as_ref().is_some_and(|given| given != key) {
            let problem =
                format!("there are two idempotency keys: leave out \"idempotency_key\" or the header {KEY}");
            return Err(ApiError::Bad(problem));
        }
        given = Some(key.to_owned());
    }
    Ok(given)
}

fn max_payload(request: &ApiRequest) -> usize {
    let config = request.app.backend.config();
    let limit = config.queues.get(request.value("queue")).map(|queue| queue.max_payload);
    usize::try_from(limit.unwrap_or_else(|| QueueConfig::new("").max_payload)).unwrap_or(usize::MAX)
}

/// The time after which items of the queue expire, by the configuration.
pub(super) fn ttl(request: &ApiRequest) -> Option<Duration> {
    request.app.backend.config().queues.get(request.value("queue")).and_then(|queue| queue.ttl)
}

/// With those of other requests that come at the same time.
async fn one(
    request: &ApiRequest,
    queue: Queue,
    item: NewItem,
    max_payload: usize,
) -> Result<Vec<PushedItem>, ApiError> {
    let producer = request.app.producers.producer(&request.app.backend, queue, max_payload);
    let held = request.held.clone();
    // The producer keeps the item also when its client has gone, so the memory of the body stays accounted for.
    let pushing = request.app.backend.spawn(async move {
        let pushed = producer.push(item).await;
        drop(held);
        pushed
    });
    match timeout(PUSH, pushing).await {
        Ok(Ok(Ok(pushed))) => Ok(vec![pushed]),
        Ok(Ok(Err(ProduceError::Push(error)))) => Err(failure(&error)),
        Ok(Ok(Err(error))) => Err(ApiError::Unavailable(format!("{error}{MAYBE}"))),
        Ok(Err(_)) => Err(stopping()),
        Err(_) => Err(maybe(silent())),
    }
}

/// In a transaction of their own. It is seen through, whether or not the client waits for it.
async fn several(
    request: &ApiRequest,
    queue: Queue,
    items: Vec<NewItem>,
    options: PushOptions,
) -> Result<(Vec<PushedItem>, bool), ApiError> {
    let _permit = request.permit()?;
    let (db, held) = (request.app.backend.daemon.db.clone(), request.held.clone());
    let pushing = request.app.backend.spawn(async move {
        let mut session = Session::new(queue).with_policy(POLICY);
        let pushed = session.push_items(&db, &items, &options).await;
        // A sweeper clears the token of a session that could not be closed.
        let closed = session.close(&db).await;
        if let Err(error) = closed {
            tracing::debug!(
                event = "session_not_closed",
                %error,
                "cannot close the session of a push"
            );
        }
        drop(held);
        pushed.map(|pushed| (pushed.each().collect::<Vec<_>>(), pushed.repeated))
    });
    match timeout(PUSH, pushing).await {
        Ok(Ok(Ok(pushed))) => Ok(pushed),
        Ok(Ok(Err(error))) => Err(failure(&error)),
        Ok(Err(_)) => Err(stopping()),
        Err(_) => Err(maybe(silent())),
    }
}

/// The task of a push is gone, with its runtime.
fn stopping() -> ApiError {
    maybe(ApiError::Unavailable("the daemon is stopping".to_owned()))
}

fn maybe(failure: ApiError) -> ApiError {
    match failure {
        ApiError::Unavailable(text) => ApiError::Unavailable(text + MAYBE),
        other => other,
    }
}

fn failure(error: &PushError) -> ApiError {
    let conflict = |code, text: String| ApiError::Operation(Refusal::of_text(code, &text));
    if let Some(reused) = error.idempotency_key_reused() {
        return conflict("idempotency_key_reused", reused.to_string());
    }
    if let Some(refused) = error.batch_refused() {
        return conflict("batch", refused.to_string());
    }
    match error {
        PushError::PayloadTooLarge { .. } | PushError::TransactionTooLarge { .. } => {
            ApiError::TooLarge(error.to_string())
        }
        PushError::NoPriorities { .. } => conflict("no_priorities", error.to_string()),
        PushError::NoKeys { .. } => conflict("no_keys", error.to_string()),
        PushError::Retry(cause) => {
            let failure = ApiError::of(cause);
            if error.is_maybe_committed() { maybe(failure) } else { failure }
        }
        PushError::Queue(cause) => match Refusal::of_cause(cause) {
            Some(refusal) => ApiError::Operation(refusal),
            None => ApiError::Unavailable(cause.to_string()),
        },
        refused => ApiError::Bad(refused.to_string()),
    }
}
