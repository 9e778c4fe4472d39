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
    call::{Answer, Call},
    error::Failure,
    site::Site,
    ticker::{event, snapshot},
};

/// The most clients at a time.
pub(super) const FOLLOWERS: usize = 32;

/// How long a client may leave an event unread before its connection is closed.
const SLOW: Duration = Duration::from_secs(30);

/// So long the first event waits for the stats poller.
const PATIENCE: Duration = Duration::from_millis(500);

/// Events without end: `server` and `snapshot` at once, then a `snapshot` whenever something has changed, and `gone` when the daemon stops.
pub(super) async fn follow(call: Call) -> Answer {
    let mut response = HttpResponse::Ok();
    response.content_type("text/event-stream");
    // A proxy that gathers before it sends would keep them back.
    response.insert_header((header::HeaderName::from_static("x-accel-buffering"), "no"));
    if call.request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let site = call.site;
    let place = site.followers.clone().try_acquire_owned();
    let place = place.map_err(|_| Failure::Busy("too many follow this daemon"))?;
    let (sender, receiver) = mpsc::channel(1);
    rt::spawn(async move {
        let _viewer = site.door.status.viewers.add();
        // It ends when the client has gone, or takes nothing.
        let _ended = feed(&site, &sender).await;
        drop(place);
    });
    let events = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Ok(response.streaming(events.map(Ok::<_, std::convert::Infallible>)))
}

/// A client takes no more.
struct Gone;

async fn feed(site: &Arc<Site>, client: &mpsc::Sender<Bytes>) -> Result<(), Gone> {
    let mut events = site.ticker.events();
    send(client, event("server", &json!({ "read_only": site.config().http.read_only }))).await?;
    site.door.status.viewers.refresh(PATIENCE).await;
    send(client, snapshot(&site.door.status)).await?;
    let mut config = site.door.config.clone();
    config.mark_unchanged();
    loop {
        let event = tokio::select! {
            () = site.stopping.cancelled() => return send(client, event("gone", &json!({}))).await,
            () = client.closed() => return Err(Gone),
            Ok(()) = config.changed() => event("server", &json!({ "read_only": site.config().http.read_only })),
            Ok(()) = events.changed() => events.borrow_and_update().clone(),
        };
        send(client, event).await?;
    }
}

async fn send(client: &mpsc::Sender<Bytes>, event: Bytes) -> Result<(), Gone> {
    timeout(SLOW, client.send(event)).await.map_err(|_| Gone)?.map_err(|_| Gone)
}
