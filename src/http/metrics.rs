//! `GET /metrics`, for Prometheus.

use actix_web::{HttpResponse, http::header};

use super::{
    api_request::{Answer, ApiRequest},
    status,
};
use crate::metrics::{CONTENT_TYPE, render};

/// All metrics at this moment.
pub(super) async fn scrape(request: ApiRequest) -> Answer {
    let snapshot = status::snapshot(&request).await;
    let text = render(&request.app.backend.daemon.status.metrics, snapshot);
    Ok(HttpResponse::Ok().insert_header((header::CONTENT_TYPE, CONTENT_TYPE)).body(text))
}
