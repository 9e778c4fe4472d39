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
    guard::{self, Caller, Token},
    sign_in_page,
};
use crate::{access::random_text, base::clock};

/// How long a link works.
const LIFE: Duration = Duration::from_secs(300);

/// The most links of a caller, and of all callers, at a time. The oldest makes room for a new one.
const MOST: usize = 16;
const MOST_IN_ALL: usize = 1_024;

/// The random bytes of a link.
const RANDOM: usize = 24;

/// A link that has not been followed.
#[derive(Debug)]
struct Link {
    caller: Caller,
    made: Instant,
    /// The operator's secret when it was made. Another one ends all links.
    secret: Option<Token>,
}

impl Link {
    fn is_good(&self, secret: Option<&Token>) -> bool {
        self.made.elapsed() < LIFE && self.secret.as_ref() == secret
    }
}

/// The links that have not been followed, by their codes.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<String, Link>>);

impl Links {
    /// A new link for this caller: a path below the address of the page.
    pub(super) fn make(&self, caller: Caller, secret: Option<Token>) -> Result<String, getrandom::Error> {
        let code = random_text(RANDOM)?;
        let path = format!("/sign-in/{code}");
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, link| link.made.elapsed() < LIFE);
        let (who, is_full) = (caller.who(), links.len() >= MOST_IN_ALL);
        let own = links.values().filter(|link| link.caller.who() == who).count();
        if is_full || own >= MOST {
            let removable = links.iter().filter(|(_, link)| is_full || link.caller.who() == who);
            let oldest = removable.min_by_key(|(_, link)| link.made).map(|(code, _)| code.clone());
            oldest.and_then(|code| links.remove(&code));
        }
        links.insert(code, Link { caller, made: Instant::now(), secret });
        Ok(path)
    }

    /// The caller of a link, which goes on working.
    fn caller(&self, code: &str, secret: Option<&Token>) -> Option<Caller> {
        let links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links.get(code)?;
        link.is_good(secret).then(|| link.caller.clone())
    }

    /// The caller of a link, which does not work again.
    fn follow(&self, code: &str, secret: Option<&Token>) -> Option<Caller> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let link = links.remove(code)?;
        link.is_good(secret).then_some(link.caller)
    }
}

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
        self.app.is_tls || self.app.config().http.origins.iter().any(is_of_host)
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
    guard::check_origin(headers, app.scheme(), &app.config().http.origins)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(secret: &str) -> Option<Token> {
        Some(Token::of_test(secret))
    }

    #[test]
    fn a_link_ends_with_the_secret_of_its_time() {
        let links = Links::default();
        let path = links.make(Caller::Operator, secret("one")).unwrap();
        assert!(links.follow(path.strip_prefix("/sign-in/").unwrap(), secret("two").as_ref()).is_none());
    }

    #[test]
    fn a_sign_in_link_works_once() {
        let links = Links::default();
        let path = links.make(Caller::Operator, secret("one")).unwrap();
        let code = path.strip_prefix("/sign-in/").unwrap();
        assert!(
            links.follow("", secret("one").as_ref()).is_none()
                && links.follow(&code[1..], secret("one").as_ref()).is_none()
        );
        for _ in 0..2 {
            assert!(
                matches!(links.caller(code, secret("one").as_ref()), Some(Caller::Operator)),
                "a question does not use it up"
            );
        }
        assert!(links.caller(code, secret("two").as_ref()).is_none());
        assert!(matches!(links.follow(code, secret("one").as_ref()), Some(Caller::Operator)));
        assert!(links.follow(code, secret("one").as_ref()).is_none());
    }

    #[test]
    fn the_oldest_link_makes_room_for_a_new_one() {
        let links = Links::default();
        let paths: Vec<String> =
            (0..=MOST).map(|_| links.make(Caller::Operator, secret("one")).unwrap()).collect();
        let follow =
            |path: &str| links.follow(path.strip_prefix("/sign-in/").unwrap(), secret("one").as_ref());
        assert!(follow(&paths[0]).is_none());
        assert!(paths[1..].iter().all(|path| follow(path).is_some()));
    }
}
