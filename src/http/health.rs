//! `/livez` and `/readyz`: for service managers and load balancers. Neither reads the database.
//!
//! Everybody may ask. What could be secret, such as names of queues and what a handler's target has answered, is only for clients that may
//! read the status.

use actix_web::HttpResponse;
use serde_json::json;

use super::api_request::{Answer, ApiRequest};

/// The process lives and its actors move; or what stands still, as systemd's watchdog sees it.
pub(super) async fn live(request: ApiRequest) -> Answer {
    Ok(match request.app.backend.daemon.status.liveness() {
        Ok(()) => HttpResponse::Ok().json(json!({ "status": "ok" })),
        Err(reason) => {
            let mut report = json!({ "status": "stuck" });
            if request.app.may_read(request.http.headers()) {
                report["reason"] = reason.into();
            }
            HttpResponse::ServiceUnavailable().json(report)
        }
    })
}

/// It does its work; or why it does not.
pub(super) async fn ready(request: ApiRequest) -> Answer {
    let reasons = request.app.backend.daemon.status.not_ready();
    let ready = reasons.is_empty();
    let warnings = request.app.backend.daemon.status.warnings();
    let mut response = if ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    let mut report =
        json!({ "ready": ready, "reason_count": reasons.len(), "warning_count": warnings.len() });
    if request.app.may_read(request.http.headers()) {
        report["reasons"] = reasons.into();
        report["warnings"] = warnings.into();
    }
    Ok(response.json(report))
}
