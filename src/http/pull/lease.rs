//! `POST /api/v1/queues/{queue}/lease`

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::HttpResponse;
use kvqueue_queue::{ItemOutcome, Lease};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::pullers::Puller;
use crate::{
    config::QueueConfig,
    http::{
        api_request::{Answer, ApiRequest},
        app_state::AppState,
        body::whole,
        database::POLICY,
        error::ApiError,
    },
    json,
};

/// The most items of a lease.
const MAX: usize = 1_000;

/// The longest time that a request may wait for items.
pub(in crate::http) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The shortest and the longest lease.
const LEASE: [Duration; 2] = [Duration::from_secs(1), Duration::from_hours(12)];

/// How often a paused queue is looked at.
const PAUSED: Duration = Duration::from_secs(1);

/// What a worker asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// The most items; one if nothing is said.
    #[serde(deserialize_with = "whole")]
    max: Option<usize>,
    /// How long to wait if nothing is ready, in milliseconds.
    #[serde(deserialize_with = "whole")]
    wait_ms: Option<usize>,
    /// How long the lease lasts without an extension, in milliseconds; as configured if nothing is said.
    #[serde(deserialize_with = "whole")]
    lease_ms: Option<usize>,
}

impl Wanted {
    fn max(&self) -> Result<NonZeroUsize, ApiError> {
        let max = NonZeroUsize::new(self.max.unwrap_or(1)).filter(|max| max.get() <= MAX);
        max.ok_or_else(|| ApiError::Bad(format!("max is 1 to {MAX}")))
    }

    fn wait(&self) -> Result<Duration, ApiError> {
        let wait = millis(self.wait_ms.unwrap_or(0));
        let problem = || ApiError::Bad(format!("wait_ms is 0 to {}", LONGEST_WAIT.as_millis()));
        Some(wait).filter(|wait| *wait <= LONGEST_WAIT).ok_or_else(problem)
    }

    fn lease(&self, configured: Duration) -> Result<Duration, ApiError> {
        let [shortest, longest] = LEASE;
        let length = self.lease_ms.map_or(configured, millis);
        let problem =
            || ApiError::Bad(format!("lease_ms is {} to {}", shortest.as_millis(), longest.as_millis()));
        Some(length).filter(|length| (shortest..=longest).contains(length)).ok_or_else(problem)
    }
}

fn millis(number: usize) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(u64::MAX))
}

/// Leases items, and waits for them if there are none.
pub(in crate::http) async fn lease(mut request: ApiRequest) -> Answer {
    let wanted: Wanted = request.json_if_any().await?;
    let (max, wait) = (wanted.max()?, wanted.wait()?);
    let configured = request.app.config().queues.get(&*request.value("queue")).map(|queue| queue.lease);
    let length = wanted.lease(configured.unwrap_or_else(|| QueueConfig::new("").lease))?;
    let puller = request.app.pullers.puller(&request.app, &request.queue()?);
    let until = Instant::now() + wait;
    let mut waiting = None;
    loop {
        let found = fetch(&request, &puller, max, length).await?;
        if let Found::Lease(lease) = found {
            let lease = lease.keep();
            lease.iter().for_each(|lease| request.note_lease(lease));
            return Ok(answer(&lease, length, &puller));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || request.app.stopping.is_cancelled() || request.client_is_gone() {
            return Ok(HttpResponse::Ok().json(json!({ "lease": null, "items": [] })));
        }
        waiting.get_or_insert_with(|| request.wait());
        let look = if matches!(found, Found::Paused) { PAUSED.min(left) } else { left };
        tokio::select! {
            () = puller.woken() => {}
            () = sleep(look) => {}
            () = request.app.stopping.cancelled() => {}
        }
    }
}

enum Found {
    Nothing,
    Paused,
    Lease(Box<Unanswered>),
}

async fn fetch(
    request: &ApiRequest,
    puller: &Puller,
    max: NonZeroUsize,
    length: Duration,
) -> Result<Found, ApiError> {
    let mut turn = puller.turn();
    if request.client_is_gone() {
        return Ok(Found::Nothing);
    }
    let is_paused = request.is_paused(puller.queue()).await?;
    if is_paused {
        turn.pass();
        return Ok(Found::Paused);
    }
    let Some(lease) = turn.fetch(&request.app, max, length).await? else { return Ok(Found::Nothing) };
    let lease = Unanswered::new(&request.app, lease);
    // Items of a client that has gone go back at once. So do those of an earlier fetch, if they are too many.
    if request.client_is_gone() || lease.items() > max.get() {
        return Ok(Found::Nothing);
    }
    Ok(Found::Lease(Box::new(lease)))
}

/// A lease whose id no worker has. If it is dropped, its items become ready again, without an attempt spent.
struct Unanswered {
    lease: Option<Lease>,
    app: Arc<AppState>,
}

impl Unanswered {
    fn new(app: &Arc<AppState>, lease: Lease) -> Self {
        Self { lease: Some(lease), app: app.clone() }
    }

    fn items(&self) -> usize {
        self.lease.as_ref().map_or(0, |lease| lease.open().count())
    }

    /// The lease, which now goes to its worker.
    fn keep(mut self) -> Option<Lease> {
        self.lease.take()
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        let db = self.app.daemon.db.clone();
        drop(self.app.spawn(async move {
            let outcomes: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Release)).collect();
            if let Err(error) = lease.acknowledge(&db, &POLICY, &outcomes).await {
                tracing::debug!(event = "lease_unreleased", %error, "the items of a client that has gone stay until their lease expires");
            }
        }));
    }
}

fn answer(lease: &Option<Lease>, length: Duration, puller: &Puller) -> HttpResponse {
    let Some(lease) = lease else { return HttpResponse::Ok().json(json!({ "lease": null, "items": [] })) };
    let shown = |item| {
        let mut shown = json::leased(item);
        if let Some(at) = puller.enqueued_at(item) {
            shown["enqueued_at"] = json::time(at).into();
        }
        shown
    };
    let open: Vec<Value> = lease.open().filter_map(|index| lease.items().get(index)).map(shown).collect();
    let expires_in = length.as_millis();
    HttpResponse::Ok()
        .json(json!({ "lease": lease.id().to_string(), "expires_in_ms": expires_in, "items": open }))
}
