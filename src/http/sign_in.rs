//! Signing a browser in: with a token that a person enters, or with a link that `kvqueue page` prints.
//!
//! A link works once, and only for a short time. It gives the browser a session of the client that asked for it.

use actix_web::{
    HttpResponse,
    cookie::Cookie,
    http::{Method, header},
};
use serde_json::json;

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
    guard::{self, Caller},
    links::LIFE,
    sign_in_page,
};
use crate::base::clock;

async fn cookie(request: &ApiRequest, caller: &Caller) -> Option<Cookie<'static>> {
    request.app.session_key().await.cookie(caller, clock::now(), request.is_secure())
}

impl ApiRequest {
    /// Whether the browser reaches the daemon by TLS: the daemon's own, or that of a proxy under an
    /// address in `http.origins`.
    fn is_secure(&self) -> bool {
        let host = self.http.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let is_of_host = |origin: &String| {
            origin.split_once("://").is_some_and(|(scheme, name)| scheme == "https" && host == Some(name))
        };
        self.app.is_tls || self.app.backend.config().http.origins.iter().any(is_of_host)
    }
}

/// `POST /sign-in`: a session for the client that sends a token.
pub(super) async fn sign_in(request: ApiRequest) -> Answer {
    let mut response = HttpResponse::NoContent();
    if let Some(cookie) = cookie(&request, &request.caller).await {
        response.cookie(cookie);
    }
    Ok(response.finish())
}

/// `DELETE /sign-in`
pub(super) async fn sign_out(request: ApiRequest) -> Answer {
    let (app, is_secure) = (&request.app, request.is_secure());
    let mut response = HttpResponse::NoContent();
    // A session that began before the shared key was known is signed with the daemon's own.
    for key in [app.session_key().await, app.own_session_key()] {
        response.cookie(key.expired(is_secure));
    }
    Ok(response.finish())
}

/// `POST /sign-in/link`
pub(super) async fn link(request: ApiRequest) -> Answer {
    let path =
        match &request.caller {
            Caller::Anyone => "/".to_owned(),
            caller => request.app.links.make(caller.clone(), request.app.token()).map_err(|error| {
                ApiError::Unavailable(format!("the system gives no random bytes: {error}"))
            })?,
        };
    Ok(HttpResponse::Created().json(json!({ "path": path, "expires_in_s": LIFE.as_secs() })))
}

/// `GET /sign-in/{code}`: a person is asked before the browser is signed in. The link may be somebody else's, who wants
/// this person to work with his token.
pub(super) async fn follow(request: ApiRequest) -> Answer {
    if request.http.method() == Method::HEAD {
        return Ok(to_the_page(None));
    }
    let headers = request.http.headers();
    let Some(caller) = request.app.links.caller(request.value("code"), request.app.token().as_ref()) else {
        return useless_link(&request).await;
    };
    let session = session(&request).await;
    let is_same = session.as_ref().is_some_and(|session| session.who() == caller.who());
    if sign_in_page::is_wanted(headers) && !is_same {
        return Ok(sign_in_page::question(&caller, session.as_ref()));
    }
    confirm(request).await
}

/// `POST /sign-in/{code}`: signs the browser in.
pub(super) async fn confirm(request: ApiRequest) -> Answer {
    let (app, headers) = (&request.app, request.http.headers());
    guard::check_origin(headers, app.scheme(), &app.backend.config().http.origins)?;
    let Some(caller) = app.links.follow(request.value("code"), app.token().as_ref()) else {
        return useless_link(&request).await;
    };
    Ok(to_the_page(cookie(&request, &caller).await))
}

/// The answer to a link that was used, or is too old. A browser that is signed in goes on to the page.
async fn useless_link(request: &ApiRequest) -> Answer {
    if !sign_in_page::is_wanted(request.http.headers()) {
        let problem = "this link was used before, or is too old; `kvqueue page` prints another";
        return Err(ApiError::NotFound(problem.to_owned()));
    }
    Ok(match session(request).await {
        Some(_) => to_the_page(None),
        None => sign_in_page::useless_link(),
    })
}

/// The client that the browser is signed in as.
async fn session(request: &ApiRequest) -> Option<Caller> {
    request.app.session_caller(request.http.headers()).await.ok().flatten()
}

/// Sends a browser to the page. The address is relative, for a proxy that has the daemon below a path of its own.
fn to_the_page(cookie: Option<Cookie<'static>>) -> HttpResponse {
    let mut response = HttpResponse::SeeOther();
    response.insert_header((header::LOCATION, "../"));
    if let Some(cookie) = cookie {
        response.cookie(cookie);
    }
    response.finish()
}
