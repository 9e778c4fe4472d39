//! `GET /api/v1/events`: the status as it changes, for the page and other clients.

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpResponse,
    http::{Method, header},
    rt,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

use super::{
    api_request::{Answer, ApiRequest},
    app_state::AppState,
    error::ApiError,
    guard::Caller,
    ticker::{event, snapshot},
};

/// How long a client may leave an event unread before its connection is closed.
const SLOW: Duration = Duration::from_secs(30);

/// So long the first event waits for the stats poller.
const PATIENCE: Duration = Duration::from_millis(500);

/// Events without end: `server` and `snapshot` at once, then a `snapshot` whenever something has changed, and `gone` when the daemon stops.
pub(super) async fn follow(request: ApiRequest) -> Answer {
    let mut response = HttpResponse::Ok();
    response.content_type("text/event-stream");
    // A proxy that gathers before it sends would keep them back.
    response.insert_header((header::HeaderName::from_static("x-accel-buffering"), "no"));
    if request.http.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let (app, caller) = (request.app, request.caller);
    let place = app.followers.clone().try_acquire_owned();
    let place = place.map_err(|_| ApiError::Busy("too many follow this daemon"))?;
    let (sender, receiver) = mpsc::channel(1);
    rt::spawn(async move {
        let _viewer = app.backend.daemon.status.viewers.add();
        // It ends when the client has gone, or takes nothing.
        let _ended = feed(&app, &caller, &sender).await;
        drop(place);
    });
    let events = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Ok(response.streaming(events.map(Ok::<_, std::convert::Infallible>)))
}

/// A client takes no more, or may get no more.
struct Gone;

async fn feed(app: &Arc<AppState>, caller: &Caller, client: &mpsc::Sender<Bytes>) -> Result<(), Gone> {
    let signed_in = !matches!(caller, Caller::Anyone);
    let mut events = app.ticker.events();
    let server = || {
        event("server", &json!({ "read_only": app.backend.config().http.read_only, "signed_in": signed_in }))
    };
    send(client, server()).await?;
    app.backend.daemon.status.viewers.refresh(PATIENCE).await;
    send(client, snapshot(&app.backend.daemon.status)).await?;
    let mut config = app.backend.daemon.config.clone();
    config.mark_unchanged();
    loop {
        let event = tokio::select! {
            () = app.backend.stopping.cancelled() => return send(client, event("gone", &json!({}))).await,
            () = client.closed() => return Err(Gone),
            Ok(()) = config.changed() => server(),
            Ok(()) = events.changed() => events.borrow_and_update().clone(),
        };
        // While the database is silent, it is not known to be revoked.
        if let Err(ApiError::Unauthorized(_)) = app.check_still_known(caller).await {
            return Err(Gone);
        }
        send(client, event).await?;
    }
}

async fn send(client: &mpsc::Sender<Bytes>, event: Bytes) -> Result<(), Gone> {
    timeout(SLOW, client.send(event)).await.map_err(|_| Gone)?.map_err(|_| Gone)
}
