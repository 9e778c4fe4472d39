//! Operations by requests.

use std::{sync::Arc, time::Instant};

use actix_web::HttpResponse;
use anyhow::bail;
use foundationdb::{Database, Transaction};
use futures::{FutureExt, future::LocalBoxFuture};
use kvqueue_queue::{ItemId, Queue, Recorder, RetryError, RetryPolicy};
use serde_json::{Map, Value, json};

use super::{
    api_request::{Answer, ApiRequest, Handler},
    backend::POLICY,
    error::ApiError,
    item_wait::{self, Waited},
    route::Access,
};
use crate::{
    audit::Record,
    base::{clock::now, deadlines::OPERATION, json, times::before},
    config::Config,
    database::{attempt::Attempt, item_wait::ItemWait},
    operations::{
        Holders, Note, Operation, Refusal, Site, Unsure,
        arguments::{self, Given},
    },
    status::Handled,
};

/// The most bytes of a payload in an answer about one item.
const WHOLE: usize = 1 << 20;

/// The endpoint of an operation.
pub(super) const fn handler<O: Operation + 'static>() -> Handler {
    |request| Box::pin(answer::<O>(request))
}

async fn answer<O: Operation>(mut request: ApiRequest) -> Answer {
    let operation: O = request.operation().await?;
    operation.check().map_err(ApiError::Operation)?;
    let answer = operation.run(&request).await.map_err(failure)?;
    Ok(HttpResponse::Ok().json(answer))
}

/// The error of an operation.
pub(super) fn failure(error: anyhow::Error) -> ApiError {
    match error.downcast::<Refusal>() {
        Ok(refusal) => ApiError::Operation(refusal),
        Err(error) => {
            // What was done before it failed.
            let before = error.to_string();
            match error.downcast::<ApiError>() {
                Ok(ApiError::Unavailable(text)) if before != text => {
                    ApiError::Unavailable(format!("{before}: {text}"))
                }
                Ok(error) => error,
                Err(error) => ApiError::Unreadable(format!("{error:#}")),
            }
        }
    }
}

impl ApiRequest {
    /// The operation that is asked for.
    async fn operation<O: Operation>(&mut self) -> Result<O, ApiError> {
        let query = self.query.iter().map(|(name, text)| (name.to_owned(), Given::Text(text.to_owned())));
        let query: Vec<_> = query.collect();
        let body: Map<String, Value> = match O::ROUTE.has_long_body {
            true => self.long_json_if_any().await?,
            false => self.json_if_any().await?,
        };
        let body = body.into_iter().map(|(name, value)| (name, Given::Json(value)));
        let in_path = O::ROUTE.in_path().map(|name| (name, self.value(name).to_owned()));
        arguments::read(in_path, query.into_iter().chain(body)).map_err(ApiError::Operation)
    }
}

impl Site for ApiRequest {
    fn config(&self) -> Arc<Config> {
        self.app.backend.config()
    }

    fn commit<'s, 'a: 's>(
        &'s self,
        body: &'s mut (dyn FnMut(Transaction) -> Attempt<'a> + 's),
    ) -> LocalBoxFuture<'s, anyhow::Result<()>> {
        async move {
            self.hold_permit()?;
            Ok(self.app.backend.run(body).await?)
        }
        .boxed_local()
    }

    fn record(&self) -> Record {
        ApiRequest::record(self)
    }

    fn check_access(&self, queue: &str) -> anyhow::Result<()> {
        match self.route.access {
            Access::Scope(scope) => Ok(self.caller.check(scope, Some(queue))?),
            Access::Open | Access::AnyToken => {
                bail!("only operators and tokens with a scope learn names of queues")
            }
        }
    }

    fn database(&self) -> (&Database, RetryPolicy) {
        (&self.app.backend.daemon.db, POLICY)
    }

    fn wait_for<'s>(
        &'s self,
        change: LocalBoxFuture<'s, Result<(), RetryError>>,
        _: Unsure,
    ) -> LocalBoxFuture<'s, anyhow::Result<()>> {
        async move {
            self.hold_permit()?;
            Ok(change.await.map_err(ApiError::from)?)
        }
        .boxed_local()
    }

    fn until(&self) -> Option<Instant> {
        Some(Instant::now() + OPERATION)
    }

    fn most_of_payload(&self) -> usize {
        WHOLE
    }

    fn recorder(&self, queue: &[u8]) -> Recorder {
        self.app.backend.recorder(&String::from_utf8_lossy(queue))
    }

    fn notes(&self) -> Option<Note<'_>> {
        None
    }

    fn holders(&self, queue: &[u8]) -> Holders<'_> {
        let status = &self.app.backend.daemon.status;
        let handled = status.handled(&String::from_utf8_lossy(queue));
        Box::new(move |view| {
            let mut fields = Map::new();
            if let Some(worker) = view.lease.and_then(|lease| status.workers.of(lease.id)) {
                fields.insert("worker".to_owned(), json!(worker));
            }
            if let Some(Handled { consumer, lasted }) = handled.get(&view.id) {
                let started_at = before(now(), *lasted);
                let (started_at, for_seconds) = (json::time(started_at), lasted.as_secs_f64());
                let by =
                    json!({ "consumer": consumer, "started_at": started_at, "for_seconds": for_seconds });
                fields.insert("handled_by".to_owned(), by);
            }
            fields
        })
    }

    fn wait_for_item<'s>(
        &'s self,
        item: (&'s Queue, &'s ItemId),
        wait: &'s mut ItemWait,
        until: tokio::time::Instant,
    ) -> LocalBoxFuture<'s, anyhow::Result<bool>> {
        async move {
            // Others may ask the database meanwhile.
            drop(self.database_permit.take());
            Ok(item_wait::wait(self, item, wait, until).await? == Waited::Over)
        }
        .boxed_local()
    }

    fn pause_here<'s>(&'s self, queue: &'s [u8], paused: bool) -> LocalBoxFuture<'s, anyhow::Result<()>> {
        async move { Ok(self.pause_locally(&String::from_utf8_lossy(queue), paused).await?) }.boxed_local()
    }

    fn pausing_daemon(&self, queue: &[u8]) -> Option<String> {
        let name = &*String::from_utf8_lossy(queue);
        let is_paused = self.app.backend.config().queues.contains_key(name)
            && self.app.backend.daemon.status.pause_state(&Arc::from(name)).is_paused_locally();
        is_paused.then(|| "this daemon".to_owned())
    }
}
