//! All there is. `docs/openapi.json` describes each; a test compares them.

use std::collections::BTreeSet;

use super::{
    call::Handler, dead, events, health, items, metrics, openapi, pause, push, queue, reload, status,
    uri::matched,
};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody, without the secret: it tells nothing that is worth one.
    Open,
    /// Clients that know the secret, but not pages of other sites.
    Read,
    /// The same, unless nothing can be changed here.
    Write,
}

/// One method at one path.
pub(super) struct Route {
    pub(super) method: &'static str,
    /// With the names of its values, as in `/api/v1/queues/{queue}`.
    pub(super) path: &'static str,
    pub(super) access: Access,
    /// The parameters that may be in its query.
    pub(super) query: &'static [&'static str],
    pub(super) handler: Handler,
}

const fn get(path: &'static str, query: &'static [&'static str], handler: Handler) -> Route {
    Route { method: "GET", path, access: Access::Read, query, handler }
}

const fn change(
    method: &'static str,
    path: &'static str,
    query: &'static [&'static str],
    handler: Handler,
) -> Route {
    Route { method, path, access: Access::Write, query, handler }
}

const fn open(path: &'static str, handler: Handler) -> Route {
    Route { method: "GET", path, access: Access::Open, query: &[], handler }
}

/// Every route.
pub(super) const ROUTES: &[Route] = &[
    #[cfg(feature = "page")]
    open("/", |call| Box::pin(super::page::index(call))),
    #[cfg(feature = "page")]
    open("/assets/{file}", |call| Box::pin(super::page::asset(call))),
    open("/livez", |call| Box::pin(health::live(call))),
    open("/readyz", |call| Box::pin(health::ready(call))),
    get("/metrics", &[], |call| Box::pin(metrics::scrape(call))),
    get("/api/v1/status", &[], |call| Box::pin(status::whole(call))),
    get("/api/v1/queues", &["all"], |call| Box::pin(status::list(call))),
    get("/api/v1/queues/{queue}", &[], |call| Box::pin(status::queue(call))),
    change("DELETE", "/api/v1/queues/{queue}", &["confirm"], |call| Box::pin(queue::delete(call))),
    change("POST", "/api/v1/queues/{queue}/requeue", &[], |call| Box::pin(queue::requeue(call))),
    change("POST", "/api/v1/queues/{queue}/move", &[], |call| Box::pin(queue::move_items(call))),
    get("/api/v1/queues/{queue}/history", &[], |call| Box::pin(status::history(call))),
    get("/api/v1/events", &[], |call| Box::pin(events::follow(call))),
    get("/api/v1/queues/{queue}/items", &["state", "after", "limit", "bytes"], |call| {
        Box::pin(items::list(call))
    }),
    change("POST", "/api/v1/queues/{queue}/items", &[], |call| Box::pin(push::push(call))),
    get("/api/v1/queues/{queue}/items/{id}", &[], |call| Box::pin(items::one(call))),
    change("DELETE", "/api/v1/queues/{queue}/items/{id}", &[], |call| Box::pin(items::delete(call))),
    change("POST", "/api/v1/queues/{queue}/items/{id}/requeue", &[], |call| Box::pin(items::requeue(call))),
    get("/api/v1/queues/{queue}/dead", &["after", "limit"], |call| Box::pin(dead::list(call))),
    // Before the letters: these are no ids.
    change("POST", "/api/v1/queues/{queue}/dead/retry", &[], |call| Box::pin(dead::retry_all(call))),
    change("POST", "/api/v1/queues/{queue}/dead/purge", &[], |call| Box::pin(dead::purge_all(call))),
    get("/api/v1/queues/{queue}/dead/{id}", &[], |call| Box::pin(dead::one(call))),
    change("DELETE", "/api/v1/queues/{queue}/dead/{id}", &[], |call| Box::pin(dead::purge(call))),
    change("POST", "/api/v1/queues/{queue}/dead/{id}/retry", &[], |call| Box::pin(dead::retry(call))),
    change("PUT", "/api/v1/queues/{queue}/pause", &[], |call| Box::pin(pause::pause(call))),
    change("DELETE", "/api/v1/queues/{queue}/pause", &["local"], |call| Box::pin(pause::resume(call))),
    get("/api/v1/consumers", &[], |call| Box::pin(status::consumers(call))),
    change("POST", "/api/v1/reload", &[], |call| Box::pin(reload::reload(call))),
    get("/api/v1/openapi.json", &[], |call| Box::pin(openapi::document(call))),
];

/// What there is for a request.
pub(super) enum Found<'p> {
    /// A route, and the values of the path, still encoded.
    Route(&'static Route, Vec<&'p str>),
    /// Other methods at that path.
    Other(String),
    /// Nothing.
    None,
}

impl Found<'_> {
    pub(super) fn route(&self) -> Option<&'static Route> {
        match self {
            Self::Route(route, _) => Some(route),
            Self::Other(_) | Self::None => None,
        }
    }
}

/// Finds the route of a request. HEAD uses the route of GET. Where several paths fit, the first is meant.
pub(super) fn find<'p>(method: &str, path: &'p str) -> Found<'p> {
    let Some((meant, values)) =
        ROUTES.iter().find_map(|route| Some((route.path, matched(route.path, path)?)))
    else {
        return Found::None;
    };
    let wanted = if method == "HEAD" { "GET" } else { method };
    let at_path = || ROUTES.iter().filter(|route| route.path == meant);
    if let Some(route) = at_path().find(|route| route.method == wanted) {
        return Found::Route(route, values);
    }
    let mut allow: BTreeSet<_> = at_path().map(|route| route.method).collect();
    if allow.contains("GET") {
        allow.insert("HEAD");
    }
    Found::Other(allow.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_under_another_method_is_said() {
        assert!(matches!(find("HEAD", "/livez"), Found::Route(route, _) if route.path == "/livez"));
        assert!(matches!(find("PUT", "/livez"), Found::Other(allow) if allow == "GET, HEAD"));
        assert!(matches!(find("GET", "/livez/"), Found::None));
        // No letter has this id.
        let retry = find("DELETE", "/api/v1/queues/q/dead/retry");
        assert!(matches!(retry, Found::Other(allow) if allow == "POST"));
        assert!(
            matches!(find("GET", "/api/v1/queues/a%20b"), Found::Route(_, values) if values == ["a%20b"])
        );
    }

    #[test]
    fn no_two_routes_are_for_the_same_request() {
        for (index, route) in ROUTES.iter().enumerate() {
            let same = |other: &&Route| (other.method, other.path) == (route.method, route.path);
            assert!(!ROUTES[index + 1..].iter().any(|other| same(&other)), "{} {}", route.method, route.path);
        }
    }
}
