//! `POST /api/v1/queues/{queue}/leases/{lease}/extend` and `/acknowledge`

use std::collections::{HashMap, HashSet};

use actix_web::HttpResponse;
use kvqueue_queue::{Item, ItemId, ItemOutcome, Lease, LeaseId, MAX_RESULT, Progress, RetryRules};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    acknowledging::{Effect, Written, cancelled, failure, over},
    kept::Known,
    lease::{Given, Wanted, fetch},
};
use crate::{
    base::clock,
    config::Retry,
    consumer::dispatch::outcome,
    handlers::{Outcome, OutcomeLine, percent},
    http::{
        api_request::{Answer, ApiRequest},
        backend::POLICY,
        error::ApiError,
    },
    operations::push::Object,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcomes {
    #[serde(default)]
    outcomes: Vec<OutcomeLine>,
    /// Everything else goes back to the queue, without an attempt spent.
    #[serde(default)]
    release_rest: bool,
    /// The next lease, which the answer then has: a worker needs one request for each batch.
    #[serde(default)]
    next: Option<Object<Wanted>>,
}

/// The body of an extension, if there is one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Extension {
    /// How far items of the lease are. Those of items that have ended, or were cancelled, are passed over.
    progress: Vec<ProgressLine>,
}

/// How far an item is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgressLine {
    id: String,
    #[serde(default, deserialize_with = "percent")]
    percent: Option<u8>,
    #[serde(default)]
    message: Option<String>,
}

/// The progress by the indexes of the lease's items.
fn progress(lease: &Lease, lines: Vec<ProgressLine>) -> Result<Vec<(usize, Progress)>, ApiError> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let indexes: HashMap<&ItemId, usize> =
        lease.items().iter().enumerate().map(|(index, item)| (&item.id, index)).collect();
    let at = clock::now();
    let line = |ProgressLine { id, percent, message }| {
        let id: ItemId = id.parse().map_err(|error| ApiError::Bad(format!("{error}")))?;
        let index = indexes.get(&id);
        let index = index.ok_or_else(|| ApiError::NotFound(format!("item {id} is not in this lease")))?;
        Ok((*index, Progress::new(at, percent, &message.unwrap_or_default())))
    };
    lines.into_iter().map(line).collect()
}

/// What an acknowledgement is answered with.
#[derive(Serialize)]
struct Acknowledged {
    acknowledged: usize,
    open: usize,
    /// The items of the lease that were cancelled: what is done about them does not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cancelled: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Given>,
}

/// A lease that this daemon has not kept.
enum Found {
    Lease(Box<Lease>),
    /// It is over, since the items that were left of it were cancelled.
    Cancelled(Vec<ItemId>),
}

async fn find(request: &ApiRequest, id: LeaseId) -> Result<Found, ApiError> {
    let _permit = request.app.pullers.leases.permit().await;
    let queue = &request.queue()?;
    let read = request.app.backend.run(|tr| async move {
        let found = async {
            match queue.lease(&tr, id).await? {
                Some(lease) => Ok(Some(Found::Lease(Box::new(lease)))),
                None => {
                    let cancelled = queue.cancelled_items(&tr, id).await?;
                    Ok((!cancelled.is_empty()).then_some(Found::Cancelled(cancelled)))
                }
            }
        };
        let found = found.await;
        (tr, found)
    });
    let found = read.await?;
    if !matches!(found, Some(Found::Lease(_))) {
        request.forget_lease(id);
    }
    found.ok_or_else(over)
}

fn texts(ids: &[ItemId]) -> Vec<String> {
    ids.iter().map(ItemId::to_string).collect()
}

/// The answer to an extension.
fn extended(request: &ApiRequest, open: usize, cancelled: &[ItemId]) -> HttpResponse {
    let mut answer = json!({ "lease": request.value("lease"), "open": open });
    if !cancelled.is_empty() {
        answer["cancelled"] = texts(cancelled).into();
    }
    HttpResponse::Ok().json(answer)
}

