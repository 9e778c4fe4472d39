//! A request on its way to its handler.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, http::header, web::Payload};
use futures::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::{body, error::Failure, site::Site, uri::Query};

/// What a handler gives back.
pub(crate) type Answer = Result<HttpResponse, Failure>;

/// Carries out a request.
pub(crate) type Handler = fn(Call) -> LocalBoxFuture<'static, Answer>;

/// A longer body is read on another thread, in bytes: reading megabytes would keep all other requests waiting.
const LONG: usize = 64 << 10;

/// The longest body of a request that pushes nothing, in bytes.
const SHORT: usize = 64 << 10;

/// A request that has passed the guards.
pub(crate) struct Call {
    pub(super) site: Arc<Site>,
    pub(super) request: HttpRequest,
    pub(super) query: Query,
    /// The values of the path, in its order.
    pub(super) values: Vec<String>,
    pub(super) payload: Payload,
    /// What is held of all bodies goes back with the call.
    pub(super) held: Option<Arc<OwnedSemaphorePermit>>,
}

impl Call {
    /// The value of the path at this place, such as the queue's name.
    pub(super) fn value(&self, index: usize) -> &str {
        self.values.get(index).map_or("", String::as_str)
    }

    /// The body of a push, read as JSON.
    pub(super) async fn long_json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, Failure> {
        let limit = usize::try_from(self.site.config().http.max_body).unwrap_or(usize::MAX);
        self.read(limit).await
    }

    /// The body of any other request, read as JSON.
    pub(super) async fn json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, Failure> {
        self.read(SHORT).await
    }

    /// The same, where a request without a body means the default.
    pub(super) async fn json_if_any<T: DeserializeOwned + Default + Send + 'static>(
        &mut self,
    ) -> Result<T, Failure> {
        let headers = self.request.headers();
        let is_empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0")
            && !headers.contains_key(header::TRANSFER_ENCODING);
        if is_empty { Ok(T::default()) } else { self.json().await }
    }

    async fn read<T: DeserializeOwned + Send + 'static>(&mut self, limit: usize) -> Result<T, Failure> {
        if !body::is_json(self.request.headers()) {
            return Err(Failure::ContentType);
        }
        let (body, held) = body::read(&mut self.payload, limit, &self.site.room).await?;
        self.held = held.map(Arc::new);
        if body.len() <= LONG {
            return body::parse(&body);
        }
        let parsed = spawn_blocking(move || body::parse(&body)).await;
        parsed.unwrap_or_else(|_| Err(Failure::Unavailable("the daemon is stopping".to_owned())))
    }
}
