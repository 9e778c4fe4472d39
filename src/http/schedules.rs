//! The schedules of a queue: showing and changing them, and firing one by hand.

use std::num::NonZeroUsize;

use actix_web::HttpResponse;
use kvqueue_queue::{
    ItemId, Queue, QueueError,
    schedule::{ByHand, PutEffect, ScheduleError},
};
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest, PAGE},
    database::POLICY,
    error::ApiError,
    push::ttl,
};
use crate::{
    causes::with_causes,
    consumer::clock,
    schedules::{
        Change, Effect, Firing, Refusal, ScheduleChange, ScheduleDefinition, SchedulePage, check_firable,
        firings, from, gone, record_object, schedule_object,
    },
    text::visible,
};

/// How many of the next times an answer about one schedule has.
const TIMES: usize = 5;

/// What to do about a schedule of a configuration, and about one that cannot be read.
type Fixes = [&'static str; 2];

const UPGRADE: Fixes = ["upgrade kvqueue"; 2];
const CHANGE_THERE: Fixes = [
    "change it there and reload its daemons, or choose another name",
    "upgrade kvqueue, or choose another name",
];
const REMOVE_THERE: Fixes = [
    "remove it there and reload its daemons; if no daemon has it any more, add ?force=true",
    "upgrade kvqueue, or remove it all the same with ?force=true",
];

/// `GET /api/v1/queues/{queue}/schedules`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let (queue, after) = (request.queue()?, request.query.text("after"));
    let limit = request.limit()?;
    let page = request
        .transact(|tr| async {
            let page = SchedulePage::read(&queue, &tr, after, limit).await;
            (tr, page)
        })
        .await?;
    let now = clock::now();
    let shown = page.schedules.iter().map(|view| schedule_object(queue.name(), view, now, false));
    let schedules: Vec<Value> = shown.collect();
    Ok(HttpResponse::Ok().json(json!({ "schedules": schedules, "next": page.next() })))
}

/// `GET /api/v1/queues/{queue}/schedules/{name}`
pub(super) async fn one(request: ApiRequest) -> Answer {
    let (queue, name) = (&request.queue()?, request.value("name"));
    let found = request
        .transact(|tr| async move {
            let found = async {
                match queue.schedule(&tr, name).await? {
                    Some(view) => Ok(Ok(view)),
                    None => Ok(Err(gone(&tr, queue, name).await?)),
                }
            };
            let found = found.await;
            (tr, found)
        })
        .await?;
    let view = found.map_err(|refusal| refused(name, refusal, UPGRADE))?;
    let now = clock::now();
    let mut shown = schedule_object(queue.name(), &view, now, true);
    let times: Vec<Value> = match (&view.schedule, &view.state) {
        (Some(schedule), Some(state)) => {
            firings(schedule, queue.name(), from(state, now)).take(TIMES).map(Firing::json).collect()
        }
        _ => Vec::new(),
    };
    shown["times"] = times.into();
    Ok(HttpResponse::Ok().json(shown))
}

/// `PUT /api/v1/queues/{queue}/schedules/{name}`
pub(super) async fn put(mut request: ApiRequest) -> Answer {
    // In base 64 a payload is longer than the body of other requests may be.
    let definition: ScheduleDefinition = request.long_json().await?;
    let (queue, name) = (request.queue()?, request.value("name").to_owned());
    let schedule = definition.checked(name.as_str(), None, queue.kind());
    let schedule = schedule.map_err(|error| ApiError::Bad(error.to_string()))?;
    request.expect_queue_or_create().await?;
    let now = clock::now();
    let effect = write(&request, &queue, Change::Put(Box::new(schedule.clone())), CHANGE_THERE).await?;
    let effect = match effect {
        Effect::Put(PutEffect::Created) => "created",
        Effect::Put(PutEffect::Replaced { .. }) => "replaced",
        _ => "unchanged",
    };
    let next = firings(&schedule, queue.name(), now).next().map(Firing::json);
    let description = schedule.calendar.description();
    Ok(HttpResponse::Ok().json(json!({ "effect": effect, "description": description, "next": next })))
}

/// `DELETE /api/v1/queues/{queue}/schedules/{name}`
pub(super) async fn remove(request: ApiRequest) -> Answer {
    let (name, force) = (request.value("name").to_owned(), request.query.flag("force")?);
    change(&request, Change::Remove { name, force }, REMOVE_THERE).await
}

/// `POST /api/v1/queues/{queue}/schedules/{name}/pause`
pub(super) async fn pause(request: ApiRequest) -> Answer {
    change(&request, Change::Pause { name: request.value("name").to_owned() }, UPGRADE).await
}

/// `POST /api/v1/queues/{queue}/schedules/{name}/resume`
pub(super) async fn resume(request: ApiRequest) -> Answer {
    let (name, restart) = (request.value("name").to_owned(), request.query.flag("restart")?);
    change(&request, Change::Resume { name, restart }, UPGRADE).await
}

