//! All routes. `docs/openapi.json` describes each; a test compares them.

use std::{collections::BTreeSet, sync::LazyLock};

use actix_web::http::Method;

use super::{
    api_request::PathValues,
    batches, events, health, metrics, openapi, operation, pull, push, reload,
    route::{Access, Parameters, Route, browser, change, get, open, push, route, work},
    schedules, sign_in, status, workers,
};
use crate::{
    audit::Action,
    base::deadlines::{LONGEST_WAIT, REQUEST},
    operations::{self, Operation, Visit, arguments::Definition},
};

/// Every route.
pub(super) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = own();
    operations::each(&mut routes);
    routes
});

impl Visit for Vec<Route> {
    fn operation<O: Operation + 'static>(&mut self) {
        let operations::Route { method, path, scope, audit, waits, .. } = O::ROUTE;
        let method = match method {
            operations::Method::Get => Method::GET,
            operations::Method::Post => Method::POST,
            operations::Method::Put => Method::PUT,
            operations::Method::Delete => Method::DELETE,
        };
        self.push(Route {
            method,
            path,
            access: Access::Scope(scope),
            query: Parameters::Operation(Definition::of::<O>()),
            time_limit: if waits { LONGEST_WAIT.saturating_add(REQUEST) } else { REQUEST },
            audit,
            handler: operation::handler::<O>(),
        });
    }
}

/// The routes that are no operations.
fn own() -> Vec<Route> {
    vec![
        work(
            "/api/v1/queues/{queue}/leases/{lease}/acknowledge",
            LONGEST_WAIT.saturating_add(REQUEST),
            |request| Box::pin(pull::acknowledge(request)),
        ),
        work("/api/v1/queues/{queue}/lease", LONGEST_WAIT.saturating_add(REQUEST), |request| {
            Box::pin(pull::lease(request))
        }),
        work("/api/v1/queues/{queue}/leases/{lease}/extend", REQUEST, |request| {
            Box::pin(pull::extend(request))
        }),
        #[cfg(feature = "page")]
        open("/", |request| Box::pin(super::page::index(request))),
        #[cfg(feature = "page")]
        open("/assets/{file}", |request| Box::pin(super::page::asset(request))),
        browser(Method::POST, "/sign-in", |request| Box::pin(sign_in::sign_in(request))),
        browser(Method::DELETE, "/sign-in", |request| Box::pin(sign_in::sign_out(request))),
        browser(Method::POST, "/sign-in/link", |request| Box::pin(sign_in::link(request))),
        open("/sign-in/{code}", |request| Box::pin(sign_in::follow(request))),
        route(Method::POST, "/sign-in/{code}", Access::Open, |request| Box::pin(sign_in::confirm(request))),
        open("/livez", |request| Box::pin(health::live(request))),
        open("/readyz", |request| Box::pin(health::ready(request))),
        get("/metrics", &[], |request| Box::pin(metrics::scrape(request))),
        get("/api/v1/status", &[], |request| Box::pin(status::whole(request))),
        get("/api/v1/queues", &["all", "starts_with", "limit", "after"], |request| {
            Box::pin(status::list(request))
        }),
        get("/api/v1/queues/{queue}", &[], |request| Box::pin(status::queue(request))),
        get("/api/v1/queues/{queue}/history", &[], |request| Box::pin(status::history(request))),
        get("/api/v1/events", &[], |request| Box::pin(events::follow(request))),
        push("/api/v1/queues/{queue}/items", |request| Box::pin(push::push(request))),
        change(
            Action::SCHEDULE_PUT,
            Method::PUT,
            "/api/v1/queues/{queue}/schedules/{name}",
            &["create"],
            |request| Box::pin(schedules::put(request)),
        ),
        push("/api/v1/queues/{queue}/batches", |request| Box::pin(batches::create(request))),
        get("/api/v1/workers", &["queue"], |request| Box::pin(workers::list(request))),
        get("/api/v1/consumers", &[], |request| Box::pin(status::consumers(request))),
        change(Action::DAEMON_RELOAD, Method::POST, "/api/v1/reload", &[], |request| {
            Box::pin(reload::reload(request))
        }),
        open("/api/v1/openapi.json", |request| Box::pin(openapi::document(request))),
    ]
}

/// What a request asks for.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Route(&'static Route),
    /// A path whose routes have other methods.
    OtherMethod(&'static str),
    /// A path that does not exist.
    Nothing,
}

impl Target {
    pub(super) fn route(self) -> Option<&'static Route> {
        match self {
            Self::Route(route) => Some(route),
            Self::OtherMethod(_) | Self::Nothing => None,
        }
    }
}

