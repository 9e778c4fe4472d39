//! Errors, as clients get them.

use std::time::Duration;

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
};
use serde_json::json;

use super::body::shortened;
use crate::database::MAKE_SPACE;

/// After how many seconds a client may retry when the daemon is busy.
const AGAIN: u64 = 1;

/// A request was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The request is wrong.
    #[error("{0}")]
    Bad(String),
    /// No secret, or a wrong one.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// Nothing can be changed here.
    #[error("http.read-only is set, so nothing can be changed here")]
    ReadOnly,
    /// Another site's page asks.
    #[error("cross-origin request from {0} refused")]
    CrossSite(String),
    /// It was reached by a name that is not its own.
    #[error("the daemon is not reached by the name {0}")]
    Host(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// Something can be done here, but not that.
    #[error("{method} cannot be done here")]
    Method {
        /// What was asked for.
        method: String,
        /// What can be done.
        allow: String,
    },
    /// Something else is in the way.
    #[error("{message}")]
    Conflict {
        /// One word for programs.
        code: &'static str,
        /// What is in the way.
        message: String,
        /// What can be done about it.
        fix: &'static str,
    },
    /// The body, or an item, is too long.
    #[error("{0}")]
    TooLarge(String),
    /// The body is not JSON.
    #[error("Content-Type must be application/json")]
    ContentType,
    /// An order was refused.
    #[error("{0}")]
    Refused(String),
    /// The body came too slowly.
    #[error("the body did not come within {} s", .0.as_secs())]
    Slow(Duration),
    /// There is too much to do.
    #[error("{0} at the moment")]
    Busy(&'static str),
    /// The database does not answer, or refuses; or the daemon stops.
    #[error("{0}")]
    Unavailable(String),
    /// The database stores nothing more for want of disk space.
    #[error("the database accepts no more data: its disk is full, or has too little free space")]
    NoSpace,
    /// The database has something that cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl Failure {
    /// One word for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) => "bad_request",
            Self::Unauthorized(_) => "unauthorized",
            Self::ReadOnly => "read_only",
            Self::CrossSite(_) => "cross_site",
            Self::Host(_) => "host",
            Self::NotFound(_) => "not_found",
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
            Self::ReadOnly | Self::CrossSite(_) | Self::Host(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
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

    /// What the client can do.
    fn fix(&self) -> String {
        match self {
            Self::Bad(_) => "see /api/v1/openapi.json".to_owned(),
            Self::Unauthorized(_) => {
                "send \"Authorization: Bearer SECRET\" with the secret in the daemon's http.token-file".to_owned()
            }
            Self::ReadOnly => format!(
                "change queues with commands that open the database, and reload with `systemctl reload` or `kill -HUP {}`",
                std::process::id()
            ),
            Self::CrossSite(_) => "add the origin to http.origins if the page is yours".to_owned(),
            Self::Host(_) => {
                "ask for 127.0.0.1 or localhost with the port; behind a proxy of yours, add its origin to http.origins"
                    .to_owned()
            }
            Self::NotFound(_) => "GET /api/v1/openapi.json tells what there is".to_owned(),
            Self::Method { allow, .. } => format!("use {allow}"),
            Self::Conflict { fix, .. } => (*fix).to_owned(),
            Self::TooLarge(_) => "push in parts, or store it elsewhere and push where it is".to_owned(),
            Self::ContentType => "send \"Content-Type: application/json\"".to_owned(),
            Self::Refused(_) => "correct that, and send the request again".to_owned(),
            Self::Slow(_) => "send it faster, or in parts".to_owned(),
            Self::Busy(_) | Self::Unavailable(_) => "try again in a moment".to_owned(),
            Self::NoSpace => {
                format!("{MAKE_SPACE}; GET /readyz has the figures")
            }
            Self::Unreadable(_) => "`kvqueue doctor` may tell more".to_owned(),
        }
    }

    /// The answer. The connection goes on.
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
        let (code, message, fix) = (self.code(), shortened(self.to_string()), self.fix());
        response.json(json!({ "error": { "code": code, "message": message, "fix": fix } }))
    }
}
