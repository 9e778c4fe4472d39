//! The state that all requests share.

use std::{sync::Arc, time::Instant};

use actix_web::http::header::{self, HeaderMap};
use tokio::{runtime::Handle, sync::Semaphore};

use super::{
    backend::Backend,
    error::ApiError,
    guard::{Caller, Hosts, Rotation, SessionKey, SignedIn, Token, bearer},
    handle::DaemonHandle,
    item_wait_bounds::ItemWaits,
    keys::{Key, Keys},
    links::Links,
    pull::Pullers,
    push::Producers,
    room::{ANSWERS, BODIES, Room},
    scheme::scheme,
    ticker::Ticker,
    token_cache::TokenCache,
};
use crate::{
    access::{Scope, is_access_token},
    base::clock,
};

/// The most clients with a wrong secret that wait for their answers at a time.
const KEPT_WAITING: usize = 32;

/// The most clients that follow events at a time.
const FOLLOWERS: usize = 32;

/// The parts of the state that the server has before its thread starts.
pub(super) struct Start {
    pub(super) hosts: Hosts,
    pub(super) is_tls: bool,
    pub(super) keys: Keys,
    pub(super) links: Arc<Links>,
}

/// The state of the HTTP server.
pub(crate) struct AppState {
    pub(super) backend: Arc<Backend>,
    pub(super) hosts: Hosts,
    rotation: Rotation,
    pub(super) tokens: Arc<TokenCache>,
    /// Whether clients reach the daemon by TLS.
    pub(super) is_tls: bool,
    /// Sign sessions of browsers and ids of leases.
    pub(super) keys: Keys,
    /// Links that sign browsers in.
    pub(super) links: Arc<Links>,
    /// Permits of clients with a wrong secret.
    pub(super) waiting: Semaphore,
    /// Permits of clients that follow events.
    pub(super) followers: Arc<Semaphore>,
    /// The events that they get.
    pub(super) ticker: Ticker,
    /// Memory for bodies.
    pub(super) bodies: Arc<Room>,
    /// Memory for long answers that their clients have not read.
    pub(super) answers: Arc<Room>,
    pub(super) producers: Producers,
    /// The fetches of workers.
    pub(super) pullers: Pullers,
    /// The requests that wait for items.
    pub(super) item_waits: ItemWaits,
}

impl AppState {
    pub(super) fn new(daemon: DaemonHandle, start: Start, runtime: Handle) -> Self {
        let Start { hosts, is_tls, keys, links } = start;
        Self {
            backend: Arc::new(Backend::new(daemon, runtime)),
            is_tls,
            keys,
            links,
            hosts,
            rotation: Rotation::default(),
            tokens: Arc::default(),
            waiting: Semaphore::new(KEPT_WAITING),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            ticker: Ticker::default(),
            bodies: Room::new(BODIES),
            answers: Room::new(ANSWERS),
            producers: Producers::default(),
            pullers: Pullers::default(),
            item_waits: ItemWaits::default(),
        }
    }

    /// The secret that clients must send, if there is one.
    pub(super) fn token(&self) -> Option<Token> {
        self.backend.daemon.token.borrow().clone()
    }

    /// The scheme of the daemon's URL.
    pub(super) fn scheme(&self) -> &'static str {
        scheme(self.is_tls)
    }

    /// The key that signs the sessions of browsers. It needs a secret that is not in the database: otherwise, everybody who
    /// reads a backup could make himself a session.
    pub(super) async fn session_key(&self) -> SessionKey {
        match self.token() {
            Some(secret) => SessionKey::of(&self.keys.current().await, Some(&secret)),
            None => SessionKey::of(self.keys.own(), None),
        }
    }

    /// The same for sessions that began before the shared key was known.
    pub(super) fn own_session_key(&self) -> SessionKey {
        SessionKey::of(self.keys.own(), self.token().as_ref())
    }

    /// The client that a browser is signed in as.
    pub(super) async fn session_caller(
        self: &Arc<Self>,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, ApiError> {
        match self.signed_in(headers).await? {
            Some(SignedIn::Operator) => Ok(Some(Caller::Operator)),
            Some(SignedIn::Token(id)) => {
                Ok(self.tokens.with_id(&self.backend, &id).await?.map(Caller::Token))
            }
            None => Ok(None),
        }
    }

    /// Who has signed in with the browser that sends this request.
    async fn signed_in(&self, headers: &HeaderMap) -> Result<Option<SignedIn>, ApiError> {
        if !headers.contains_key(header::COOKIE) {
            return Ok(None);
        }
        match self.token() {
            Some(secret) => self.keys.find(|key| session(headers, key, Some(&secret))).await,
            None => Ok(session(headers, self.keys.own(), None)),
        }
    }

    /// The same, by the keys that are known now.
    fn signed_in_now(&self, headers: &HeaderMap) -> Option<SignedIn> {
        match self.token() {
            Some(secret) => self.keys.find_now(|key| session(headers, key, Some(&secret))),
            None => session(headers, self.keys.own(), None),
        }
    }

    /// An error if a client's token was revoked, or has expired, since the client was identified.
    pub(super) async fn check_still_known(self: &Arc<Self>, caller: &Caller) -> Result<(), ApiError> {
        let Caller::Token(token) = caller else { return Ok(()) };
        match self.tokens.with_id(&self.backend, &token.id).await? {
            Some(_) => Ok(()),
            None => Err(ApiError::Unauthorized("this token is revoked, or has expired")),
        }
    }

    /// The client that sends a request, as far as the daemon knows it without the database.
    pub(super) fn known_caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let secret = self.token();
        if secret.is_none() && !self.backend.config().http.needs_token() {
            return Some(Caller::Anyone);
        }
        if secret.is_some_and(|secret| secret.check(headers).is_ok()) {
            return Some(Caller::Operator);
        }
        let given = bearer(headers).and_then(Result::ok).and_then(|given| str::from_utf8(given).ok());
        let token = match (given, self.signed_in_now(headers)) {
            (Some(given), _) if is_access_token(given) => self.tokens.known(given),
            (None, Some(SignedIn::Operator)) => return Some(Caller::Operator),
            (None, Some(SignedIn::Token(id))) => self.tokens.known_with_id(&id),
            _ => None,
        };
        token.map(Caller::Token)
    }

    /// Whether a client may read texts about the daemon on a route that is open to all.
    pub(super) fn may_read(&self, headers: &HeaderMap) -> bool {
        self.known_caller(headers).is_some_and(|caller| caller.check(Scope::Read, None).is_ok())
    }

    /// Whether the client sends the secret that the file has now. If so, that secret replaces the old one. All clients share
    /// the looks at the file.
    pub(super) async fn knows_new_token(&self, headers: &HeaderMap) -> bool {
        let config = self.backend.config();
        let Some(path) = config.http.token_path(&config.database) else { return false };
        let Some(found) = self.rotation.read_since(Instant::now(), path).await else { return false };
        if found.check(headers).is_err() {
            return false;
        }
        if self.backend.daemon.token.send_replace(Some(found.clone())) != Some(found) {
            tracing::info!(
                event = "secret_changed",
                "http.token-file has changed; requests now need the new secret"
            );
        }
        true
    }
}

/// The session of a request's browser, if its cookie was signed with these.
fn session(headers: &HeaderMap, key: &Key, secret: Option<&Token>) -> Option<SignedIn> {
    SessionKey::of(key, secret).signed_in(headers, clock::now())
}
