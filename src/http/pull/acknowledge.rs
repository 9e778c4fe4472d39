//! `POST /api/v1/queues/{queue}/leases/{lease}/extend` and `/acknowledge`

use std::collections::HashMap;

use actix_web::HttpResponse;
use kvqueue_queue::{ItemId, ItemOutcome, Lease, LeaseError, LeaseId, RetryRules};
use serde::Deserialize;
use serde_json::json;

use crate::{
    config::Retry,
    consumer::{clock, dispatch::outcome},
    handlers::OutcomeLine,
    http::{
        api_request::{Answer, ApiRequest},
        database::POLICY,
        error::ApiError,
    },
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcomes {
    #[serde(default)]
    outcomes: Vec<OutcomeLine>,
    /// Everything else goes back to the queue, without an attempt spent.
    #[serde(default)]
    release_rest: bool,
}

/// The lease that the path names.
async fn held(request: &ApiRequest) -> Result<Lease, ApiError> {
    let queue = request.queue()?;
    let id: LeaseId = request.value("lease").parse().map_err(|error| ApiError::Bad(format!("{error}")))?;
    let found = request
        .app
        .transact(|tr| async {
            let found = queue.lease(&tr, id).await;
            (tr, found)
        })
        .await?;
    found.ok_or_else(|| {
        request.forget_lease(id);
        over()
    })
}

/// `POST .../extend`
pub(in crate::http) async fn extend(request: ApiRequest) -> Answer {
    let mut lease = held(&request).await?;
    let _place = request.app.place()?;
    lease.extend(&request.app.daemon.db, &POLICY).await.map_err(failure)?;
    request.note_lease(&lease);
    Ok(HttpResponse::Ok().json(json!({ "lease": lease.id().to_string(), "open": lease.open().count() })))
}

/// `POST .../acknowledge`
pub(in crate::http) async fn acknowledge(mut request: ApiRequest) -> Answer {
    let Outcomes { outcomes, release_rest } = request.json().await?;
    let config = request.app.config();
    let rules = config.queues.get(&*request.value("queue")).map_or_else(Retry::default, |queue| queue.retry);
    let mut lease = held(&request).await?;
    let before = lease.open().count();
    let outcomes = matched(&lease, outcomes, release_rest, &rules.rules())?;
    let _place = request.app.place()?;
    lease.acknowledge(&request.app.daemon.db, &POLICY, &outcomes).await.map_err(failure)?;
    request.note_lease(&lease);
    let open = lease.open().count();
    Ok(HttpResponse::Ok().json(json!({ "acknowledged": before - open, "open": open })))
}

/// The outcomes by the indexes of the lease's items.
fn matched(
    lease: &Lease,
    outcomes: Vec<OutcomeLine>,
    release_rest: bool,
    rules: &RetryRules,
) -> Result<Vec<(usize, ItemOutcome)>, ApiError> {
    let items = lease.items().iter().enumerate().map(|(index, item)| (&item.id, (index, item.attempt)));
    let mut left: HashMap<&ItemId, (usize, u32)> = items.collect();
    let mut found = Vec::with_capacity(left.len());
    for line in outcomes {
        let id: ItemId = line.id.parse().map_err(|error| ApiError::Bad(format!("{error}")))?;
        let Some((index, attempt)) = left.remove(&id) else {
            return Err(ApiError::NotFound(format!("item {id} is not in this lease, or is named twice")));
        };
        let outcome = line.outcome().map_err(ApiError::Bad)?;
        found.push((index, outcome::of(outcome, attempt, rules, clock::now(), clock::random())));
    }
    if release_rest {
        let open: Vec<usize> = lease.open().collect();
        let rest = left.into_values().filter(|(index, _)| open.contains(index));
        found.extend(rest.map(|(index, _)| (index, ItemOutcome::Release)));
    }
    Ok(found)
}

fn over() -> ApiError {
    ApiError::Conflict {
        code: "lease_lost",
        message: "this lease is over: all of its items were acknowledged, or it has expired".to_owned(),
        fix: "extend leases in time, or ask for a longer one; items that were not acknowledged are handled again",
    }
}

fn failure(error: LeaseError) -> ApiError {
    match error {
        LeaseError::Lost => over(),
        LeaseError::Retry(error) => ApiError::of(&error),
        LeaseError::TooLarge { .. } => ApiError::TooLarge(error.to_string()),
        other => ApiError::Unavailable(other.to_string()),
    }
}
