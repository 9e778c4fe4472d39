//! The rules of a keyed queue, and its held keys.

use std::num::{NonZeroU32, NonZeroUsize};

use actix_web::HttpResponse;
use base64::{Engine, prelude::BASE64_STANDARD};
use kvqueue_queue::{ItemId, Kind, Limits, Pattern, Queue, QueueError};
use serde::Deserialize;
use serde_json::json;

use super::{
    api_request::{Answer, ApiRequest},
    body::whole,
    error::ApiError,
    items::PAGE,
};
use crate::{
    config::rate,
    held_keys::{self, HeldPage, Unblock},
    json,
    limit_change::{LimitChange, LimitEffect},
    on_dead::OnDead,
};

/// The body of a change: a whole rule.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rule {
    pattern: Option<String>,
    pattern_base64: Option<String>,
    whole_queue: bool,
    #[serde(deserialize_with = "whole")]
    running: Option<u32>,
    rate: Option<String>,
    #[serde(deserialize_with = "whole")]
    burst: Option<u32>,
    #[serde(deserialize_with = "whole")]
    weight: Option<u32>,
    ordered: Option<bool>,
    on_dead: Option<OnDead>,
}

impl Rule {
    /// What it sets, or what is wrong with it.
    fn limits(&self) -> Result<Limits, String> {
        let rate = self.rate.as_deref().map(rate::parse).transpose();
        let rate = rate.map_err(|problem| format!("rate: {problem}"))?;
        let mut limits = Limits::default();
        limits.running = self.running;
        limits.rate = rate::with_burst(rate, positive("burst", self.burst)?)?;
        limits.weight = positive("weight", self.weight)?;
        limits.ordered = self.ordered;
        limits.blocks_on_dead = self.on_dead.map(OnDead::blocks);
        Ok(limits)
    }
}

fn positive(name: &str, number: Option<u32>) -> Result<Option<NonZeroU32>, String> {
    let positive =
        |number| NonZeroU32::new(number).ok_or_else(|| format!("{name} is 0, and has to be 1 or more"));
    number.map(positive).transpose()
}

/// `GET /api/v1/queues/{queue}/limits`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let queue = keyed(&request)?;
    let rules = request
        .transact(|tr| async {
            let rules = async {
                queue.check_used(&tr).await?;
                queue.rules(&tr).await
            };
            let rules = known_kind(rules.await);
            (tr, rules)
        })
        .await??;
    let rules: Vec<_> = rules.iter().map(|(pattern, limits)| json::rule(pattern, *limits)).collect();
    Ok(HttpResponse::Ok().json(json!({ "rules": rules })))
}

/// `PUT /api/v1/queues/{queue}/limits`
pub(super) async fn set(mut request: ApiRequest) -> Answer {
    let rule: Rule = request.json().await?;
    let pattern = scope(rule.pattern.as_deref(), rule.pattern_base64.as_deref(), rule.whole_queue)?;
    let limits = rule.limits().map_err(ApiError::Bad)?;
    let change = LimitChange::set(pattern, limits).map_err(|problem| ApiError::Bad(problem.to_owned()))?;
    request.expect_queue_or_create().await?;
    write(&request, &change).await
}

/// `DELETE /api/v1/queues/{queue}/limits`
pub(super) async fn remove(request: ApiRequest) -> Answer {
    let query = &request.query;
    let whole_queue = query.flag("whole_queue")?;
    let pattern = scope(query.text("pattern"), query.text("pattern_base64"), whole_queue)?;
    write(&request, &LimitChange::remove(pattern)).await
}

/// The scope that a request names in one of three ways.
fn scope(text: Option<&str>, base64: Option<&str>, whole_queue: bool) -> Result<Pattern, ApiError> {
    let bytes = match (text, base64, whole_queue) {
        (Some(text), None, false) => text.as_bytes().to_vec(),
        (None, Some(text), false) => decoded("pattern_base64", text)?,
        (None, None, true) => return Ok(Pattern::QUEUE),
        _ => {
            let problem = "give one of pattern, pattern_base64 and whole_queue";
            return Err(ApiError::Bad(problem.to_owned()));
        }
    };
    Pattern::keys(bytes).map_err(|error| ApiError::Bad(error.to_string()))
}