async fn change(request: &ApiRequest, change: Change, fixes: Fixes) -> Answer {
    write(request, &request.queue()?, change, fixes).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Makes the change with its record.
async fn write(
    request: &ApiRequest,
    queue: &Queue,
    change: Change,
    fixes: Fixes,
) -> Result<Effect, ApiError> {
    let change = &ScheduleChange::new(change, clock::now());
    let (audit, record) = (&request.app.audit(), &change.audited(request.record()));
    let effect = request
        .transact(|tr| async move {
            let effect = async {
                if change.adds() {
                    queue.check_used(&tr).await?;
                }
                change.write(&tr, queue, audit, record).await
            };
            let effect = known_kind(effect.await);
            (tr, effect)
        })
        .await??;
    match effect {
        Effect::Refused(refusal) => Err(refused(request.value("name"), refusal, fixes)),
        effect => Ok(effect),
    }
}

/// `POST /api/v1/queues/{queue}/schedules/{name}/fire`
pub(super) async fn fire(request: ApiRequest) -> Answer {
    let (queue, name) = (&request.unfrozen_queue().await?, request.value("name"));
    let firable = request
        .transact(|tr| async move {
            let firable = async {
                queue.check_used(&tr).await?;
                check_firable(&tr, queue, name).await
            };
            let firable = known_kind(firable.await);
            (tr, firable)
        })
        .await??;
    let last = firable.map_err(|refusal| refused(name, refusal, UPGRADE))?;
    request.store(request.record().with("schedule", name)).await?;
    let _permit = request.permit()?;
    let fired = queue.fire_schedule(&request.app.daemon.db, &POLICY, name, clock::now(), ttl(&request));
    match fired.await? {
        ByHand::Fired { id } => {
            Ok(HttpResponse::Ok().json(json!({ "item": id.as_ref().map(ItemId::to_string) })))
        }
        ByHand::Overlaps => Err(ApiError::Conflict {
            code: "overlaps",
            message: format!(
                "the last item{} of schedule \"{}\" has not ended, and its items may not overlap",
                last.map(|id| format!(", {id},")).unwrap_or_default(),
                visible(name)
            ),
            fix: "wait until it has ended, or let them overlap (overlap: allow)",
        }),
        ByHand::Gone => Err(refused(name, Refusal::Gone { near: None }, UPGRADE)),
    }
}

/// `GET /api/v1/queues/{queue}/schedules/{name}/history`
pub(super) async fn history(request: ApiRequest) -> Answer {
    let (queue, name) = (&request.queue()?, request.value("name"));
    let (before, limit) = (request.query.parsed::<u64>("before")?, request.limit()?);
    // One more than wanted tells whether there are more.
    let wanted = limit.saturating_add(1);
    let found = request
        .transact(|tr| async move {
            let found = async {
                let records = queue.schedule_history(&tr, name, before, wanted).await?;
                if records.is_empty() && queue.schedule(&tr, name).await?.is_none() {
                    return Ok(Err(gone(&tr, queue, name).await?));
                }
                Ok(Ok(records))
            };
            let found = found.await;
            (tr, found)
        })
        .await?;
    let mut records = found.map_err(|refusal| refused(name, refusal, UPGRADE))?;
    let more = records.len() > limit.get();
    records.truncate(limit.get());
    let next = records.last().filter(|_| more).map(|record| record.number);
    let records: Vec<Value> = records.iter().map(record_object).collect();
    Ok(HttpResponse::Ok().json(json!({ "records": records, "next": next })))
}

impl ApiRequest {
    /// The parameter `limit` of a page.
    fn limit(&self) -> Result<NonZeroUsize, ApiError> {
        let limit = self.query.number("limit", PAGE, PAGE[1])?;
        Ok(NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN))
    }
}

/// The error for a refusal.
fn refused(name: &str, refusal: Refusal, [configured, unreadable]: Fixes) -> ApiError {
    let name = visible(name);
    match refusal {
        Refusal::Gone { near } => {
            let near = near.map(|near| format!("; did you mean \"{}\"?", visible(&near)));
            ApiError::NotFound(format!("the queue has no schedule \"{name}\"{}", near.unwrap_or_default()))
        }
        Refusal::Configured { .. } => {
            let message = format!("cannot change schedule \"{name}\": {refusal}");
            ApiError::Conflict { code: "configured", message, fix: configured }
        }
        Refusal::Unreadable => {
            let message = format!("cannot change or fire schedule \"{name}\": {refusal}");
            ApiError::Conflict { code: "unreadable_schedule", message, fix: unreadable }
        }
        Refusal::Schedule(error @ ScheduleError::TooMany) => ApiError::Conflict {
            code: "too_many_schedules",
            message: error.to_string(),
            fix: "remove a schedule, or use another queue",
        },
        Refusal::Schedule(error) => ApiError::Bad(with_causes(&error)),
    }
}

/// Sets the error of a queue of another kind apart, which is the client's.
fn known_kind<T>(result: Result<T, QueueError>) -> Result<Result<T, ApiError>, QueueError> {
    match result {
        Err(other @ QueueError::OtherKind { .. }) => Ok(Err(ApiError::Conflict {
            code: "other_kind",
            message: other.to_string(),
            fix: "add the queue with its kind to the daemon's configuration, or use the command line: kvqueue schedule --help",
        })),
        result => result.map(Ok),
    }
}
