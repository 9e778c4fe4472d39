//! A request that has passed the guards.

use std::{borrow::Cow, cell::Cell, rc::Rc, sync::Arc, time::Instant};

use actix_web::{HttpRequest, HttpResponse, http::header, web::Payload};
use futures::future::LocalBoxFuture;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::{
    app_state::AppState, body, error::ApiError, guard::Caller, peer::Peer, routes::Route, uri::Query,
};

/// The result of an endpoint.
pub(crate) type Answer = Result<HttpResponse, ApiError>;

/// An endpoint's function.
pub(crate) type Handler = fn(ApiRequest) -> LocalBoxFuture<'static, Answer>;

/// A longer body, in bytes, is parsed on another thread: parsing megabytes would delay all other requests.
const LONG: usize = 64 << 10;

/// The longest body in bytes of requests without items and outcomes.
const SHORT: usize = 64 << 10;

/// A request that has passed the guards.
pub(crate) struct ApiRequest {
    pub(super) app: Arc<AppState>,
    pub(super) http: HttpRequest,
    /// When the daemon began to serve it.
    pub(super) began: Instant,
    pub(super) route: &'static Route,
    pub(super) caller: Caller,
    /// Whether the endpoint has taken the record of this request.
    pub(super) audited: Rc<Cell<bool>>,
    pub(super) query: Query,
    pub(super) payload: Payload,
    /// The memory for bodies that this request holds.
    pub(super) held: Option<Arc<OwnedSemaphorePermit>>,
}

/// The value of this name in the path of a request, if its route has one.
pub(super) fn path_value<'r>(request: &'r HttpRequest, name: &str) -> Option<Cow<'r, str>> {
    // The router has decoded all but a few characters, such as the slash.
    Some(percent_decode_str(request.match_info().get(name)?).decode_utf8_lossy())
}

impl ApiRequest {
    /// The value of this name in the route's path, such as `queue`.
    pub(super) fn value(&self, name: &str) -> Cow<'_, str> {
        path_value(&self.http, name).unwrap_or_default()
    }

    /// The other end of the connection.
    pub(super) fn peer(&self) -> Option<&Arc<Peer>> {
        self.http.conn_data::<Arc<Peer>>()
    }

    /// The body of a push or an acknowledgement, read as JSON.
    pub(super) async fn long_json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, ApiError> {
        let limit = usize::try_from(self.app.config().http.max_body).unwrap_or(usize::MAX);
        self.read(limit).await
    }

    /// The body of any other request, read as JSON.
    pub(super) async fn json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, ApiError> {
        self.read(SHORT).await
    }

    /// The same. Without a body, the default.
    pub(super) async fn json_if_any<T: DeserializeOwned + Default + Send + 'static>(
        &mut self,
    ) -> Result<T, ApiError> {
        let headers = self.http.headers();
        let is_empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0")
            && !headers.contains_key(header::TRANSFER_ENCODING);
        if is_empty { Ok(T::default()) } else { self.json().await }
    }

    async fn read<T: DeserializeOwned + Send + 'static>(&mut self, limit: usize) -> Result<T, ApiError> {
        if !body::is_json(self.http.headers()) {
            return Err(ApiError::ContentType);
        }
        let (body, held) = body::read(&mut self.payload, limit, &self.app.room).await?;
        self.held = held.map(Arc::new);
        if body.len() <= LONG {
            return body::parse(&body);
        }
        let parsed = spawn_blocking(move || body::parse(&body)).await;
        parsed.unwrap_or_else(|_| Err(ApiError::Unavailable("the daemon is stopping".to_owned())))
    }
}
