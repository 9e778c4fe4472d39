//! `POST /api/v1/queues/{queue}/leases/{lease}/extend`

use std::collections::HashMap;

use actix_web::HttpResponse;
use kvqueue_queue::{ItemId, Lease, Progress};
use serde::Deserialize;
use serde_json::json;

use super::{
    acknowledging::{cancelled, failure, over},
    find::{Found, find, texts},
    kept::Known,
};
use crate::{
    base::clock,
    handlers::percent,
    http::{
        api_request::{Answer, ApiRequest},
        backend::POLICY,
        error::ApiError,
    },
};

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
