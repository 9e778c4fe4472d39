//! All routes. `docs/openapi.json` describes each; a test compares them.

use std::collections::BTreeSet;

use super::{
    api_request::Handler, dead, events, health, items, metrics, openapi, pause, push, queue, reload, status,
    uri::matched,
};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody, without the secret: the answer has nothing secret.
    Open,
    /// Clients with the secret, except pages of other sites.
    Read,
    /// The same, unless `http.read-only` is set.
    Write,
}

/// One method at one path.
pub(super) struct Route {
    pub(super) method: &'static str,
    /// The path with the names of its values, as in `/api/v1/queues/{queue}`.
    pub(super) path: &'static str,
    pub(super) access: Access,
    /// The allowed parameters of its query.
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
    open("/", |request| Box::pin(super::page::index(request))),
    #[cfg(feature = "page")]
    open("/assets/{file}", |request| Box::pin(super::page::asset(request))),
    open("/livez", |request| Box::pin(health::live(request))),
    open("/readyz", |request| Box::pin(health::ready(request))),
    get("/metrics", &[], |request| Box::pin(metrics::scrape(request))),
    get("/api/v1/status", &[], |request| Box::pin(status::whole(request))),
    get("/api/v1/queues", &["all"], |request| Box::pin(status::list(request))),
    get("/api/v1/queues/{queue}", &[], |request| Box::pin(status::queue(request))),
    change("DELETE", "/api/v1/queues/{queue}", &["confirm"], |request| Box::pin(queue::delete(request))),
    change("POST", "/api/v1/queues/{queue}/requeue", &[], |request| Box::pin(queue::requeue(request))),
    change("POST", "/api/v1/queues/{queue}/move", &[], |request| Box::pin(queue::move_items(request))),
    get("/api/v1/queues/{queue}/history", &[], |request| Box::pin(status::history(request))),
    get("/api/v1/events", &[], |request| Box::pin(events::follow(request))),
    get("/api/v1/queues/{queue}/items", &["state", "after", "limit", "bytes"], |request| {
        Box::pin(items::list(request))
    }),
    change("POST", "/api/v1/queues/{queue}/items", &[], |request| Box::pin(push::push(request))),
    get("/api/v1/queues/{queue}/items/{id}", &[], |request| Box::pin(items::one(request))),
    change("DELETE", "/api/v1/queues/{queue}/items/{id}", &[], |request| Box::pin(items::delete(request))),
    change("POST", "/api/v1/queues/{queue}/items/{id}/requeue", &[], |request| {
        Box::pin(items::requeue(request))
    }),
    get("/api/v1/queues/{queue}/dead", &["after", "limit"], |request| Box::pin(dead::list(request))),
    // Before the routes of one letter: `retry` and `purge` are not ids.
    change("POST", "/api/v1/queues/{queue}/dead/retry", &[], |request| Box::pin(dead::retry_all(request))),
    change("POST", "/api/v1/queues/{queue}/dead/purge", &[], |request| Box::pin(dead::purge_all(request))),
    get("/api/v1/queues/{queue}/dead/{id}", &[], |request| Box::pin(dead::one(request))),
    change("DELETE", "/api/v1/queues/{queue}/dead/{id}", &[], |request| Box::pin(dead::purge(request))),
    change("POST", "/api/v1/queues/{queue}/dead/{id}/retry", &[], |request| Box::pin(dead::retry(request))),
    change("PUT", "/api/v1/queues/{queue}/pause", &[], |request| Box::pin(pause::pause(request))),
    change("DELETE", "/api/v1/queues/{queue}/pause", &["local"], |request| Box::pin(pause::resume(request))),
    get("/api/v1/consumers", &[], |request| Box::pin(status::consumers(request))),
    change("POST", "/api/v1/reload", &[], |request| Box::pin(reload::reload(request))),
    get("/api/v1/openapi.json", &[], |request| Box::pin(openapi::document(request))),
];

/// The result of looking up a route.
pub(super) enum Found<'p> {
    /// A route, and the values of the path, still encoded.
    Route(&'static Route, Vec<&'p str>),
    /// Other methods at that path.
    Other(String),
    /// The path does not exist.
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

/// Finds the route of a request. HEAD uses the route of GET. If several paths fit, the first wins.
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
