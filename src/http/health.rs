//! `/livez` and `/readyz`: for service managers and load balancers. Neither reads the database.

use actix_web::HttpResponse;
use serde_json::json;

use super::api_request::{Answer, ApiRequest};

/// The process lives and its actors move; or what stands still, as systemd's watchdog sees it.
pub(super) async fn live(request: ApiRequest) -> Answer {
    Ok(match request.app.daemon.status.liveness() {
        Ok(()) => HttpResponse::Ok().json(json!({ "status": "ok" })),
        Err(reason) => {
            HttpResponse::ServiceUnavailable().json(json!({ "status": "stuck", "reason": reason }))
        }
    })
}

/// It does its work; or why it does not.
pub(super) async fn ready(request: ApiRequest) -> Answer {
    let reasons = request.app.daemon.status.not_ready();
    let ready = reasons.is_empty();
    let warnings = request.app.daemon.status.warnings();
    let mut response = if ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    Ok(response.json(json!({ "ready": ready, "reasons": reasons, "warnings": warnings })))
}
