//! `POST /api/v1/queues/{queue}/leases/{lease}/extend` and `/acknowledge`

use std::{collections::HashMap, time::Duration};

use actix_web::HttpResponse;
use kvqueue_queue::{ItemId, ItemOutcome, Lease, LeaseError, LeaseId, RetryRules};
use serde::Deserialize;
use serde_json::json;

use crate::{
    config::Retry,
    consumer::{clock, dispatch::outcome},
    handlers::Outcome,
    http::{
        api_request::{Answer, ApiRequest},
        body::whole,
        database::POLICY,
        error::ApiError,
    },
};

/// The longest pause before a retry, in milliseconds: a year.
const LONGEST_PAUSE: usize = 365 * 24 * 3_600 * 1_000;

/// How an item's attempt ended.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Done,
    Retry,
    Release,
    Dead,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneOutcome {
    id: String,
    outcome: Word,
    /// With `retry`: when, in milliseconds from now; by the queue's rules if nothing is said.
    #[serde(default, deserialize_with = "whole")]
    after_ms: Option<usize>,
    /// With `retry` and `dead`: why.
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcomes {
    #[serde(default)]
    outcomes: Vec<OneOutcome>,
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
    found.ok_or_else(over)
}

/// `POST .../extend`
pub(in crate::http) async fn extend(request: ApiRequest) -> Answer {
    let mut lease = held(&request).await?;
    let _place = request.app.place()?;
    lease.extend(&request.app.daemon.db, &POLICY).await.map_err(failure)?;
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
    let open = lease.open().count();
    Ok(HttpResponse::Ok().json(json!({ "acknowledged": before - open, "open": open })))
}

/// The outcomes by the indexes of the lease's items.
fn matched(
    lease: &Lease,
    outcomes: Vec<OneOutcome>,
    release_rest: bool,
    rules: &RetryRules,
) -> Result<Vec<(usize, ItemOutcome)>, ApiError> {
    let items = lease.items().iter().enumerate().map(|(index, item)| (&item.id, (index, item.attempt)));
    let mut left: HashMap<&ItemId, (usize, u32)> = items.collect();
    let mut found = Vec::with_capacity(left.len());
    for OneOutcome { id, outcome: word, after_ms, reason } in outcomes {
        let id: ItemId = id.parse().map_err(|error| ApiError::Bad(format!("{error}")))?;
        let Some((index, attempt)) = left.remove(&id) else {
            return Err(ApiError::NotFound(format!("item {id} is not in this lease, or is named twice")));
        };
        if after_ms.is_some_and(|millis| millis > LONGEST_PAUSE) {
            return Err(ApiError::Bad(format!("after_ms is at most {LONGEST_PAUSE}")));
        }
        if after_ms.is_some() && !matches!(word, Word::Retry) {
            return Err(ApiError::Bad("after_ms is for the outcome retry".to_owned()));
        }
        let reason = reason.unwrap_or_else(|| "the worker gave no reason".to_owned());
        let outcome = match (word, after_ms) {
            (Word::Done, _) => Outcome::Done,
            (Word::Release, _) => Outcome::Release,
            (Word::Dead, _) => Outcome::Dead(reason),
            (Word::Retry, None) => Outcome::Retry(reason),
            (Word::Retry, Some(millis)) => {
                let millis = u64::try_from(millis).unwrap_or(u64::MAX);
                Outcome::RetryAfter(Duration::from_millis(millis), reason)
            }
        };
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
