//! Pausing a queue: for all daemons, by a record in the database; or for this one.

use actix_web::HttpResponse;
use kvqueue_queue::{MAX_REASON, Pause, Queue};
use serde::Deserialize;

use super::{
    call::{Answer, Call},
    error::Failure,
    frozen,
    status::no_queue,
};
use crate::{consumer::clock, control::Refused, status::Phase};

/// How a queue is to be paused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct How {
    /// For this daemon alone, until it ends.
    local: bool,
    /// Why, for people.
    reason: String,
}

/// `PUT /api/v1/queues/{queue}/pause`
pub(super) async fn pause(mut call: Call) -> Answer {
    let queue = call.queue()?;
    let How { local, reason } = call.json_if_any().await?;
    if reason.len() > MAX_REASON {
        let problem = format!("the reason has {} bytes, at most {MAX_REASON} are kept", reason.len());
        return Err(Failure::Bad(problem));
    }
    if local {
        return pause_locally(&call, true).await;
    }
    let record = Pause { at: clock::now(), frozen: false, reason };
    change(&call, &queue, Some(&record)).await
}

/// `DELETE /api/v1/queues/{queue}/pause`
pub(super) async fn resume(call: Call) -> Answer {
    let queue = call.queue()?;
    if call.query.flag("local")? {
        return pause_locally(&call, false).await;
    }
    change(&call, &queue, None).await
}

/// Writes the record, or clears it; unless the queue is being moved, or was.
async fn change(call: &Call, queue: &Queue, pause: Option<&Pause>) -> Answer {
    let frozen = call
        .site
        .transact(|tr| async move {
            let found = match queue.paused(&tr).await {
                Ok(found) => found.filter(|found| found.frozen),
                Err(error) => return (tr, Err(error)),
            };
            match (&found, pause) {
                (Some(_), _) => {}
                (None, Some(pause)) => queue.pause(&tr, pause),
                (None, None) => queue.resume(&tr),
            }
            (tr, Ok(found))
        })
        .await?;
    match frozen {
        None => Ok(HttpResponse::NoContent().finish()),
        Some(pause) => Err(frozen::failure(&pause)),
    }
}

async fn pause_locally(call: &Call, paused: bool) -> Answer {
    let (site, name) = (&call.site, call.value(0));
    if !site.config().queues.contains_key(name) {
        return Err(no_queue(name));
    }
    match site.door.control.pause_locally(name, paused).await {
        Ok(()) => Ok(HttpResponse::NoContent().finish()),
        Err(refused) => Err(refuse(call, refused)),
    }
}

/// An order was refused, or the daemon obeys no orders any more.
pub(super) fn refuse(call: &Call, Refused(reason): Refused) -> Failure {
    match call.site.door.status.current_phase() {
        Phase::Draining => Failure::Unavailable(reason),
        Phase::Starting | Phase::Ready | Phase::Reloading => Failure::Refused(reason),
    }
}
