//! Access tokens: making, listing and revoking them.

use std::{cell::Cell, collections::BTreeSet, time::Duration};

use actix_web::HttpResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest},
    body::whole,
    error::ApiError,
};
use crate::{
    access::{AccessToken, Created, MAX_TOKENS, NewToken, QueuePattern, Scope},
    consumer::clock,
    json,
};

/// `GET /api/v1/tokens`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let store = &request.app.token_store();
    let (tokens, used) = request
        .transact(|tr| async move {
            let read = async { Ok((store.list(&tr).await?, store.last_uses(&tr).await?)) };
            let read = read.await;
            (tr, read)
        })
        .await?;
    let shown = |token: &AccessToken| json::access_token(token, used.get(&token.id).copied());
    Ok(HttpResponse::Ok().json(json!({ "tokens": tokens.iter().map(shown).collect::<Vec<Value>>() })))
}

/// The token that is to be made.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    scopes: BTreeSet<Scope>,
    /// Default: all queues.
    queues: Option<Vec<QueuePattern>>,
    /// When it expires, in seconds from now. Default: it does not expire.
    #[serde(default, deserialize_with = "whole")]
    expires_in: Option<u64>,
}

impl New {
    fn with_time(self) -> NewToken {
        let Self { name, scopes, queues, expires_in } = self;
        let millis = |seconds| u64::try_from(Duration::from_secs(seconds).as_millis()).unwrap_or(u64::MAX);
        let expires_at = expires_in.map(|seconds| clock::now().saturating_add(millis(seconds)));
        let queues = queues.unwrap_or_else(|| vec![QueuePattern::all()]);
        NewToken { name, scopes, queues, expires_at }
    }
}

/// `POST /api/v1/tokens`
pub(super) async fn create(mut request: ApiRequest) -> Answer {
    let new = request.json::<New>().await?.with_time();
    let (text, token) = new.issue(clock::now()).map_err(ApiError::Bad)?;
    let (audit, made) = (&request.app.audit(), &token.audited(request.record()));
    let (store, record) = (&request.app.token_store(), &token);
    let created = request
        .transact(|tr| async move {
            let created = store.create(&tr, record, audit, made).await;
            (tr, created)
        })
        .await?;
    match created {
        Created::Done => {
            let mut shown = json::access_token(&token, None);
            shown["token"] = json!(text);
            Ok(HttpResponse::Created().json(shown))
        }
        Created::NameTaken => Err(ApiError::Conflict {
            code: "name_taken",
            message: format!("there is a token {} already", token.name),
            fix: "use another name, or revoke that token first",
        }),
        Created::TooMany => Err(ApiError::Conflict {
            code: "too_many_tokens",
            message: format!("there are {MAX_TOKENS} tokens, and no more are possible"),
            fix: "revoke expired and unused ones",
        }),
    }
}

/// `DELETE /api/v1/tokens/{name}`
pub(super) async fn revoke(request: ApiRequest) -> Answer {
    let (store, name) = (&request.app.token_store(), request.value("name"));
    let (audit, record) = (&request.app.audit(), &request.record().with("name", name));
    let is_found = &Cell::new(false);
    let revoked = request
        .transact(|tr| async move {
            let revoked = store.revoke(&tr, name, (audit, record), is_found).await;
            (tr, revoked)
        })
        .await?;
    if revoked {
        return Ok(HttpResponse::Ok().json(json!({ "name": name, "revoked": true })));
    }
    Err(ApiError::NotFound(format!("there is no token {name:?}")))
}