async fn write(request: &ApiRequest, change: &LimitChange) -> Answer {
    let queue = &keyed(request)?;
    let (audit, record) = (&request.app.audit(), &change.audited(request.record()));
    let effect = request
        .transact(|tr| async move {
            let effect = known_kind(change.write(&tr, queue, audit, record).await);
            (tr, effect)
        })
        .await??;
    match effect {
        LimitEffect::Done(_) => Ok(HttpResponse::NoContent().finish()),
        LimitEffect::NoRule => Err(ApiError::NotFound("the queue has no rule of this pattern".to_owned())),
        LimitEffect::Full(error) => Err(ApiError::Conflict {
            code: "too_many_rules",
            message: error.to_string(),
            fix: "remove a rule, or use a pattern with *",
        }),
    }
}

fn decoded(name: &str, base64: &str) -> Result<Vec<u8>, ApiError> {
    BASE64_STANDARD.decode(base64).map_err(|error| ApiError::Bad(format!("{name} is not base 64: {error}")))
}

/// `GET /api/v1/queues/{queue}/held`
pub(super) async fn held(request: ApiRequest) -> Answer {
    let (queue, after) = (keyed(&request)?, request.query.parsed::<ItemId>("after")?);
    if after.as_ref().is_some_and(|after| after.key().is_none()) {
        return Err(ApiError::Bad("parameter after is not the id of an item with a key".to_owned()));
    }
    let limit = request.query.number("limit", PAGE, PAGE[1])?;
    let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
    let page = request
        .transact(|tr| async {
            let page = async {
                queue.check_used(&tr).await?;
                HeldPage::read(&queue, &tr, after.as_ref(), limit).await
            };
            let page = known_kind(page.await);
            (tr, page)
        })
        .await??;
    let keys: Vec<_> = page.keys.iter().map(held_keys::object).collect();
    Ok(HttpResponse::Ok().json(json!({ "keys": keys, "next": page.next().map(ItemId::to_string) })))
}

/// The body of an unblock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    key: Option<String>,
    key_base64: Option<String>,
}

/// `POST /api/v1/queues/{queue}/unblock`
pub(super) async fn unblock(mut request: ApiRequest) -> Answer {
    let key = match request.json().await? {
        Key { key: Some(text), key_base64: None } => text.into_bytes(),
        Key { key: None, key_base64: Some(text) } => decoded("key_base64", &text)?,
        _ => return Err(ApiError::Bad("give one of key and key_base64".to_owned())),
    };
    let (queue, unblock) = (&keyed(&request)?, &Unblock::new(key));
    let (audit, record) = (&request.app.audit(), &unblock.audited(request.record()));
    let was_held = request
        .transact(|tr| async move {
            let was_held = known_kind(unblock.write(&tr, queue, audit, record).await);
            (tr, was_held)
        })
        .await??;
    match was_held {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(ApiError::NotFound("the key is not held".to_owned())),
    }
}

/// The queue that the path names. One that is not in the configuration is taken for a keyed queue.
fn keyed(request: &ApiRequest) -> Result<Queue, ApiError> {
    let (name, config) = (request.value("queue"), request.app.config());
    let kind = config.queues.get(name).map_or(Kind::Keyed, |queue| queue.layout());
    if kind != Kind::Keyed {
        return Err(no_keys(format!("queue {name:?} is of kind {kind}, and only keyed queues have limits")));
    }
    let queue = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), Kind::Keyed);
    queue.map_err(|error| ApiError::Bad(error.to_string()))
}

/// Sets the error of a queue of another kind apart, which is the client's.
fn known_kind<T>(result: Result<T, QueueError>) -> Result<Result<T, ApiError>, QueueError> {
    match result {
        Err(other @ QueueError::OtherKind { .. }) => Ok(Err(no_keys(other.to_string()))),
        result => result.map(Ok),
    }
}

fn no_keys(message: String) -> ApiError {
    ApiError::Conflict { code: "no_keys", message, fix: "configure the queue with kind \"keyed\"" }
}
