//! Long answers: they have room until their clients have read them, and end if that takes too long.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    rt,
};
use bytes::Bytes;
use tokio::{task::JoinHandle, time::sleep};

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
    peer::Peer,
    room::{Place, SHORT},
};

/// How long a client may take to read any answer.
const AT_LEAST: Duration = Duration::from_secs(20);

/// How fast a client has to read what is longer, in bytes a second.
const RATE: usize = 64 << 10;

/// How much of an answer the connection copies at a time.
const PART: usize = 32 << 10;

impl ApiRequest {
    /// Reserves room for an answer of about this many bytes. It comes before a change that the client must learn of, such as a lease: the
    /// answer to a change is not refused afterwards.
    pub(super) fn reserve_answer(&self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= SHORT {
            return Ok(());
        }
        let Some(mut room) = self.answer_room.take() else { return Ok(()) };
        let has_room = room.grow_to(bytes);
        self.answer_room.set(Some(room));
        if has_room { Ok(()) } else { Err(full()) }
    }
}

fn full() -> ApiError {
    ApiError::Busy("too many long answers have not been read by their clients")
}

/// Has a long answer keep its room until the client has read it. Without room it is refused, unless it tells of a change.
pub(super) fn hold(
    answer: HttpResponse,
    mut room: Place,
    peer: Option<Arc<Peer>>,
    tells_of_change: bool,
) -> Answer {
    match answer.body().size() {
        BodySize::Sized(bytes) if bytes > SHORT as u64 => {}
        // A stream has a bound of its own.
        _ => return Ok(answer),
    }
    let (head, body) = answer.into_parts();
    let bytes = match body.try_into_bytes() {
        Ok(bytes) => bytes,
        Err(body) => return Ok(head.set_body(body)),
    };
    if !tells_of_change && !room.has_room_for(bytes.len()) {
        return Err(full());
    }
    room.set(bytes.len());
    let limit = peer.map(|peer| rt::spawn(cut_off(peer, patience(bytes.len()))));
    Ok(head.set_body(BoxBody::new(LongAnswer { bytes, _room: room, limit })))
}

/// How long a client may take to read this many bytes.
fn patience(bytes: usize) -> Duration {
    AT_LEAST + Duration::from_secs((bytes / RATE) as u64)
}

async fn cut_off(peer: Arc<Peer>, patience: Duration) {
    sleep(patience).await;
    tracing::debug!(event = "slow_reader", "a client reads its answer too slowly; its connection ends");
    peer.cut_off();
}

/// An answer that is being sent.
struct LongAnswer {
    /// What is not sent yet.
    bytes: Bytes,
    _room: Place,
    /// The task that ends the connection of a client that is too slow.
    limit: Option<JoinHandle<()>>,
}

impl Drop for LongAnswer {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit.abort();
        }
    }
}

impl MessageBody for LongAnswer {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes.len() as u64)
    }

    /// Gives a part at a time: the connection copies what it gets, and drops a body that has given all.
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let part = self.bytes.len().min(PART);
        let part = self.bytes.split_to(part);
        Poll::Ready((!part.is_empty()).then_some(Ok(part)))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io::Read, os::unix::net::UnixStream};

    use actix_web::rt::System;

    use super::*;
    use crate::http::{
        guard::Caller,
        room::{ANSWERS, Room},
    };

    const LENGTH: usize = 200_000;

    fn held(room: &Arc<Room>, peer: Option<Arc<Peer>>, tells_of_change: bool) -> Answer {
        hold(HttpResponse::Ok().body(vec![b'x'; LENGTH]), room.place(&Caller::Anyone), peer, tells_of_change)
    }

    #[test]
    fn a_long_answer_has_its_room_until_its_last_part_is_taken() {
        let room = Room::new(ANSWERS);
        let mut body = Box::pin(held(&room, None, false).unwrap().into_body());
        assert_eq!(body.size(), BodySize::Sized(LENGTH as u64));
        let mut taken = 0;
        System::new().block_on(async {
            while let Some(part) = poll_fn(|cx| body.as_mut().poll_next(cx)).await {
                let part = part.unwrap();
                assert!(part.len() <= PART && room.held() == LENGTH);
                taken += part.len();
            }
        });
        assert_eq!(taken, LENGTH);
        drop(body);
        assert_eq!(room.held(), 0);
    }

    #[test]
    fn without_room_only_the_answer_to_a_change_is_given() {
        let room = Room::new(ANSWERS);
        let mut others = room.place(&Caller::Anyone);
        others.set(ANSWERS.all);
        assert!(matches!(held(&room, None, false), Err(ApiError::Busy(_))));
        let answer = held(&room, None, true).unwrap();
        assert_eq!(room.held(), ANSWERS.all + LENGTH);
        let short = hold(HttpResponse::Ok().body("x"), room.place(&Caller::Anyone), None, false).unwrap();
        assert_eq!(short.body().size(), BodySize::Sized(1));
        drop(answer);
        assert_eq!(room.held(), ANSWERS.all);
    }

    #[test]
    fn a_client_that_reads_too_slowly_is_cut_off_and_one_that_has_read_all_is_not() {
        assert_eq!(patience(0), AT_LEAST);
        assert_eq!(patience(10 * RATE), AT_LEAST + Duration::from_secs(10));
        System::new().block_on(async {
            let (server, mut client) = UnixStream::pair().unwrap();
            let peer = Arc::new(Peer::of(&server).unwrap());
            let room = Room::new(ANSWERS);
            drop(held(&room, Some(peer.clone()), false).unwrap());
            while Arc::strong_count(&peer) > 1 {
                tokio::task::yield_now().await;
            }
            assert!(!peer.is_gone(), "nothing is left of the limit");
            cut_off(peer, Duration::from_millis(1)).await;
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "its connection ends");
        });
    }
}