/// The routes at each path. Of two paths that fit a request, the one that has fewer names in braces counts.
///
/// actix-web's own router would try one path after the other, by regular expressions.
static PATHS: LazyLock<matchit::Router<Vec<&'static Route>>> = LazyLock::new(|| {
    let mut paths = matchit::Router::new();
    for path in ROUTES.iter().map(|route| route.path).collect::<BTreeSet<_>>() {
        paths.insert(path, at(path).collect()).expect("no two paths are for the same requests");
    }
    paths
});

/// What a request of this method for this path asks for, and the values that the path has for the names in braces.
pub(super) fn find(method: &Method, path: &str) -> (Target, PathValues) {
    let Ok(found) = PATHS.at(path) else { return (Target::Nothing, PathValues::default()) };
    let routes = found.value;
    let route = routes.iter().find(|route| methods(&route.method).contains(method));
    let target = route.map_or_else(|| Target::OtherMethod(routes[0].path), |route| Target::Route(route));
    (target, PathValues::decode(found.params.iter()))
}

/// The routes at a path of the table.
fn at(path: &str) -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(move |route| route.path == path)
}

/// The methods that a route of this method answers: HEAD is answered as GET, without the body.
fn methods(method: &Method) -> &[Method] {
    if method == Method::GET { &[Method::GET, Method::HEAD] } else { std::slice::from_ref(method) }
}

/// The methods at a path of the table, for the header `allow`.
pub(super) fn allow(path: &str) -> String {
    at(path)
        .flat_map(|route| methods(&route.method))
        .map(ToString::to_string)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Scope;

    #[test]
    fn the_methods_of_a_path_are_listed_once_and_in_order() {
        assert_eq!(allow("/livez"), "GET, HEAD");
        assert_eq!(allow("/api/v1/queues/{queue}/dead/purge"), "POST");
        assert_eq!(allow("/api/v1/queues/{queue}"), "DELETE, GET, HEAD");
    }

    /// The path of the table that a request gets.
    fn route_of(method: &Method, path: &str) -> &'static str {
        match find(method, path).0 {
            Target::Route(route) => route.path,
            Target::OtherMethod(_) => "other method",
            Target::Nothing => "nothing",
        }
    }

    #[test]
    fn each_route_is_found_by_its_method_and_path() {
        for route in ROUTES.iter() {
            let (target, values) = find(&route.method, route.path);
            let found = target.route().map(|found| (&found.method, found.path));
            assert_eq!(found, Some((&route.method, route.path)));
            for name in route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                assert_eq!(values.get(name), Some(&*format!("{{{name}}}")), "{}", route.path);
            }
        }
    }

    #[test]
    fn a_path_fits_whole_and_a_word_of_the_table_is_no_value() {
        assert_eq!(route_of(&Method::HEAD, "/api/v1/status"), "/api/v1/status");
        assert_eq!(
            route_of(&Method::POST, "/api/v1/queues/q/dead/purge"),
            "/api/v1/queues/{queue}/dead/purge"
        );
        assert_eq!(route_of(&Method::GET, "/api/v1/queues/q/dead/7"), "/api/v1/queues/{queue}/dead/{id}");
        assert_eq!(route_of(&Method::GET, "/api/v1/queues/q/dead/purge"), "other method");
        for path in [
            "",
            "/api/v1/status/",
            "/api/v1/queues/",
            "/api/v1/queues//dead",
            "/api/v1/queues/a/b/c",
            "//livez",
        ] {
            assert_eq!(route_of(&Method::GET, path), "nothing", "{path}");
        }
    }

    #[test]
    fn values_are_decoded() {
        let (_, values) = find(&Method::GET, "/api/v1/queues/a%2Fb%20%ff%2541");
        assert_eq!(values.get("queue"), Some("a/b \u{fffd}%41"));
        assert_eq!(values.get("id"), None);
    }

    #[test]
    fn routes_of_operators_that_change_something_leave_a_record_and_no_others() {
        for route in ROUTES.iter() {
            let changes = route.access == Access::Scope(Scope::Admin) && route.writes();
            assert_eq!(route.audit.is_some(), changes, "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn no_two_routes_are_for_the_same_request() {
        for (index, route) in ROUTES.iter().enumerate() {
            let same = |other: &&Route| (&other.method, other.path) == (&route.method, route.path);
            assert!(!ROUTES[index + 1..].iter().any(|other| same(&other)), "{} {}", route.method, route.path);
        }
    }
}
