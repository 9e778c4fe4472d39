//! Who sends a request, and what that client may do.

use std::sync::Arc;

use actix_web::http::header::{self, HeaderMap};

use crate::{
    access::{AccessToken, Scope},
    audit::Who,
    http::error::ApiError,
};

/// Who sends a request.
#[derive(Clone, Debug)]
pub(in crate::http) enum Caller {
    /// Somebody, where no secret is needed.
    Anyone,
    /// A client with the secret of `http.token-file`.
    Operator,
    /// A client with an access token.
    Token(Arc<AccessToken>),
}

impl Caller {
    /// The client, for the audit trail.
    pub(in crate::http) fn who(&self) -> Who {
        match self {
            Self::Anyone => Who::Anyone,
            Self::Operator => Who::Operator,
            Self::Token(token) => Who::Token { name: token.name.clone() },
        }
    }

    /// An error if the client may not do this with a queue, or with all of them.
    pub(in crate::http) fn check(&self, scope: Scope, queue: Option<&str>) -> Result<(), ApiError> {
        match self {
            Self::Anyone | Self::Operator => Ok(()),
            Self::Token(token) => token.permits(scope, queue).map_err(ApiError::Forbidden),
        }
    }
}

/// The secret that a client sends; `None` without the header.
pub(in crate::http) fn bearer(headers: &HeaderMap) -> Option<Result<&[u8], ApiError>> {
    let given = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, given) = given.split_at_checked(b"Bearer ".len()).unwrap_or((given, b""));
    Some(if scheme.eq_ignore_ascii_case(b"Bearer ") {
        Ok(given.trim_ascii())
    } else {
        Err(ApiError::Unauthorized("the header Authorization does not begin with \"Bearer \""))
    })
}
