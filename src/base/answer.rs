//! Asking a task by a message that has a place for the answer.

use tokio::sync::oneshot;

/// Waits for the answer to a message, or until its receiver has ended: then `None`, unless the answer came before.
///
/// The answer's place alone would not tell that the receiver has ended. A message that is sent at the moment at which the receiver is dropped may
/// stay in tokio's channel, and the place with it, until the last sender is gone; and one who waits here has a sender.
pub(crate) async fn answer<T>(
    mut answer: oneshot::Receiver<T>,
    receiver_ends: impl Future<Output = ()>,
) -> Option<T> {
    tokio::select! {
        biased;
        answered = &mut answer => answered.ok(),
        () = receiver_ends => answer.try_recv().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_message_that_stays_in_the_channel_of_an_ended_receiver_is_not_waited_for() {
        let (requests, mut received) = mpsc::unbounded_channel();
        let (place, waits) = oneshot::channel::<u32>();
        requests.send(()).unwrap();
        received.close();
        // As if it were in the channel.
        let _stays = place;
        assert_eq!(answer(waits, requests.closed()).await, None);
    }

    #[tokio::test]
    async fn an_answer_that_came_before_the_receiver_ended_counts() {
        let (place, waits) = oneshot::channel();
        place.send(7).unwrap();
        assert_eq!(answer(waits, ready(())).await, Some(7));
    }

    #[tokio::test]
    async fn an_answer_is_waited_for_while_there_is_a_receiver() {
        let (place, waits) = oneshot::channel();
        let mut waiting = Box::pin(answer(waits, pending()));
        assert_eq!(waiting.as_mut().now_or_never(), None);
        place.send(7).unwrap();
        assert_eq!(waiting.await, Some(7));
    }
}
