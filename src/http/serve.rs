//! Serving a request: the guards, the route, the endpoint, and the headers of every answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::{HttpRequest, HttpResponse, http::header, web::Payload};
use tokio::time::{sleep, timeout};

use super::{
    api_request::{Answer, ApiRequest},
    app_state::AppState,
    body,
    error::ApiError,
    guard, headers,
    routes::{Access, Route, Target, allow},
    uri::{self, Query},
};
use crate::deadlines::REQUEST;
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
    let answer = answer(request, payload, &app, target).await;
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

async fn answer(request: HttpRequest, payload: Payload, app: &Arc<AppState>, target: Target) -> Answer {
    let config = app.config();
    let heads = request.headers();
    app.hosts.check(heads, &config.http.origins)?;
    if !target.route().is_some_and(|route| route.access == Access::Open) {
        check_token(&request, app).await?;
    }
    let route = match target {
        Target::Route(route) => route,
        Target::OtherMethod(path) => {
            return Err(ApiError::Method { method: request.method().to_string(), allow: allow(path) });
        }
        Target::Nothing => return Err(ApiError::NotFound("there is nothing at this path".to_owned())),
    };
    // Pages of any site may request open routes. Other routes are guarded: a page could exhaust their limits.
    if route.access != Access::Open {
        guard::check_origin(heads, &config.http.origins)?;
    }
    if route.access == Access::Write {
        if config.http.read_only {
            return Err(ApiError::ReadOnly);
        }
        if heads.contains_key(header::CONTENT_TYPE) && !body::is_json(heads) {
            return Err(ApiError::ContentType);
        }
    }
    carry_out(request, payload, app, route).await
}

async fn carry_out(request: HttpRequest, payload: Payload, app: &Arc<AppState>, route: &Route) -> Answer {
    uri::check(request.uri().path())?;
    let query = Query::read(request.query_string(), route.query)?;
    let request = ApiRequest { app: app.clone(), http: request, query, payload, held: None };
    // The time limit does not apply to sending the answer: a stream of events goes on until the client closes it.
    let late = |_| ApiError::Unavailable(format!("the answer was not there within {} s", REQUEST.as_secs()));
    timeout(REQUEST, (route.handler)(request)).await.map_err(late)?
}

/// A client with a wrong secret gets its answer slowly. If too many try at once, they are refused as too many.
async fn check_token(request: &HttpRequest, app: &AppState) -> Result<(), ApiError> {
    let Some(token) = app.token() else { return Ok(()) };
    let Err(failure) = token.check(request.headers()) else { return Ok(()) };
    let Ok(_place) = app.waiting.try_acquire() else {
        return Err(ApiError::Busy("too many clients do not know the secret"));
    };
    // After the second pause, the file was read after the request arrived.
    for pause in [Duration::ZERO, WRONG_SECRET] {
        sleep(pause).await;
        if app.knows_new_token(request.headers()).await {
            return Ok(());
        }
    }
    Err(failure)
}
