//! Signing a browser in: with a token that a person enters, or with a link that `kvqueue page` prints.
//!
//! A link works once, and only for a short time. It gives the browser a session of the client that asked for it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use actix_web::{
    HttpResponse,
    cookie::Cookie,
    http::{Method, header},
};
use serde_json::json;

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
    guard::Caller,
};
use crate::{access::random_text, consumer::clock};

/// How long a link works.
const LIFE: Duration = Duration::from_secs(300);

/// The most links of a caller, and of all callers, at a time. The oldest makes room for a new one.
const MOST: usize = 16;
const MOST_IN_ALL: usize = 1_024;

/// The random bytes of a link.
const RANDOM: usize = 24;

/// The links that have not been followed.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<String, (Caller, Instant)>>);

impl Links {
    /// A new link for this caller: a path below the address of the page.
    pub(crate) fn make(&self, caller: Caller) -> Result<String, getrandom::Error> {
        let code = random_text(RANDOM)?;
        let path = format!("/sign-in/{code}");
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, (_, made)| made.elapsed() < LIFE);
        let (who, is_full) = (caller.who(), links.len() >= MOST_IN_ALL);
        let own = links.values().filter(|(owner, _)| owner.who() == who).count();
        if is_full || own >= MOST {
            let removable = links.iter().filter(|(_, (owner, _))| is_full || owner.who() == who);
            let oldest = removable.min_by_key(|(_, (_, made))| *made).map(|(code, _)| code.clone());
            oldest.and_then(|code| links.remove(&code));
        }
        links.insert(code, (caller, Instant::now()));
        Ok(path)
    }

    /// The caller of a link, which does not work again.
    fn follow(&self, code: &str) -> Option<Caller> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.remove(code).filter(|(_, made)| made.elapsed() < LIFE).map(|(caller, _)| caller)
    }
}

fn cookie(request: &ApiRequest, caller: &Caller) -> Option<Cookie<'static>> {
    request.app.session_key().cookie(caller, clock::now(), request.is_secure())
}

impl ApiRequest {
    /// Whether the browser reaches the daemon by TLS: the daemon's own, or that of a proxy under an
    /// address in `http.origins`.
    fn is_secure(&self) -> bool {
        let host = self.http.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let is_of_host = |origin: &String| {
            origin.split_once("://").is_some_and(|(scheme, name)| scheme == "https" && host == Some(name))
        };
        self.app.is_tls || self.app.config().http.origins.iter().any(is_of_host)
    }
}

/// `POST /sign-in`: a session for the client that sends a token.
pub(super) async fn sign_in(request: ApiRequest) -> Answer {
    let mut response = HttpResponse::NoContent();
    if let Some(cookie) = cookie(&request, &request.caller) {
        response.cookie(cookie);
    }
    Ok(response.finish())
}

/// `DELETE /sign-in`
pub(super) async fn sign_out(request: ApiRequest) -> Answer {
    let cookie = request.app.session_key().expired(request.is_secure());
    Ok(HttpResponse::NoContent().cookie(cookie).finish())
}

/// `POST /sign-in/link`
pub(super) async fn link(request: ApiRequest) -> Answer {
    let path =
        match &request.caller {
            Caller::Anyone => "/".to_owned(),
            caller => request.app.links.make(caller.clone()).map_err(|error| {
                ApiError::Unavailable(format!("the system gives no random bytes: {error}"))
            })?,
        };
    Ok(HttpResponse::Created().json(json!({ "path": path, "expires_in_s": LIFE.as_secs() })))
}

/// `GET /sign-in/{code}`
pub(super) async fn follow(request: ApiRequest) -> Answer {
    let mut response = HttpResponse::SeeOther();
    // Relative, for a proxy that has the daemon below a path of its own.
    response.insert_header((header::LOCATION, "../"));
    if request.http.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let Some(caller) = request.app.links.follow(&request.value("code")) else {
        return Err(ApiError::NotFound(
            "this link was used before, or is too old; `kvqueue page` prints another".to_owned(),
        ));
    };
    if let Some(cookie) = cookie(&request, &caller) {
        response.cookie(cookie);
    }
    Ok(response.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_link_works_once() {
        let links = Links::default();
        let path = links.make(Caller::Operator).unwrap();
        let code = path.strip_prefix("/sign-in/").unwrap();
        assert!(links.follow("").is_none() && links.follow(&code[1..]).is_none());
        assert!(matches!(links.follow(code), Some(Caller::Operator)));
        assert!(links.follow(code).is_none());
    }

    #[test]
    fn the_oldest_link_makes_room_for_a_new_one() {
        let links = Links::default();
        let paths: Vec<String> = (0..=MOST).map(|_| links.make(Caller::Operator).unwrap()).collect();
        let follow = |path: &str| links.follow(path.strip_prefix("/sign-in/").unwrap());
        assert!(follow(&paths[0]).is_none());
        assert!(paths[1..].iter().all(|path| follow(path).is_some()));
    }
}
