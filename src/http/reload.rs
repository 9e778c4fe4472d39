//! `POST /api/v1/reload`

use actix_web::HttpResponse;

use super::{
    api_request::{Answer, ApiRequest},
    pause::refuse,
};
use crate::audit::this_daemon;

/// Reloads the configuration, and returns the result.
pub(super) async fn reload(request: ApiRequest) -> Answer {
    request.store(request.record().with("daemon", this_daemon())).await?;
    match request.app.backend.daemon.commands.reload().await {
        Ok(reloaded) => Ok(HttpResponse::Ok().json(reloaded)),
        Err(refused) => Err(refuse(&request, refused)),
    }
}
