//! `POST /api/v1/queues/{queue}/lease`

use std::{num::NonZeroUsize, time::Duration};

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};

use super::{pullers::Puller, unanswered::Unanswered};
use crate::{
    base::{deadlines::LONGEST_WAIT, json::LeasedItem, json_bytes::length_of},
    config::{MAX_LEASE, MIN_LEASE, QueueConfig},
    http::{
        api_request::{Answer, ApiRequest},
        body::whole,
        error::ApiError,
        operation::failure,
    },
    operations::Site,
};

/// The most items of a lease.
pub(in crate::http) const LEASE_ITEMS: usize = 1_000;

/// What a worker can do about a queue that is not there.
const WAIT: &str = "ask without must_exist (`kvqueue work --create`) to wait for its first push";

/// What a worker asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// The most items. Default: 1.
    #[serde(deserialize_with = "whole")]
    max: Option<usize>,
    /// How long to wait if nothing is ready, in milliseconds. Default: 0.
    #[serde(deserialize_with = "whole")]
    wait_ms: Option<usize>,
    /// How long the lease lasts without an extension, in milliseconds. Default: the queue's configured lease.
    #[serde(deserialize_with = "whole")]
    lease_ms: Option<usize>,
    /// Whether a queue that neither the database nor the configuration has is an error. Otherwise the request waits for its first push.
    must_exist: bool,
}

impl Wanted {
    /// Checks it, for the queue that the path names.
    pub(super) fn terms(&self, request: &ApiRequest) -> Result<Terms, ApiError> {
        let configured =
            request.app.backend.config().queues.get(request.value("queue")).map(|queue| queue.lease);
        let length = self.lease(configured.unwrap_or_else(|| QueueConfig::new("").lease))?;
        Ok(Terms { max: self.max()?, wait: self.wait()?, length })
    }

    fn max(&self) -> Result<NonZeroUsize, ApiError> {
        let max = NonZeroUsize::new(self.max.unwrap_or(1)).filter(|max| max.get() <= LEASE_ITEMS);
        max.ok_or_else(|| ApiError::Bad(format!("max is 1 to {LEASE_ITEMS}")))
    }

    fn wait(&self) -> Result<Duration, ApiError> {
        let wait = millis(self.wait_ms.unwrap_or(0));
        let problem = || ApiError::Bad(format!("wait_ms is 0 to {}", LONGEST_WAIT.as_millis()));
        Some(wait).filter(|wait| *wait <= LONGEST_WAIT).ok_or_else(problem)
    }

    fn lease(&self, configured: Duration) -> Result<Duration, ApiError> {
        let Some(length) = self.lease_ms.map(millis) else { return Ok(configured) };
        let allowed = MIN_LEASE..=MAX_LEASE;
        let problem = || {
            let (shortest, longest) = (allowed.start().as_millis(), allowed.end().as_millis());
            ApiError::Bad(format!("lease_ms is {shortest} to {longest}"))
        };
        Some(length).filter(|length| allowed.contains(length)).ok_or_else(problem)
    }
}

/// What a worker asks for, within the limits.
pub(super) struct Terms {
    max: NonZeroUsize,
    wait: Duration,
    length: Duration,
}

fn millis(number: usize) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(u64::MAX))
}

/// Leases items, and waits for them if there are none.
pub(in crate::http) async fn lease(mut request: ApiRequest) -> Answer {
    let wanted: Wanted = request.json_if_any().await?;
    let terms = wanted.terms(&request)?;
    if wanted.must_exist {
        let site: &dyn Site = &request;
        site.expect_queue_or(&request.queue()?, WAIT).await.map_err(failure)?;
        // Not while the request waits for items.
        drop(request.database_permit.take());
    }
    Ok(HttpResponse::Ok().json(fetch(&request, &terms).await?))
}

/// A lease for the worker that sends a request, or none. Once this returns the lease is the worker's.
pub(super) async fn fetch(request: &ApiRequest, terms: &Terms) -> Result<Given, ApiError> {
    let puller = request.app.pullers.puller(&request.app.backend, request.value("queue"))?;
    let waiting = (!terms.wait.is_zero()).then(|| request.wait());
    let lease = puller.lease(request.peer().cloned(), terms.max, terms.length, terms.wait).await;
    drop(waiting);
    let lease = lease?;
    // It may have waited for a minute. A lease that is dropped here is released.
    request.check_still_known().await?;
    if let Some(lease) = lease.as_ref().and_then(Unanswered::leased) {
        request.reserve_answer(lease.items().iter().map(length_of).sum())?;
    }
    Ok(match lease {
        Some(lease) => Given::of(lease, &puller, request).await,
        None => Given::nothing(),
    })
}

/// The answer to a worker, as JSON has it.
#[derive(Serialize)]
pub(super) struct Given {
    lease: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    /// How long the request had waited when the fetch of this lease began, from which the lease's length counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    items: Vec<LeasedItem>,
}

impl Given {
    /// Hands a lease to the worker.
    async fn of(mut unanswered: Unanswered, puller: &Puller, request: &ApiRequest) -> Self {
        let Some(id) = unanswered.lease().map(|lease| lease.id()) else { return Self::nothing() };
        let id = request.signed(id).await;
        let Some((lease, began)) = unanswered.keep() else { return Self::nothing() };
        let waited = began.saturating_duration_since(request.began);
        let items = lease.open().filter_map(|index| lease.items().get(index)).cloned();
        let items =
            items.map(|item| LeasedItem { enqueued_at: puller.enqueued_at(&item), trace_parent: None, item });
        let given = Self {
            lease: Some(id),
            expires_in_ms: u64::try_from(lease.length().as_millis()).ok(),
            waited_ms: u64::try_from(waited.as_millis()).ok(),
            items: items.collect(),
        };
        request.note_lease(lease.id(), lease.open().count(), lease.length());
        request.app.pullers.leases.keep(request.value("queue"), lease);
        given
    }

    /// No lease.
    pub(super) fn nothing() -> Self {
        Self { lease: None, expires_in_ms: None, waited_ms: None, items: Vec::new() }
    }
}
