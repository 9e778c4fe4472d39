//! Reading bodies: with limits of size and time, as JSON.

use actix_web::{
    http::header::{self, HeaderMap},
    web::Payload,
};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    error::ApiError,
    room::{Place, SHORT},
    shortened::shortened,
};
pub(super) use crate::handlers::whole;
use crate::{base::deadlines::BODY, operations::push::Object};

/// The length of the body, if the head of the request has it.
fn announced(headers: &HeaderMap) -> Option<usize> {
    // The parser has refused what is not a number. What exceeds a `usize` exceeds every limit.
    let length = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?;
    Some(length.trim().parse().unwrap_or(usize::MAX))
}

/// Reads a body of up to `limit` bytes, for which `room` grows. A body whose announced length exceeds the limit or the room is refused before
/// it is read.
pub(super) async fn read(
    payload: &mut Payload,
    headers: &HeaderMap,
    limit: usize,
    room: &mut Place,
) -> Result<Vec<u8>, ApiError> {
    let too_long = || ApiError::TooLarge(format!("the body is longer than {limit} bytes"));
    let full = || ApiError::Busy("too much is being pushed");
    if let Some(length) = announced(headers) {
        if length > limit {
            return Err(too_long());
        }
        if length <= SHORT {
            room.set_short();
        }
        // The room grows when the bytes arrive, so that a client which only announces them holds none.
        if !room.has_room_for(length) {
            return Err(full());
        }
    }
    let body = async {
        let mut body = Vec::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|error| ApiError::Bad(format!("the body broke off: {error}")))?;
            if body.len() + chunk.len() > limit {
                return Err(too_long());
            }
            if !room.grow_to(body.len() + chunk.len()) {
                return Err(full());
            }
            if body.capacity() - body.len() < chunk.len() {
                // By itself it would double, and be twice as long as the body.
                body.reserve_exact(chunk.len().max(body.len() / 4));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    timeout(BODY, body).await.map_err(|_| ApiError::Slow(BODY))?
}

/// Whether Content-Type is JSON. A browser lets pages of other sites send that type only after a preflight request.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    let essence = |kind: &str| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.is_some_and(|kind| essence(kind) == "application/json")
}

/// Reads a JSON object; an error names the key.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // Following the keys takes as long again, and only an error needs them.
    if let Ok(Object(parsed)) = serde_json::from_slice(body) {
        return Ok(parsed);
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // Either may quote a text as long as the body.
        let path = shortened(error.path());
        let problem = shortened(&error.into_inner());
        ApiError::Bad(match path.as_str() {
            "." => format!("the body: {problem}"),
            path => format!("the body at {path}: {problem}"),
        })
    })?;
    reader.end().map_err(|error| ApiError::Bad(format!("the body: {error}")))?;
    let Object(parsed) = parsed;
    Ok(parsed)
}
