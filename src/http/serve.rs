//! Serving a request: the guards, the route, the endpoint, and the headers of every answer.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        ConnectionType, Method,
        header::{self, HeaderMap},
    },
    web::{Data, Payload},
};
use tokio::time::{sleep, timeout};

use super::{
    api_request::{Answer, ApiRequest, PathValues},
    app_state::AppState,
    body,
    error::ApiError,
    guard::{self, Caller, bearer},
    headers, long_answer,
    peer::Peer,
    places::Place,
    route::{Access, Route},
    routes::{self, Target, allow},
    uri::{self, Query},
};
use crate::{access::is_access_token, meters::Request};

/// The delay of an answer to a client with a wrong secret.
const WRONG_SECRET: Duration = Duration::from_secs(1);

/// The route of a request in the log if it has none.
const NO_ROUTE: &str = "none";

pub(super) async fn serve(request: HttpRequest, payload: Payload, app: Data<AppState>) -> HttpResponse {
    let began = Instant::now();
    let app = app.into_inner();
    let (target, values) = routes::find(request.method(), request.match_info().as_str());
    let method = request.method().clone();
    let place = request.conn_data::<Arc<Place>>().cloned();
    let served = place.as_deref().map(Place::serve);
    let client = identify(&request, &app, target).await;
    let is_known = client.as_ref().is_ok_and(|client| client.is_known);
    let stays_open = is_known && place.as_deref().is_none_or(Place::admit);
    let answer = match client {
        Ok(client) => answer(request, payload, &app, (target, values), (client.caller, began)).await,
        Err(failure) => Err(failure),
    };
    let mut response = match answer {
        Ok(response) => response,
        Err(failure) => app.backend.explain(failure).await.response(),
    };
    headers::add(response.headers_mut());
    if !stays_open {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    drop(served);
    let pattern = target.route().map_or(NO_ROUTE, |route| route.path);
    let status = response.status().as_u16();
    app.backend.daemon.status.metrics.requests.get_or_create(&Request { route: pattern, code: status }).inc();
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
    (target, values): (Target, PathValues),
    (caller, began): (Caller, Instant),
) -> Answer {
    let config = app.backend.config();
    let heads = request.headers();
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
        caller.check(scope, values.get("queue"))?;
    }
    if route.writes() {
        if config.http.read_only {
            return Err(ApiError::ReadOnly);
        }
        if heads.contains_key(header::CONTENT_TYPE) && !body::is_json(heads) {
            return Err(ApiError::ContentType);
        }
    }
    carry_out(request, payload, app, (route, values), (caller, began)).await
}

async fn carry_out(
    request: HttpRequest,
    payload: Payload,
    app: &Arc<AppState>,
    (route, values): (&'static Route, PathValues),
    (caller, began): (Caller, Instant),
) -> Answer {
    let query = Query::read(request.query_string(), &route.query.names())?;
    let audited = Rc::new(Cell::new(false));
    let answer_room = Rc::new(Cell::new(Some(app.answers.place(&caller))));
    let peer = request.conn_data::<Arc<Peer>>().cloned();
    let request = ApiRequest {
        app: app.clone(),
        http: request,
        began,
        route,
        values,
        caller,
        audited: audited.clone(),
        query,
        payload,
        held: None,
        answer_room: answer_room.clone(),
        database_permit: RefCell::default(),
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
    match answer_room.take() {
        // The files of the page are in memory once, and anybody may ask for them.
        Some(room) if route.access != Access::Open => {
            long_answer::hold(answer?, room, peer, route.method != Method::GET)
        }
        _ => answer,
    }
}

/// The client of a request.
struct Client {
    /// Anyone on a route that is open to all.
    caller: Caller,
    /// Whether it needs no token, or has sent a valid one. Otherwise its connection ends with the answer.
    is_known: bool,
}

/// Finds out who sends the request, as far as its route has to know.
async fn identify(request: &HttpRequest, app: &Arc<AppState>, target: Target) -> Result<Client, ApiError> {
    let headers = request.headers();
    app.hosts.check(headers, &app.backend.config().http.origins)?;
    if target.route().is_some_and(|route| route.access == Access::Open) {
        let is_known = app.known_caller(headers).is_some();
        return Ok(Client { caller: Caller::Anyone, is_known });
    }
    Ok(Client { caller: caller(headers, app).await?, is_known: true })
}

/// The client by its token, or by the session of its browser.
async fn caller(headers: &HeaderMap, app: &Arc<AppState>) -> Result<Caller, ApiError> {
    if headers.contains_key(header::AUTHORIZATION) {
        return by_token(headers, app).await;
    }
    let found = app.session_caller(headers).await?;
    let is_needed = app.token().is_some() || app.backend.config().http.needs_token();
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
        None if app.backend.config().http.needs_token() => Some(ApiError::Unauthorized("a token is needed")),
        None => None,
    };
    let given = bearer(headers).and_then(Result::ok).and_then(|given| str::from_utf8(given).ok());
    let given = given.filter(|given| is_access_token(given));
    if let Some(given) = given
        && let Some(token) = app.tokens.find(&app.backend, given).await?
    {
        return Ok(Caller::Token(token));
    }
    let failure = match (given, failure) {
        (Some(_), _) => ApiError::Unauthorized("this token does not exist, or is revoked, or has expired"),
        (None, Some(failure)) => failure,
        (None, None) => return Ok(Caller::Anyone),
    };
    // A new secret or token is looked for before a place is taken, which strangers could keep from its client.
    if app.knows_new_token(headers).await {
        return Ok(Caller::Operator);
    }
    if let Some(given) = given
        && let Some(token) = app.tokens.find_new(&app.backend, given).await?
    {
        return Ok(Caller::Token(token));
    }
    let Ok(_permit) = app.waiting.try_acquire() else {
        return Err(ApiError::Busy("too many requests with a wrong token are waiting"));
    };
    sleep(WRONG_SECRET).await;
    Err(failure)
}
