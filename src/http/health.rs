//! `/livez` and `/readyz`: for supervisors and load balancers. Neither asks the database.

use actix_web::HttpResponse;
use serde_json::json;

use super::call::{Answer, Call};

/// The process lives and its actors move; or what stands still, as systemd's watchdog sees it.
pub(super) async fn live(call: Call) -> Answer {
    Ok(match call.site.door.status.liveness() {
        Ok(()) => HttpResponse::Ok().json(json!({ "status": "ok" })),
        Err(reason) => {
            HttpResponse::ServiceUnavailable().json(json!({ "status": "stuck", "reason": reason }))
        }
    })
}

/// It does its work; or why it does not.
pub(super) async fn ready(call: Call) -> Answer {
    let reasons = call.site.door.status.not_ready();
    let ready = reasons.is_empty();
    let warnings = call.site.door.status.warnings();
    let mut response = if ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    Ok(response.json(json!({ "ready": ready, "reasons": reasons, "warnings": warnings })))
}
