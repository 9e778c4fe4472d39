//! A request that has passed the guards.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use actix_web::{HttpRequest, HttpResponse, http::header, web::Payload};
use futures::future::LocalBoxFuture;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;

use super::{
    app_state::AppState,
    body,
    error::ApiError,
    guard::Caller,
    peer::Peer,
    room::{Place, SHORT},
    route::Route,
    uri::Query,
};

/// The result of an endpoint.
pub(crate) type Answer = Result<HttpResponse, ApiError>;

/// An endpoint's function.
pub(crate) type Handler = fn(ApiRequest) -> LocalBoxFuture<'static, Answer>;

/// A request that has passed the guards.
pub(crate) struct ApiRequest {
    pub(super) app: Arc<AppState>,
    pub(super) http: HttpRequest,
    /// When the daemon began to serve it.
    pub(super) began: Instant,
    pub(super) route: &'static Route,
    pub(super) values: PathValues,
    pub(super) caller: Caller,
    /// Whether the endpoint has taken the record of this request.
    pub(super) audited: Rc<Cell<bool>>,
    pub(super) query: Query,
    pub(super) payload: Payload,
    /// The database permit of an operation.
    pub(super) database_permit: RefCell<Option<Place>>,
    /// The memory for bodies that this request holds.
    pub(super) held: Option<Arc<Place>>,
    /// The room for the answer.
    pub(super) answer_room: Rc<Cell<Option<Place>>>,
}

/// The values that the path of a request has for the names in the path of its route.
#[derive(Default)]
pub(super) struct PathValues(Vec<(&'static str, String)>);

impl PathValues {
    /// Values as they are in the path, with percent codes.
    pub(super) fn decode<'p>(encoded: impl Iterator<Item = (&'static str, &'p str)>) -> Self {
        Self(
            encoded
                .map(|(name, value)| (name, percent_decode_str(value).decode_utf8_lossy().into_owned()))
                .collect(),
        )
    }

    /// The value of this name, if the route has one.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| &**value)
    }
}

impl ApiRequest {
    /// The value of this name in the route's path, such as `queue`.
    pub(super) fn value(&self, name: &str) -> &str {
        self.values.get(name).unwrap_or_default()
    }

    /// An error if the client's token was revoked, or has expired, since the request came.
    pub(super) async fn check_still_known(&self) -> Result<(), ApiError> {
        self.app.check_still_known(&self.caller).await
    }

    /// The other end of the connection.
    pub(super) fn peer(&self) -> Option<&Arc<Peer>> {
        self.http.conn_data::<Arc<Peer>>()
    }

    /// The body of a push or an acknowledgement, read as JSON.
    pub(super) async fn long_json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, ApiError> {
        let limit = usize::try_from(self.app.backend.config().http.max_body).unwrap_or(usize::MAX);
        self.read(limit).await
    }

    /// The body of an extension, read as JSON. Without a body, the default.
    pub(super) async fn long_json_if_any<T: DeserializeOwned + Default + Send + 'static>(
        &mut self,
    ) -> Result<T, ApiError> {
        if self.has_body() { self.long_json().await } else { Ok(T::default()) }
    }

    /// The short body of any other request, read as JSON.
    pub(super) async fn json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, ApiError> {
        self.read(SHORT).await
    }

    /// The same. Without a body, the default.
    pub(super) async fn json_if_any<T: DeserializeOwned + Default + Send + 'static>(
        &mut self,
    ) -> Result<T, ApiError> {
        if self.has_body() { self.json().await } else { Ok(T::default()) }
    }

    fn has_body(&self) -> bool {
        let headers = self.http.headers();
        headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0")
            || headers.contains_key(header::TRANSFER_ENCODING)
    }

    async fn read<T: DeserializeOwned + Send + 'static>(&mut self, limit: usize) -> Result<T, ApiError> {
        if !body::is_json(self.http.headers()) {
            return Err(ApiError::ContentType);
        }
        let mut room = self.app.bodies.place(&self.caller);
        let body = body::read(&mut self.payload, self.http.headers(), limit, &mut room).await?;
        self.held = Some(Arc::new(room));
        if body.len() <= SHORT {
            return body::parse(&body);
        }
        // Parsing megabytes here would delay all other requests.
        let parsed = spawn_blocking(move || body::parse(&body)).await;
        parsed.unwrap_or_else(|_| Err(ApiError::Unavailable("the daemon is stopping".to_owned())))
    }
}
