//! Pausing a queue for this daemon alone.

use super::{api_request::ApiRequest, error::ApiError, status::no_queue};
use crate::{audit::this_daemon, control::CommandError, status::Phase};

impl ApiRequest {
    /// Pauses or resumes a queue for this daemon alone.
    pub(super) async fn pause_locally(&self, name: &str, paused: bool) -> Result<(), ApiError> {
        let app = &self.app;
        if !app.backend.config().queues.contains_key(name) {
            return Err(no_queue(name));
        }
        self.store(self.record().with("local", true).with("daemon", this_daemon())).await?;
        app.backend.daemon.commands.pause_locally(name, paused).await.map_err(|refused| refuse(self, refused))
    }
}

/// The error for a command that failed.
pub(super) fn refuse(request: &ApiRequest, CommandError(reason): CommandError) -> ApiError {
    match request.app.backend.daemon.status.current_phase() {
        Phase::Draining => ApiError::Unavailable(reason),
        Phase::Starting | Phase::Ready | Phase::Reloading => ApiError::Refused(reason),
    }
}
