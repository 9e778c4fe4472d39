//! Workers that lease items over HTTP, as this daemon sees them: `GET /api/v1/workers`.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpResponse, http::header};
use kvqueue_queue::LeaseId;
use serde_json::json;

use super::api_request::{Answer, ApiRequest};
use crate::status::{Wait, Worker};

/// The most workers of an answer.
const MOST: usize = 1_000;

/// The most characters of a client's `User-Agent`.
const USER_AGENT: usize = 200;

impl ApiRequest {
    /// Notes a lease that this request got, extended or acknowledged.
    pub(super) fn note_lease(&self, id: LeaseId, open: usize, length: Duration) {
        let workers = &self.app.backend.daemon.status.workers;
        workers.seen(id, open, length, || (self.queue_name(), self.worker()));
    }

    /// Notes that a lease is over.
    pub(super) fn forget_lease(&self, id: LeaseId) {
        self.app.backend.daemon.status.workers.forget(self.value("queue"), id);
    }

    /// Notes that the worker waits, until the result is dropped.
    pub(super) fn wait(&self) -> Wait {
        self.app.backend.daemon.status.workers.wait(self.queue_name(), self.worker())
    }

    fn queue_name(&self) -> Arc<str> {
        Arc::from(self.value("queue"))
    }

    /// The worker that sends it.
    pub(super) fn worker(&self) -> Worker {
        let agent = self.http.headers().get(header::USER_AGENT);
        let agent =
            agent.map(|agent| String::from_utf8_lossy(agent.as_bytes()).chars().take(USER_AGENT).collect());
        Worker { who: self.caller.who(), address: self.address(), user_agent: agent }
    }
}

/// `GET /api/v1/workers`
pub(super) async fn list(request: ApiRequest) -> Answer {
    let (workers, omitted) =
        request.app.backend.daemon.status.workers.list(request.query.text("queue"), MOST);
    Ok(HttpResponse::Ok().json(json!({ "workers": workers, "omitted": omitted })))
}
