//! One request: the guards, the route, the handler, and what goes with every answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header,
    web::{Data, Payload},
};
use tokio::time::{sleep, timeout};

use super::{
    body,
    call::{Answer, Call},
    error::Failure,
    guard, headers,
    routes::{Access, Found, Route, find},
    site::Site,
    uri::{self, Query},
};
use crate::deadlines::REQUEST;
use crate::metrics::Request;

/// How long a client that does not know the secret waits.
const WRONG_SECRET: Duration = guard::PAUSE;

/// How a request is logged that fits no route.
const NO_ROUTE: &str = "none";

pub(super) async fn serve(request: HttpRequest, payload: Payload, site: Data<Site>) -> HttpResponse {
    let began = Instant::now();
    let site = site.into_inner();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let found = find(method.as_str(), &path);
    let route = found.route();
    let answer = answer(request, payload, &site, found).await;
    let mut response = match answer {
        Ok(response) => response,
        Err(failure) => site.explain(failure).await.response(),
    };
    headers::add(response.headers_mut());
    let pattern = route.map_or(NO_ROUTE, |route| route.path);
    let status = response.status().as_u16();
    site.door.status.metrics.requests.get_or_create(&Request { route: pattern, code: status }).inc();
    // The pattern, never the path, its query or a body: they have names, secrets, payloads.
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

async fn answer(request: HttpRequest, payload: Payload, site: &Arc<Site>, found: Found<'_>) -> Answer {
    let config = site.config();
    let heads = request.headers();
    site.hosts.check(heads, &config.http.origins)?;
    if !found.route().is_some_and(|route| route.access == Access::Open) {
        check_token(&request, site).await?;
    }
    let (route, values) = match found {
        Found::Route(route, values) => (route, values),
        Found::Other(allow) => {
            return Err(Failure::Method { method: request.method().to_string(), allow });
        }
        Found::None => return Err(Failure::NotFound("there is nothing at this path".to_owned())),
    };
    // What needs no secret may be asked by any page. Anything else could be used up by one: events, and reads.
    if route.access != Access::Open {
        guard::check_origin(heads, &config.http.origins)?;
    }
    if route.access == Access::Write {
        if config.http.read_only {
            return Err(Failure::ReadOnly);
        }
        if heads.contains_key(header::CONTENT_TYPE) && !body::is_json(heads) {
            return Err(Failure::ContentType);
        }
    }
    carry_out(request, payload, site, route, &values).await
}

async fn carry_out(
    request: HttpRequest,
    payload: Payload,
    site: &Arc<Site>,
    route: &Route,
    values: &[&str],
) -> Answer {
    let values = values.iter().map(|value| uri::decode(value)).collect::<Result<_, _>>()?;
    let query = Query::read(request.query_string(), route.query)?;
    let call = Call { site: site.clone(), request, query, values, payload, held: None };
    // What it gives back may be sent for longer: events go on until the client goes.
    let late = |_| Failure::Unavailable(format!("the answer was not there within {} s", REQUEST.as_secs()));
    timeout(REQUEST, (route.handler)(call)).await.map_err(late)?
}

/// A client with a wrong secret gets its answer slowly. If too many try at once, they are refused as too many.
async fn check_token(request: &HttpRequest, site: &Site) -> Result<(), Failure> {
    let Some(token) = site.token() else { return Ok(()) };
    let Err(failure) = token.check(request.headers()) else { return Ok(()) };
    let Ok(_place) = site.waiting.try_acquire() else {
        return Err(Failure::Busy("too many clients do not know the secret"));
    };
    // After the second, what was read of the file is younger than the request.
    for pause in [Duration::ZERO, WRONG_SECRET] {
        sleep(pause).await;
        if site.knows_new_token(request.headers()).await {
            return Ok(());
        }
    }
    Err(failure)
}
