//! What all requests share.

use std::sync::Arc;

use actix_web::http::header::HeaderMap;
use tokio::{runtime::Handle, sync::Semaphore, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    body, events,
    guard::{Hosts, Rotation, Token},
    push::Producers,
    ticker::Ticker,
};
use crate::{config::Config, control::Door};

/// The most requests at the database at a time.
const AT_THE_DATABASE: usize = 16;

/// The most clients with a wrong secret that are kept waiting at a time.
const KEPT_WAITING: usize = 32;

/// The daemon as requests see it.
pub(crate) struct Site {
    pub(super) door: Door,
    pub(super) hosts: Hosts,
    rotation: Rotation,
    /// Places at the database.
    pub(super) places: Semaphore,
    /// Places for clients that are kept waiting.
    pub(super) waiting: Semaphore,
    /// The places for clients that follow events.
    pub(super) followers: Arc<Semaphore>,
    /// What those get.
    pub(super) ticker: Ticker,
    /// Bytes of bodies that may still be held.
    pub(super) room: Arc<Semaphore>,
    /// The daemon has stopped: answers that would go on for ever end.
    pub(super) stopping: CancellationToken,
    pub(super) producers: Producers,
    /// What has to be seen through though its client is gone, and where it runs.
    pub(super) tasks: TaskTracker,
    runtime: Handle,
}

impl Site {
    pub(super) fn new(door: Door, hosts: Hosts, runtime: Handle) -> Self {
        Self {
            door,
            hosts,
            rotation: Rotation::default(),
            places: Semaphore::new(AT_THE_DATABASE),
            waiting: Semaphore::new(KEPT_WAITING),
            followers: Arc::new(Semaphore::new(events::FOLLOWERS)),
            ticker: Ticker::default(),
            room: Arc::new(Semaphore::new(body::HELD)),
            stopping: CancellationToken::new(),
            producers: Producers::default(),
            tasks: TaskTracker::new(),
            runtime,
        }
    }

    /// Runs something that is not given up when its client goes.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn_on(task, &self.runtime)
    }

    /// The configuration in force.
    pub(super) fn config(&self) -> Arc<Config> {
        self.door.config.borrow().clone()
    }

    /// The secret that clients have to know, if there is one.
    pub(super) fn token(&self) -> Option<Token> {
        self.door.token.borrow().clone()
    }

    /// Whether the client knows the secret that the file has now. If so, that one is in force from here on.
    pub(super) async fn knows_new_token(&self, headers: &HeaderMap) -> bool {
        let Some(path) = self.config().http.token_file.clone() else { return false };
        let Some(found) = self.rotation.read(path).await else { return false };
        if found.check(headers).is_err() {
            return false;
        }
        if self.door.token.send_replace(Some(found.clone())) != Some(found) {
            tracing::info!(
                event = "secret_changed",
                "http.token-file has changed; requests now need the new secret"
            );
        }
        true
    }
}
