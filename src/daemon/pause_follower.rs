//! The pause follower of a queue: it keeps the pause state equal to the pause in the database, which holds for all
//! daemons.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use kvqueue_queue::{Pause, RetryError, RetryPolicy, Watch, retry};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    base::{background, backoff, causes::with_causes, deadlines::FIRST_LOOK},
    consumer::runtime::NamedQueue,
    status::DaemonStatus,
};

/// The database is asked again after this time, even if the watch has not fired.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// A read that takes longer is given up, and tried again.
const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_secs(10)) };

/// The running follower. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct PauseFollower(JoinHandle<Infallible>);

#[derive(Clone)]
struct Following {
    queue: Arc<NamedQueue>,
    /// Its change counter is raised when the pause changes.
    status: Arc<DaemonStatus>,
    /// The daemon ends with its queues.
    until_empty: bool,
}

impl PauseFollower {
    /// Asks the database once, and starts to follow. Without an answer in time, nothing is fetched until there is one.
    pub(crate) async fn start(queue: Arc<NamedQueue>, status: Arc<DaemonStatus>, until_empty: bool) -> Self {
        let following = Following { queue, status, until_empty };
        let watch = match timeout(FIRST_LOOK, following.look()).await {
            Ok(Ok(watch)) => Some(watch),
            answer => {
                let error = answer.ok().and_then(Result::err);
                let error = error.map(|error| with_causes(&error));
                tracing::warn!(
                    event = "pause_state_unknown",
                    queue = %following.queue.name,
                    error,
                    "cannot read the queue's pause state; not fetching until it is known"
                );
                following.queue.pause.mark_unknown();
                None
            }
        };
        let watch = Mutex::new(watch);
        let follow = background::restarted("pause follower", move || {
            let watch = watch.lock().ok().and_then(|mut watch| watch.take());
            tokio::spawn(following.clone().forever(watch))
        });
        Self(tokio::spawn(follow))
    }
}

impl Following {
    async fn forever(self, mut watch: Option<Watch>) -> Infallible {
        let mut failures = 0;
        loop {
            match watch.take() {
                Some(watch) => {
                    let look_at = Instant::now() + POLL_INTERVAL;
                    let lost = tokio::select! {
                        fired = watch => fired.is_err(),
                        () = sleep_until(look_at) => false,
                    };
                    failures = if lost { failures + 1 } else { 0 };
                }
                None => failures += 1,
            }
            if failures > 0 {
                sleep(backoff::pause(failures)).await;
            }
            match self.look().await {
                Ok(armed) => watch = Some(armed),
                Err(error) => {
                    tracing::debug!(
                        event = "pause_not_read",
                        queue = %self.queue.name,
                        error = with_causes(&error),
                        "cannot read the queue's pause state; retrying"
                    );
                }
            }
        }
    }

    /// Reads, and watches from there on.
    async fn look(&self) -> Result<Watch, RetryError> {
        let queue = &self.queue.queue;
        let read = retry::run(&self.queue.db, &POLICY, |tr| async move {
            let pause = queue.paused(&tr).await;
            let watch = queue.watch_pause(&tr);
            (tr, pause.map(|pause| (pause, watch)))
        });
        let (pause, watch) = read.await?.value;
        self.set(pause);
        Ok(watch)
    }

    fn set(&self, pause: Option<Pause>) {
        let before = self.queue.pause.global();
        if !self.queue.pause.set_global(pause.clone()) {
            return;
        }
        let queue = &self.queue.name;
        match (before, pause) {
            (_, Some(Pause { reason, frozen, .. })) if self.until_empty => {
                tracing::warn!(
                    event = "queue_paused",
                    %queue, reason, frozen,
                    "queue paused; --until-empty waits until it is resumed, for example by kvqueue resume"
                );
            }
            (_, Some(Pause { reason, frozen, .. })) => {
                tracing::info!(event = "queue_paused", %queue, reason, frozen, "queue paused");
            }
            (Some(_), None) => tracing::info!(event = "queue_resumed", %queue, "queue resumed"),
            (None, None) => {}
        }
        self.status.touch();
    }
}

impl Drop for PauseFollower {
    fn drop(&mut self) {
        self.0.abort();
    }
}
