//! `POST /api/v1/reload`

use actix_web::HttpResponse;

use super::{
    call::{Answer, Call},
    pause::refuse,
};

/// Reloads the configuration, and returns the result.
pub(super) async fn reload(call: Call) -> Answer {
    match call.site.door.control.reload().await {
        Ok(reloaded) => Ok(HttpResponse::Ok().json(reloaded)),
        Err(refused) => Err(refuse(&call, refused)),
    }
}
