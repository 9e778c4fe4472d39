//! Whether a queue is paused, and pausing it for this daemon alone.

use std::sync::Arc;

use kvqueue_queue::{Pause, Queue};

use super::{api_request::ApiRequest, app_state::AppState, error::ApiError, status::no_queue};
use crate::{audit::this_daemon, control::CommandError, status::Phase};

impl ApiRequest {
    /// Pauses or resumes a queue for this daemon alone.
    pub(super) async fn pause_locally(&self, name: &str, paused: bool) -> Result<(), ApiError> {
        let app = &self.app;
        if !app.config().queues.contains_key(name) {
            return Err(no_queue(name));
        }
        self.store(self.record().with("local", true).with("daemon", this_daemon())).await?;
        app.daemon.commands.pause_locally(name, paused).await.map_err(|refused| refuse(self, refused))
    }
}

impl AppState {
    /// Whether a queue is paused, for all daemons or for this one.
    pub(super) async fn is_paused(&self, queue: &Queue) -> Result<bool, ApiError> {
        let name = &*String::from_utf8_lossy(queue.name());
        let is_paused_here = self.config().queues.contains_key(name)
            && self.daemon.status.pause_state(&Arc::from(name)).is_paused_locally();
        Ok(is_paused_here || self.pause(name, queue).await?.is_some())
    }

    /// The pause of a queue. The daemon follows the pauses of its own queues. For other queues, and
    /// while a pause state is not known, it reads the database. That takes no database permit: many
    /// clients push at a time.
    async fn pause(&self, name: &str, queue: &Queue) -> Result<Option<Pause>, ApiError> {
        if self.config().queues.contains_key(name)
            && let Some(pause) = self.daemon.status.pause_state(&Arc::from(name)).known()
        {
            return Ok(pause);
        }
        let read = self.run(|tr| async {
            let pause = queue.paused(&tr).await;
            (tr, pause)
        });
        read.await
    }
}

/// The error for a command that failed.
pub(super) fn refuse(request: &ApiRequest, CommandError(reason): CommandError) -> ApiError {
    match request.app.daemon.status.current_phase() {
        Phase::Draining => ApiError::Unavailable(reason),
        Phase::Starting | Phase::Ready | Phase::Reloading => ApiError::Refused(reason),
    }
}
