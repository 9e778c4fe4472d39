//! The errors of the API.

use std::time::Duration;

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
};
use serde_json::json;

use super::shortened::shortened;
use crate::{
    database::MAKE_SPACE,
    operations::{Class, Refusal},
};

/// After how many seconds a client may retry when the daemon is busy.
const AGAIN: u64 = 1;

/// A request has failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The request is invalid.
    #[error("{0}")]
    Bad(String),
    /// The secret is missing or wrong.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// The token does not allow it.
    #[error("{0}")]
    Forbidden(String),
    /// `http.read-only` is set.
    #[error("http.read-only is set, so nothing can be changed here")]
    ReadOnly,
    /// The request comes from a page of another site.
    #[error("cross-origin request from {0} refused")]
    CrossSite(String),
    /// The `Host` header has an unknown name.
    #[error("this daemon does not accept the host name {0}")]
    Host(String),
    /// The queue, item or path does not exist.
    #[error("{0}")]
    NotFound(String),
    /// An operation is not done.
    #[error("{}", .0.message)]
    Operation(Refusal),
    /// The path has other methods.
    #[error("{method} is not allowed at this path")]
    Method {
        /// The method of the request.
        method: String,
        /// The methods of the path.
        allow: String,
    },
    /// The state of a queue or item does not allow it.
    #[error("{message}")]
    Conflict {
        /// A stable code for programs.
        code: &'static str,
        /// The problem.
        message: String,
        /// The fix.
        fix: &'static str,
    },
    /// The body, or an item, is too long.
    #[error("{0}")]
    TooLarge(String),
    /// Content-Type is not JSON.
    #[error("Content-Type must be application/json")]
    ContentType,
    /// The daemon refused a command.
    #[error("{0}")]
    Refused(String),
    /// The body arrived too slowly.
    #[error("the body did not arrive within {} s", .0.as_secs())]
    Slow(Duration),
    /// A limit of concurrent requests or of memory is reached.
    #[error("{0} at the moment")]
    Busy(&'static str),
    /// The database does not answer, or the daemon is stopping.
    #[error("{0}")]
    Unavailable(String),
    /// The database's disk is full.
    #[error("the database accepts no more data: its disk is full, or has too little free space")]
    NoSpace,
    /// A record cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl ApiError {
    /// A stable code for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) => "bad_request",
            Self::Unauthorized(_) => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::ReadOnly => "read_only",
            Self::CrossSite(_) => "cross_site",
            Self::Host(_) => "host",
            Self::NotFound(_) => "not_found",
            Self::Operation(refusal) => refusal.code,
            Self::Method { .. } => "method_not_allowed",
            Self::Conflict { code, .. } => code,
            Self::TooLarge(_) => "too_large",
            Self::ContentType => "content_type",
            Self::Refused(_) => "refused",
            Self::Slow(_) => "slow",
            Self::Busy(_) => "busy",
            Self::Unavailable(_) => "unavailable",
            Self::NoSpace => "no_space",
            Self::Unreadable(_) => "unreadable",
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) | Self::ReadOnly | Self::CrossSite(_) | Self::Host(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Operation(refusal) => match refusal.class {
                Class::Bad => StatusCode::BAD_REQUEST,
                Class::NotFound => StatusCode::NOT_FOUND,
                Class::Conflict => StatusCode::CONFLICT,
                Class::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            },
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict { .. } => StatusCode::CONFLICT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) | Self::NoSpace => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// How the client can fix it.
    fn fix(&self) -> String {
        match self {
            Self::Operation(refusal) if !refusal.fix.is_empty() => refusal.fix.clone().into_owned(),
            Self::Bad(_) | Self::Operation(_) => "see /api/v1/openapi.json".to_owned(),
            Self::Unauthorized(_) => {
                "send \"Authorization: Bearer SECRET\" with an access token, or with the secret in the daemon's http.token-file".to_owned()
            }
            Self::Forbidden(_) => "use a token that allows it; an operator makes one with `kvqueue token new`".to_owned(),
            Self::ReadOnly => format!(
                "change queues with commands that open the database, and reload with `systemctl reload` or `kill -HUP {}`",
                std::process::id()
            ),
            Self::CrossSite(_) => "add the origin to http.origins if the page is yours".to_owned(),
            Self::Host(_) => {
                "ask for 127.0.0.1 or localhost with the daemon's own port, which a tunnel needs at both ends; behind a proxy of yours, add its origin to http.origins"
                    .to_owned()
            }
            Self::NotFound(_) => "GET /api/v1/openapi.json lists what exists".to_owned(),
            Self::Method { allow, .. } => format!("use {allow}"),
            Self::Conflict { fix, .. } => (*fix).to_owned(),
            Self::TooLarge(_) => {
                "send it in parts; store a payload that is too large elsewhere, and push where it is".to_owned()
            }
            Self::ContentType => "send \"Content-Type: application/json\"".to_owned(),
            Self::Refused(_) => "correct that, and send the request again".to_owned(),
            Self::Slow(_) => "send it faster, or in parts".to_owned(),
            Self::Busy(_) | Self::Unavailable(_) => "try again in a moment".to_owned(),
            Self::NoSpace => format!("{MAKE_SPACE}; `kvqueue status` has the figures"),
            Self::Unreadable(_) => "run `kvqueue doctor`".to_owned(),
        }
    }

    /// The HTTP answer.
    pub(super) fn response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status());
        match self {
            Self::Unauthorized(_) => drop(response.insert_header((header::WWW_AUTHENTICATE, "Bearer"))),
            Self::Method { allow, .. } => drop(response.insert_header((header::ALLOW, allow.as_str()))),
            Self::Busy(_) | Self::Unavailable(_) | Self::NoSpace => {
                response.insert_header((header::RETRY_AFTER, AGAIN));
            }
            _ => {}
        }
        let (code, message, fix) = (self.code(), shortened(self), self.fix());
        response.json(json!({ "error": { "code": code, "message": message, "fix": fix } }))
    }
}
