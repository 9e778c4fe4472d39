//! Pausing a queue: for all daemons, by a record in the database; or for this one.

use actix_web::HttpResponse;
use kvqueue_queue::{MAX_REASON, Pause, Queue};
use serde::Deserialize;

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
    frozen,
    status::no_queue,
};
use crate::{
    audit::this_daemon, consumer::clock, control::CommandError, pause_change::PauseChange, status::Phase,
};

/// The body of a pause.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct How {
    /// In this daemon only, until it ends.
    local: bool,
    /// Why, for people.
    reason: String,
}

/// `PUT /api/v1/queues/{queue}/pause`
pub(super) async fn pause(mut request: ApiRequest) -> Answer {
    let queue = request.queue()?;
    let How { local, reason } = request.json_if_any().await?;
    if reason.len() > MAX_REASON {
        let problem = format!("the reason has {} bytes, at most {MAX_REASON} are kept", reason.len());
        return Err(ApiError::Bad(problem));
    }
    if local {
        return pause_locally(&request, true).await;
    }
    request.expect_queue_or_create().await?;
    let pause = Pause { at: clock::now(), frozen: false, reason };
    change(&request, &queue, PauseChange::Pause(pause)).await
}

/// `DELETE /api/v1/queues/{queue}/pause`
pub(super) async fn resume(request: ApiRequest) -> Answer {
    let queue = request.queue()?;
    if request.query.flag("local")? {
        return pause_locally(&request, false).await;
    }
    change(&request, &queue, PauseChange::Resume { also_frozen: false }).await
}

/// Writes or clears the record, unless the queue is frozen.
async fn change(request: &ApiRequest, queue: &Queue, change: PauseChange) -> Answer {
    let (audit, record) = (&request.app.audit(), &change.audited(request.record()));
    let change = &change;
    let before = request
        .transact(|tr| async move {
            let before = change.write(&tr, queue, audit, record).await;
            (tr, before)
        })
        .await?;
    match before {
        Some(pause) if !change.is_allowed(Some(&pause)) => Err(frozen::failure(&pause)),
        _ => Ok(HttpResponse::NoContent().finish()),
    }
}

async fn pause_locally(request: &ApiRequest, paused: bool) -> Answer {
    let (app, name) = (&request.app, request.value("queue"));
    if !app.config().queues.contains_key(name) {
        return Err(no_queue(name));
    }
    request.store(request.record().with("local", true).with("daemon", this_daemon())).await?;
    match app.daemon.commands.pause_locally(name, paused).await {
        Ok(()) => Ok(HttpResponse::NoContent().finish()),
        Err(refused) => Err(refuse(request, refused)),
    }
}

/// The error for a command that failed.
pub(super) fn refuse(request: &ApiRequest, CommandError(reason): CommandError) -> ApiError {
    match request.app.daemon.status.current_phase() {
        Phase::Draining => ApiError::Unavailable(reason),
        Phase::Starting | Phase::Ready | Phase::Reloading => ApiError::Refused(reason),
    }
}
