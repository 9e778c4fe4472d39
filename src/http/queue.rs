//! A whole queue: deleting it, making its items ready, moving them to another queue.

use std::{num::NonZeroUsize, time::Instant};

use actix_web::HttpResponse;
use kvqueue_queue::{AllDead, Counts, Movable, Mover, QueueError};
use serde::Deserialize;
use serde_json::json;

use super::{
    api_request::{Answer, ApiRequest},
    body::whole,
    database::POLICY,
    dead::{all, until},
    error::ApiError,
};
use crate::{
    access::Scope,
    deadlines::OPERATION,
    queue_deletion::{Deleted, QueueDeletion},
};

/// `DELETE /api/v1/queues/{queue}`
pub(super) async fn delete(request: ApiRequest) -> Answer {
    request.confirmed(request.query.text("confirm").unwrap_or_default(), "all items of")?;
    let queue = request.unfrozen_queue().await?;
    let (queue, audit, record) = (&queue, &request.app.audit(), &request.record());
    let deletion = &QueueDeletion::new(queue, audit, record);
    let counts = request
        .transact(|tr| async move {
            if let Err(frozen) = queue.check_unfrozen(&tr).await {
                return (tr, Err(frozen));
            }
            let counts = match deletion.write(&tr).await {
                Err(other @ QueueError::OtherKind { .. }) => Ok(Err(other.to_string())),
                counts => counts.map(Ok),
            };
            (tr, counts)
        })
        .await?;
    let Deleted { counts, .. } = counts.map_err(|message| ApiError::Conflict {
        code: "other_kind",
        message,
        fix: "add the queue with its kind to the daemon's configuration, or use the command line: kvqueue delete --kind",
    })?;
    let Counts { ready, running, waiting, dead, .. } = counts;
    let items = json!({ "ready": ready, "running": running, "waiting": waiting, "dead": dead });
    Ok(HttpResponse::Ok().json(json!({ "queue": request.value("queue"), "deleted": true, "items": items })))
}

/// Which items are to be made ready.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Scheduled and retrying ones.
    #[serde(default)]
    waiting: bool,
    /// Dead letters.
    #[serde(default)]
    dead: bool,
}

/// `POST /api/v1/queues/{queue}/requeue`
pub(super) async fn requeue(mut request: ApiRequest) -> Answer {
    let Which { waiting, dead } = request.json().await?;
    if !waiting && !dead {
        let problem = "say which items are to be made ready: \"waiting\": true, \"dead\": true, or both";
        return Err(ApiError::Bad(problem.to_owned()));
    }
    let queue = request.unfrozen_queue().await?;
    request.store(request.record().with("waiting", waiting).with("dead", dead)).await?;
    let _permit = request.permit()?;
    let (db, until, mut done) = (&request.app.daemon.db, until(), AllDead::default());
    if waiting {
        let hastened = queue.requeue_scheduled(db, &POLICY, None, until).await?;
        done.moved += hastened.moved;
        done.unreadable += hastened.unreadable;
        done.more = hastened.more;
    }
    if dead && !done.more {
        let retried = queue.retry_all_dead(db, &POLICY, until).await?;
        done.moved += retried.moved;
        done.refused += retried.refused;
        done.unreadable += retried.unreadable;
        done.more = retried.more;
    }
    Ok(all(done))
}

/// The largest `limit` of a move.
const MOST: usize = 1_000_000;

/// Which items are to go where.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    /// The queue that they go to.
    to: String,
    /// The most of them.
    #[serde(default, deserialize_with = "whole")]
    limit: Option<usize>,
    /// All that are there now.
    #[serde(default)]
    all: bool,
    /// Dead letters, not ready items.
    #[serde(default)]
    dead: bool,
}

/// `POST /api/v1/queues/{queue}/move`
pub(super) async fn move_items(mut request: ApiRequest) -> Answer {
    let Move { to, limit, all, dead } = request.json().await?;
    if limit.is_some_and(|limit| !(1..=MOST).contains(&limit)) {
        return Err(ApiError::Bad(format!("limit is 1 to {MOST}; for all items send \"all\": true")));
    }
    if all == limit.is_some() {
        let problem = "say how many items are to be moved: either \"limit\": N or \"all\": true";
        return Err(ApiError::Bad(problem.to_owned()));
    }
    request.caller.check(Scope::Admin, Some(&to))?;
    let record = request.record().with_move(to.as_bytes(), limit, dead);
    let (from, to) = (request.unfrozen_queue().await?, request.unfrozen(&to).await?);
    let from = if all { from.in_order_for(&to) } else { from };
    let what = if dead { Movable::Dead } else { Movable::Ready };
    let mut mover = Mover::new(from, to, what).map_err(|error| ApiError::Conflict {
        code: "same_queue",
        message: error.to_string(),
        fix: "name another queue",
    })?;
    request.store(record).await?;
    let _permit = request.permit()?;
    let (db, began) = (&request.app.daemon.db, Instant::now());
    let (mut moved, mut refused, mut unreadable, mut more) = (0, 0, 0, true);
    while more && began.elapsed() < OPERATION {
        let left = limit.map_or(usize::MAX, |limit| limit - moved);
        let page = match NonZeroUsize::new(left) {
            Some(left) => mover.page(db, &POLICY, left).await?,
            None => None,
        };
        more = page.is_some();
        let page = page.unwrap_or_default();
        moved += page.moved;
        more &= limit.is_none_or(|limit| moved < limit);
        refused += page.refused;
        unreadable += page.unreadable;
    }
    mover.close(db, &POLICY).await?;
    let done = json!({ "moved": moved, "refused": refused, "unreadable": unreadable, "more": more });
    Ok(HttpResponse::Ok().json(done))
}

impl ApiRequest {
    /// Makes sure that a deletion is meant: the queue's name has to be said once more.
    pub(super) fn confirmed(&self, given: &str, what: &str) -> Result<(), ApiError> {
        let name = self.value("queue");
        if given == name {
            return Ok(());
        }
        Err(ApiError::Conflict {
            code: "not_confirmed",
            message: format!("this deletes {what} queue {name:?} for good, and {given:?} is confirmed"),
            fix: "repeat it with the queue's own name",
        })
    }
}
