//! Frozen queues, in which nothing may change: a migration moves them, or has moved them. Pushes
//! are refused in their own transaction.

use std::sync::Arc;

use kvqueue_queue::{Pause, Queue};

use super::{api_request::ApiRequest, app_state::AppState, error::ApiError};

impl ApiRequest {
    /// The queue that the path names, unless it is frozen.
    pub(super) async fn unfrozen_queue(&self) -> Result<Queue, ApiError> {
        let name = self.value("queue");
        let queue = self.app.queue(name)?;
        match self.app.pause(name, &queue).await? {
            Some(pause) if pause.frozen => Err(failure(&pause)),
            _ => Ok(queue),
        }
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

/// The error for a frozen queue.
pub(super) fn failure(pause: &Pause) -> ApiError {
    ApiError::Conflict {
        code: "frozen",
        message: format!("this queue is frozen: {}", pause.why()),
        fix: "use the database that it is moved to; or if you know that nobody moves it, the command line: kvqueue resume --frozen",
    }
}
