//! Serving a request: the guards, the route, the endpoint, and the headers of every answer.

use std::{
    cell::Cell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, HeaderMap},
    web::Payload,
};
use tokio::time::{sleep, timeout};

use super::{
    api_request::{Answer, ApiRequest, path_value},
    app_state::AppState,
    body,
    error::ApiError,
    guard::{self, Caller, SignedIn, bearer},
    headers,
    routes::{Access, Route, Target, allow},
    uri::{self, Query},
};
use crate::access::is_access_token;
use crate::metrics::Request;

/// The delay of an answer to a client with a wrong secret.
const WRONG_SECRET: Duration = guard::PAUSE;

/// The route of a request in the log if it has none.
const NO_ROUTE: &str = "none";

pub(super) async fn serve(
    request: HttpRequest,
    payload: Payload,
    app: Arc<AppState>,
    target: Target,
) -> HttpResponse {
    let began = Instant::now();
    let method = request.method().clone();
    let answer = answer(request, payload, &app, target, began).await;
    let mut response = match answer {
        Ok(response) => response,
        Err(failure) => app.explain(failure).await.response(),
    };
    headers::add(response.headers_mut());
    let pattern = target.route().map_or(NO_ROUTE, |route| route.path);
    let status = response.status().as_u16();
    app.daemon.status.metrics.requests.get_or_create(&Request { route: pattern, code: status }).inc();
    // Logs the pattern, never the path, query or body: these have names, secrets and payloads.
    tracing::debug!(
        event = "request",
        method = method.as_str(),
        route = pattern,
        status,
        took_us = began.elapsed().as_micros(),
        "request"
    );
    response
}

async fn answer(
    request: HttpRequest,
    payload: Payload,
    app: &Arc<AppState>,
    target: Target,
    began: Instant,
) -> Answer {
    let config = app.config();
    let heads = request.headers();
    app.hosts.check(heads, &config.http.origins)?;
    let is_open = target.route().is_some_and(|route| route.access == Access::Open);
    let caller = if is_open { Caller::Anyone } else { identify(&request, app).await? };
    let route = match target {
        Target::Route(route) => route,
        Target::OtherMethod(path) => {
            return Err(ApiError::Method { method: request.method().to_string(), allow: allow(path) });
        }
        Target::Nothing => return Err(ApiError::NotFound("there is nothing at this path".to_owned())),
    };
    uri::check(request.uri().path())?;
    if route.access != Access::Open {
        // Pages of any site may request open routes. Other routes are guarded: a page could exhaust their limits.
        guard::check_origin(heads, app.scheme(), &config.http.origins)?;
    }
    if let Access::Scope(scope) = route.access {
        caller.check(scope, path_value(&request, "queue").as_deref())?;
    }
    if route.writes() {
        if config.http.read_only {
            return Err(ApiError::ReadOnly);
        }
        if heads.contains_key(header::CONTENT_TYPE) && !body::is_json(heads) {
            return Err(ApiError::ContentType);
        }
    }
    carry_out(request, payload, app, route, (caller, began)).await
}

async fn carry_out(
    request: HttpRequest,
    payload: Payload,
    app: &Arc<AppState>,
    route: &'static Route,
    (caller, began): (Caller, Instant),
) -> Answer {
    let query = Query::read(request.query_string(), route.query)?;
    let audited = Rc::new(Cell::new(false));
    let request = ApiRequest {
        app: app.clone(),
        http: request,
        began,
        route,
        caller,
        audited: audited.clone(),
        query,
        payload,
        held: None,
    };
    // The time limit does not apply to sending the answer: a stream of events goes on until the client closes it.
    let late = |_| {
        ApiError::Unavailable(format!("the answer was not there within {} s", route.time_limit.as_secs()))
    };
    let answer = timeout(route.time_limit, (route.handler)(request)).await.map_err(late)?;
    debug_assert!(
        answer.is_err() || route.audit.is_none() || audited.get(),
        "{} leaves no record",
        route.path
    );
    answer
}

/// Finds out who sends the request: by its token, or by the session of its browser.
async fn identify(request: &HttpRequest, app: &Arc<AppState>) -> Result<Caller, ApiError> {
    let headers = request.headers();
    if headers.contains_key(header::AUTHORIZATION) {
        return by_token(headers, app).await;
    }
    let found = match app.signed_in(headers) {
        Some(SignedIn::Operator) => Some(Caller::Operator),
        Some(SignedIn::Token(id)) => app.tokens.with_id(app, &id).await?.map(Caller::Token),
        None => None,
    };
    let is_needed = app.token().is_some() || app.config().http.needs_token();
    match found {
        Some(caller) => Ok(caller),
        None if is_needed => Err(ApiError::Unauthorized("a token is needed")),
        None => Ok(Caller::Anyone),
    }
}

/// Finds out whose token a request sends. A client with a wrong one gets its answer slowly. If too many try at once,
/// they are refused as too many.
async fn by_token(headers: &HeaderMap, app: &Arc<AppState>) -> Result<Caller, ApiError> {
    let secret = app.token();
    let failure = match &secret {
        Some(secret) => match secret.check(headers) {
            Ok(()) => return Ok(Caller::Operator),
            Err(failure) => Some(failure),
        },
        None if app.config().http.needs_token() => Some(ApiError::Unauthorized("a token is needed")),
        None => None,
    };
    let given = bearer(headers).and_then(Result::ok).and_then(|given| str::from_utf8(given).ok());
    let given = given.filter(|given| is_access_token(given));
    if let Some(given) = given
        && let Some(token) = app.tokens.find(app, given).await?
    {
        return Ok(Caller::Token(token));
    }
    let failure = match (given, failure) {
        (Some(_), _) => ApiError::Unauthorized("this token does not exist, or is revoked, or has expired"),
        (None, Some(failure)) => failure,
        (None, None) => return Ok(Caller::Anyone),
    };
    let Ok(_permit) = app.waiting.try_acquire() else {
        return Err(ApiError::Busy("too many requests with a wrong token are waiting"));
    };
    // After the second pause, file and tokens were read after the request arrived: a new secret is known now.
    for pause in [Duration::ZERO, WRONG_SECRET] {
        sleep(pause).await;
        if app.knows_new_token(headers).await {
            return Ok(Caller::Operator);
        }
        if let Some(given) = given
            && let Some(token) = app.tokens.find(app, given).await?
        {
            return Ok(Caller::Token(token));
        }
    }
    Err(failure)
}
