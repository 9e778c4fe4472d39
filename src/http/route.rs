//! What a route is.

use std::time::Duration;

use actix_web::http::Method;

use super::api_request::Handler;
use crate::{access::Scope, audit::Action, base::deadlines::REQUEST, operations::arguments::Definition};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody, without a secret: the answer has nothing secret.
    Open,
    /// Clients with any token, and operators; except pages of other sites.
    AnyToken,
    /// Clients whose token has this scope, and operators; except pages of other sites.
    Scope(Scope),
}

/// One method at one path.
pub(super) struct Route {
    pub(super) method: Method,
    /// The path with the names of its values in braces, as in `/api/v1/queues/{queue}`.
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) query: Parameters,
    /// How long its answer may take.
    pub(super) time_limit: Duration,
    /// The action in its record in the audit trail. A route of operators that changes something has one.
    pub(super) audit: Option<Action>,
    pub(super) handler: Handler,
}

impl Route {
    /// Whether it changes something, so that `http.read-only` forbids it.
    pub(super) fn writes(&self) -> bool {
        self.method != Method::GET && matches!(self.access, Access::Scope(_))
    }
}

/// The parameters that a route's query may have.
pub(super) enum Parameters {
    Listed(&'static [&'static str]),
    /// Those of an operation.
    Operation(Definition),
}

impl Parameters {
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Listed(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            Self::Operation(definition) => definition.in_query(),
        }
    }
}

/// A route without query parameters and without an audit record, with the usual time limit.
pub(super) const fn route(method: Method, path: &'static str, access: Access, handler: Handler) -> Route {
    Route { method, path, access, query: Parameters::Listed(&[]), time_limit: REQUEST, audit: None, handler }
}

pub(super) const fn open(path: &'static str, handler: Handler) -> Route {
    route(Method::GET, path, Access::Open, handler)
}

/// A route of browsers that sign in.
pub(super) const fn browser(method: Method, path: &'static str, handler: Handler) -> Route {
    route(method, path, Access::AnyToken, handler)
}

// The functions below assign fields: a constant function cannot use `Route { query, ..route(..) }`,
// which drops a part of a `Route`.

pub(super) const fn get(path: &'static str, query: &'static [&'static str], handler: Handler) -> Route {
    let mut route = route(Method::GET, path, Access::Scope(Scope::Read), handler);
    route.query = Parameters::Listed(query);
    route
}

/// A route of operators that changes something, and leaves a record of this action.
pub(super) const fn change(
    audit: Action,
    method: Method,
    path: &'static str,
    query: &'static [&'static str],
    handler: Handler,
) -> Route {
    let mut route = route(method, path, Access::Scope(Scope::Admin), handler);
    route.query = Parameters::Listed(query);
    route.audit = Some(audit);
    route
}

/// A route of programs that put items in.
pub(super) const fn push(path: &'static str, handler: Handler) -> Route {
    route(Method::POST, path, Access::Scope(Scope::Push), handler)
}

/// A route of workers.
pub(super) const fn work(path: &'static str, time_limit: Duration, handler: Handler) -> Route {
    let mut route = route(Method::POST, path, Access::Scope(Scope::Work), handler);
    route.time_limit = time_limit;
    route
}
