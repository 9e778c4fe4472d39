//! Frozen queues, in which nothing may change: a migration moves them, or has moved them. Pushes are refused in their own transaction.

use std::sync::Arc;

use kvqueue_queue::{Pause, Queue, retry};
use tokio::time::timeout;

use super::{
    call::Call,
    database::{PATIENCE, POLICY, silent},
    error::Failure,
};

impl Call {
    /// The queue that the path names, unless it is frozen.
    pub(super) async fn unfrozen_queue(&self) -> Result<Queue, Failure> {
        self.unfrozen(self.value(0)).await
    }

    /// The queue of this name, unless it is frozen.
    pub(super) async fn unfrozen(&self, name: &str) -> Result<Queue, Failure> {
        let queue = self.site.queue(name)?;
        match self.pause(name, &queue).await? {
            Some(pause) if pause.frozen => Err(failure(&pause)),
            _ => Ok(queue),
        }
    }

    /// The daemon follows the pauses of its own queues. It takes no place at the database: many push at a time.
    async fn pause(&self, name: &str, queue: &Queue) -> Result<Option<Pause>, Failure> {
        if self.site.config().queues.contains_key(name) {
            return Ok(self.site.door.status.pause_state(&Arc::from(name)).global());
        }
        let read = retry::run(&self.site.door.db, &POLICY, |tr| async {
            let pause = queue.paused(&tr).await;
            (tr, pause)
        });
        Ok(timeout(PATIENCE, read).await.map_err(|_| silent())??.value)
    }
}

/// That it is frozen.
pub(super) fn failure(pause: &Pause) -> Failure {
    Failure::Conflict {
        code: "frozen",
        message: format!("this queue is frozen: {}", pause.why()),
        fix: "use the database that it is moved to; or if you know that nobody moves it, the command line: kvqueue resume --frozen",
    }
}