/// `POST .../extend`
pub(in crate::http) async fn extend(mut request: ApiRequest) -> Answer {
    let id = request.lease_id().await?;
    let Extension { progress: lines } = request.long_json_if_any().await?;
    let mut lease = match request.app.pullers.leases.take(request.value("queue"), id) {
        Known::Open(lease) => *lease,
        Known::Over => return Err(over()),
        Known::Nothing => match find(&request, id).await? {
            Found::Lease(lease) => *lease,
            Found::Cancelled(cancelled) => return Ok(extended(&request, 0, &cancelled)),
        },
    };
    let news = match progress(&lease, lines) {
        Ok(news) => news,
        Err(problem) => {
            request.app.pullers.leases.keep(request.value("queue"), lease);
            return Err(problem);
        }
    };
    let permit = request.app.pullers.leases.permit().await;
    lease.extend_with(&request.app.backend.daemon.db, &POLICY, &news).await.map_err(failure)?;
    drop(permit);
    let (open, cancelled) = (lease.open().count(), cancelled(&lease));
    match open {
        0 => request.forget_lease(id),
        _ => request.note_lease(id, open, lease.length()),
    }
    request.app.pullers.leases.keep(request.value("queue"), lease);
    Ok(extended(&request, open, &cancelled))
}

/// `POST .../acknowledge`
pub(in crate::http) async fn acknowledge(mut request: ApiRequest) -> Answer {
    let Outcomes { outcomes, release_rest, next } = request.long_json().await?;
    let next = next.map(|Object(wanted)| wanted.terms(&request)).transpose()?;
    let Effect { acknowledged, open, cancelled } = write(&request, outcomes, release_rest).await?;
    let next = match next {
        None => None,
        // The outcomes are written. A worker that has no lease asks again, and gets the error if there still is one.
        Some(terms) => Some(match fetch(&request, &terms).await {
            Ok(leased) => leased.given(&request).await,
            Err(_) => Given::nothing(),
        }),
    };
    Ok(HttpResponse::Ok().json(Acknowledged { acknowledged, open, cancelled: texts(&cancelled), next }))
}

/// Writes outcomes.
async fn write(request: &ApiRequest, outcomes: Vec<OutcomeLine>, release_rest: bool) -> Written {
    let (id, queue) = (request.lease_id().await?, request.value("queue"));
    let puller = request.app.pullers.puller(&request.app.backend, queue)?;
    let mut lease = match request.app.pullers.leases.take(queue, id) {
        Known::Open(lease) => *lease,
        // The answer to an earlier call was lost.
        Known::Over => return Ok(Effect::default()),
        Known::Nothing => match find(request, id).await? {
            Found::Lease(lease) => *lease,
            Found::Cancelled(cancelled) => return Ok(Effect { cancelled, ..Effect::default() }),
        },
    };
    lease.note_worker(|| request.worker().to_string());
    let rules =
        request.app.backend.config().queues.get(queue).map_or_else(Retry::default, |queue| queue.retry);
    match matched(&lease, outcomes, release_rest, &rules.rules()) {
        Ok(outcomes) => {
            let length = lease.length();
            let written = puller.acknowledge(lease, outcomes, request.held.clone()).await;
            match &written {
                Ok(Effect { open: open @ 1.., .. }) => request.note_lease(id, *open, length),
                Ok(_) | Err(ApiError::Conflict { .. }) => request.forget_lease(id),
                Err(_) => {}
            }
            written
        }
        Err(problem) => {
            request.app.pullers.leases.keep(queue, lease);
            Err(problem)
        }
    }
}

/// The outcomes by the indexes of the lease's items.
fn matched(
    lease: &Lease,
    outcomes: Vec<OutcomeLine>,
    release_rest: bool,
    rules: &RetryRules,
) -> Result<Vec<(usize, ItemOutcome)>, ApiError> {
    let items = lease.items().iter().enumerate().map(|(index, item)| (&item.id, (index, item)));
    let mut left: HashMap<&ItemId, (usize, &Item)> = items.collect();
    let mut found = Vec::with_capacity(left.len());
    for line in outcomes {
        let id: ItemId = line.id.parse().map_err(|error| ApiError::Bad(format!("{error}")))?;
        let Some((index, item)) = left.remove(&id) else {
            return Err(ApiError::NotFound(format!("item {id} is not in this lease, or is named twice")));
        };
        let outcome = line.outcome().map_err(ApiError::Bad)?;
        if let Outcome::DoneWith(result) = &outcome
            && result.len() > MAX_RESULT
        {
            let len = result.len();
            return Err(ApiError::TooLarge(format!(
                "the result of item {id} has {len} bytes, and {MAX_RESULT} are allowed; store it elsewhere, and give its place"
            )));
        }
        found.push((index, outcome::of(outcome, item, rules, clock::now(), clock::random)));
    }
    if release_rest {
        let left: HashSet<usize> = left.into_values().map(|(index, _)| index).collect();
        let rest = lease.open().filter(|index| left.contains(index));
        found.extend(rest.map(|index| (index, ItemOutcome::Release)));
    }
    Ok(found)
}
