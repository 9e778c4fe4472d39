//! What the status shows. Only `?all=true` reads the database here. Every request asks the stats poller for fresh figures.

use std::time::Duration;

use actix_web::HttpResponse;
use foundationdb::Transaction;
use futures::{StreamExt, TryStreamExt, stream};
use kvqueue_queue::{MAX_NAME, Queue, QueueError};
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
    operation::failure,
};
use crate::{
    base::json,
    database::queue_names,
    operations::Site,
    status::{QueueJson, Snapshot},
};

/// How long an answer waits for the stats poller. After that it has the last known figures, with their age.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many queues that are in the database alone an answer has: the fewest, and the most.
const OTHERS: [usize; 2] = [1, 1_000];

/// The longest beginning of a name that queues are looked for by, in characters.
const LONGEST_START: usize = 80;

/// How many queues are counted at a time.
const TOGETHER: usize = 16;

/// `GET /api/v1/status`
pub(super) async fn whole(request: ApiRequest) -> Answer {
    Ok(HttpResponse::Ok().json(snapshot(&request).await))
}

/// `GET /api/v1/queues`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let all = request.query.flag("all")?;
    let limit = request.query.number("limit", OTHERS, OTHERS[1])?;
    let starts_with = request.query.text("starts_with").unwrap_or_default();
    if starts_with.chars().count() > LONGEST_START {
        let problem = format!("parameter starts_with is longer than {LONGEST_START} characters");
        return Err(ApiError::Bad(problem));
    }
    let after = request.query.text("after").map(name_of_place).transpose()?;
    let configured = snapshot(&request).await.queues;
    let (others, next) = match all {
        true => others(&request, &configured, starts_with, after.as_deref(), limit).await?,
        false => (Vec::new(), None),
    };
    let is_shown = |queue: &&QueueJson| after.is_none() && queue.queue.starts_with(starts_with);
    let queues: Vec<_> = configured.iter().filter(is_shown).map(|queue| json!(queue)).chain(others).collect();
    Ok(HttpResponse::Ok().json(json!({ "queues": queues, "next": next })))
}

/// The name of the last queue of a page, from the place that the page named as `next`: its bytes in hexadecimal digits, since names
/// need not be text.
fn name_of_place(place: &str) -> Result<Vec<u8>, ApiError> {
    let digits = |pair: &[u8]| {
        let [high, low] = *pair else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
        u8::try_from(digit(high)? * 16 + digit(low)?).ok()
    };
    let name: Option<Vec<u8>> = place.as_bytes().chunks(2).map(digits).collect();
    let name = name.filter(|name| (1..=MAX_NAME).contains(&name.len()));
    name.ok_or_else(|| ApiError::Bad("parameter after: send the next of the page before".to_owned()))
}

fn place_of_name(name: &[u8]) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The queues that only the database has, with their counts, and the place at which the next page begins.
async fn others(
    request: &ApiRequest,
    configured: &[QueueJson],
    starts_with: &str,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Value>, Option<String>), ApiError> {
    let config = request.app.backend.config();
    let (prefix, named) = (config.prefix.as_bytes(), starts_with.as_bytes());
    // The end of the keys of the last queue.
    let from = after.and_then(|name| Some(Queue::new(prefix, name).ok()?.range().1));
    let is_other = |name: &Vec<u8>| configured.iter().all(|it| it.queue.as_bytes() != *name);
    request
        .transact(|tr| async {
            let others = async {
                let mut names = queue_names(&tr, prefix, named, from.clone(), limit, is_other).await?;
                let next = (names.len() > limit).then(|| place_of_name(&names[limit - 1]));
                names.truncate(limit);
                Ok((counted(&tr, prefix, &names).await?, next))
            };
            let others = others.await;
            (tr, others)
        })
        .await
}

async fn counted(tr: &Transaction, prefix: &[u8], names: &[Vec<u8>]) -> Result<Vec<Value>, QueueError> {
    let counted = names.iter().map(async |name| {
        let Ok(queue) = Queue::new(prefix, name) else { return Ok(None) };
        let view = json::counts(name, queue.counts(tr).await?, queue.paused(tr).await?);
        Ok(Some(view))
    });
    stream::iter(counted).buffered(TOGETHER).try_filter_map(async |view| Ok(view)).try_collect().await
}

/// `GET /api/v1/queues/{queue}`
pub(super) async fn queue(request: ApiRequest) -> Answer {
    let name = request.value("queue");
    let queues = snapshot(&request).await.queues;
    if let Some(found) = queues.into_iter().find(|queue| queue.queue == name) {
        return Ok(HttpResponse::Ok().json(found));
    }
    let site: &dyn Site = &request;
    site.expect_queue(&request.queue()?, None).await.map_err(failure)?;
    let (names, config) = (&[name.as_bytes().to_vec()], &request.app.backend.config());
    let counts = request.transact(|tr| async move {
        let counts = counted(&tr, config.prefix.as_bytes(), names).await;
        (tr, counts)
    });
    Ok(HttpResponse::Ok().json(counts.await?.pop()))
}

/// `GET /api/v1/queues/{queue}/history`
pub(super) async fn history(request: ApiRequest) -> Answer {
    let name = request.value("queue");
    let samples = request.app.backend.daemon.status.history(name).ok_or_else(|| no_queue(name))?;
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
    let status = &request.app.backend.daemon.status;
    status.viewers.refresh(PATIENCE).await;
    status.snapshot()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_list_of_queues_is_a_name() {
        for name in [b"q".as_slice(), b"\0\xff", &[b'x'; MAX_NAME]] {
            assert_eq!(name_of_place(&place_of_name(name)).unwrap(), name);
        }
        for place in ["", "7", "7g", "7A", "+7", &"61".repeat(MAX_NAME + 1)] {
            assert!(name_of_place(place).is_err(), "{place}");
        }
    }
}
