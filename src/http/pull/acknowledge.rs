//! `POST /api/v1/queues/{queue}/leases/{lease}/acknowledge`

use std::collections::{HashMap, HashSet};

use actix_web::HttpResponse;
use kvqueue_queue::{Item, ItemId, ItemOutcome, Lease, MAX_RESULT, RetryRules};
use serde::{Deserialize, Serialize};

use super::{
    acknowledging::{Effect, Written},
    find::{Found, find, texts},
    kept::Known,
    lease::{Given, Wanted, fetch},
};
use crate::{
    base::clock,
    config::Retry,
    consumer::dispatch::outcome,
    handlers::{Outcome, OutcomeLine},
    http::{
        api_request::{Answer, ApiRequest},
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

/// `POST .../acknowledge`
pub(in crate::http) async fn acknowledge(mut request: ApiRequest) -> Answer {
    let Outcomes { outcomes, release_rest, next } = request.long_json().await?;
    let next = next.map(|Object(wanted)| wanted.terms(&request)).transpose()?;
    let Effect { acknowledged, open, cancelled } = write(&request, outcomes, release_rest).await?;
    let next = match next {
        None => None,
        // The outcomes are written. A worker that has no lease asks again, and gets the error if there still is one.
        Some(terms) => Some(fetch(&request, &terms).await.unwrap_or_else(|_| Given::nothing())),
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
