//! `GET /metrics`, for Prometheus.

use actix_web::{HttpResponse, http::header};

use super::{
    call::{Answer, Call},
    status,
};
use crate::metrics::{CONTENT_TYPE, render};

/// All metrics at this moment.
pub(super) async fn scrape(call: Call) -> Answer {
    let snapshot = status::snapshot(&call).await;
    let text = render(&call.site.door.status.metrics, snapshot);
    Ok(HttpResponse::Ok().insert_header((header::CONTENT_TYPE, CONTENT_TYPE)).body(text))
}
