//! Handlers for payloads of JSON, parsed to a type.

use async_trait::async_trait;
use kvqueue_queue::Item;
use serde::de::DeserializeOwned;

use super::{BatchHandler, Context, Handler, Outcome, call::missing_outcome};

/// A handler for payloads of JSON, parsed to a type. Wrap it in [`Json`] to make it a
/// [`Handler`], which documents when it is called and what it must tolerate.
///
/// ```
/// use kvqueue::{Context, Item, Json, JsonHandler, Outcome, testing::Kit};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     article: String,
///     pieces: u32,
/// }
///
/// struct Ship;
///
/// #[kvqueue::async_trait]
/// impl JsonHandler for Ship {
///     type Payload = Order;
///
///     async fn handle(&self, order: Order, _: &Item, _: &Context) -> Outcome {
///         println!("{} pieces of {}", order.pieces, order.article);
///         Outcome::Done
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let kit = Kit::new(Json(Ship));
/// assert_eq!(kit.handle(r#"{"article": "bolt", "pieces": 7}"#).await, Outcome::Done);
/// let reason = "the payload is not what the handler expects: pieces: \
///               invalid type: string \"many\", expected u32 at line 1 column 36";
/// assert_eq!(kit.handle(r#"{"article": "bolt", "pieces": "many"}"#).await, Outcome::dead(reason));
/// # });
/// ```
///
/// A daemon gets it with [`Daemon::handler`](crate::Daemon::handler):
///
/// ```
/// # use kvqueue::{Context, Daemon, Item, Json, JsonHandler, Outcome, SettingsError};
/// # struct Ship;
/// # #[kvqueue::async_trait]
/// # impl JsonHandler for Ship {
/// #     type Payload = u32;
/// #     async fn handle(&self, _: u32, _: &Item, _: &Context) -> Outcome {
/// #         Outcome::Done
/// #     }
/// # }
/// let daemon = Daemon::default().handler("ship", |_| Ok::<_, SettingsError>(Json(Ship)));
/// ```
#[async_trait]
pub trait JsonHandler: Send + Sync + 'static {
    /// The type that payloads are parsed to. A payload that does not parse becomes a dead letter,
    /// with serde's error as its reason, and the handler does not get it.
    type Payload: DeserializeOwned + Send;

    /// As [`Handler::warning`].
    fn warning(&self) -> Option<String> {
        None
    }

    /// As [`Handler::limits_itself`].
    fn limits_itself(&self) -> bool {
        false
    }

    /// Handles one item. `item` has the payload as it was pushed, and what goes with it.
    async fn handle(&self, payload: Self::Payload, item: &Item, context: &Context) -> Outcome;
}

/// A handler for the items of one fetch, with payloads of JSON, parsed to a type. Wrap it in
/// [`Json`] to make it a [`BatchHandler`].
///
/// ```
/// use kvqueue::{Context, Item, Json, JsonBatchHandler, Outcome, testing::Kit};
///
/// struct Sum;
///
/// #[kvqueue::async_trait]
/// impl JsonBatchHandler for Sum {
///     type Payload = u64;
///
///     async fn handle(&self, numbers: Vec<(u64, &Item)>, _: &Context) -> Vec<Outcome> {
///         println!("{}", numbers.iter().map(|(number, _)| number).sum::<u64>());
///         vec![Outcome::Done; numbers.len()]
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let outcomes = Kit::batch(Json(Sum)).handle_all(["1", "two", "3"]).await;
/// assert!(matches!(outcomes[..], [Outcome::Done, Outcome::Dead(_), Outcome::Done]));
/// # });
/// ```
#[async_trait]
pub trait JsonBatchHandler: Send + Sync + 'static {
    /// As [`JsonHandler::Payload`].
    type Payload: DeserializeOwned + Send;

    /// As [`Handler::warning`].
    fn warning(&self) -> Option<String> {
        None
    }

    /// As [`Handler::limits_itself`].
    fn limits_itself(&self) -> bool {
        false
    }

    /// Handles the items whose payloads were parsed, one or more, in the order of the queue, and
    /// returns the outcome of each in the same order. Items without an outcome are retried.
    async fn handle(&self, items: Vec<(Self::Payload, &Item)>, context: &Context) -> Vec<Outcome>;
}

/// Makes a [`Handler`] of a [`JsonHandler`], and a [`BatchHandler`] of a [`JsonBatchHandler`].
#[derive(Clone, Copy, Debug)]
pub struct Json<H>(pub H);

#[async_trait]
impl<H: JsonHandler> Handler for Json<H> {
    fn warning(&self) -> Option<String> {
        self.0.warning()
    }

    fn limits_itself(&self) -> bool {
        self.0.limits_itself()
    }

    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        match parse(item) {
            Ok(payload) => self.0.handle(payload, item, context).await,
            Err(dead) => dead,
        }
    }
}

#[async_trait]
impl<H: JsonBatchHandler> BatchHandler for Json<H> {
    fn warning(&self) -> Option<String> {
        self.0.warning()
    }

    fn limits_itself(&self) -> bool {
        self.0.limits_itself()
    }

    async fn handle(&self, items: &[Item], context: &Context) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(items.len());
        let mut parsed = Vec::with_capacity(items.len());
        for item in items {
            match parse(item) {
                Ok(payload) => {
                    parsed.push((payload, item));
                    outcomes.push(None);
                }
                Err(dead) => outcomes.push(Some(dead)),
            }
        }
        let handled = if parsed.is_empty() { Vec::new() } else { self.0.handle(parsed, context).await };
        let mut handled = handled.into_iter();
        outcomes
            .into_iter()
            .map(|dead| dead.or_else(|| handled.next()).unwrap_or_else(missing_outcome))
            .collect()
    }
}

/// Parses a payload. An error makes the item a dead letter, since parsing would fail again.
fn parse<T: DeserializeOwned>(item: &Item) -> Result<T, Outcome> {
    let mut json = serde_json::Deserializer::from_slice(&item.payload);
    let dead = |path: &str, error: &serde_json::Error| {
        let path = if path == "." { String::new() } else { format!("{path}: ") };
        Outcome::dead(format_args!("the payload is not what the handler expects: {path}{error}"))
    };
    let payload = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| dead(&error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| dead(".", &error))?;
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Kit;

    /// Says nothing of what comes after a zero.
    struct Numbers;

    #[async_trait]
    impl JsonBatchHandler for Numbers {
        type Payload = u32;

        async fn handle(&self, items: Vec<(u32, &Item)>, _: &Context) -> Vec<Outcome> {
            assert!(items.iter().all(|(number, item)| number.to_string().as_bytes() == &item.payload[..]));
            let numbers = items.iter().map(|(number, _)| *number);
            numbers.take_while(|number| *number > 0).map(Outcome::retry).collect()
        }
    }

    fn dead(error: &str) -> Outcome {
        Outcome::dead(format!("the payload is not what the handler expects: {error}"))
    }

    #[tokio::test]
    async fn outcomes_of_a_batch_belong_to_their_items() {
        let kit = Kit::batch(Json(Numbers));
        let outcomes = kit.handle_all(["7", "x", "8", "", "0", "9"]).await;
        let expected = [
            Outcome::retry(7),
            dead("expected value at line 1 column 1"),
            Outcome::retry(8),
            dead("EOF while parsing a value at line 1 column 0"),
            missing_outcome(),
            missing_outcome(),
        ];
        assert_eq!(outcomes, expected);
    }

    #[tokio::test]
    async fn a_batch_without_a_payload_that_parses_does_not_reach_the_handler() {
        struct Never;

        #[async_trait]
        impl JsonBatchHandler for Never {
            type Payload = u32;

            async fn handle(&self, _: Vec<(u32, &Item)>, _: &Context) -> Vec<Outcome> {
                panic!("it is called");
            }
        }

        let outcomes = Kit::batch(Json(Never)).handle_all(["x"]).await;
        assert_eq!(outcomes, [dead("expected value at line 1 column 1")]);
    }

    #[tokio::test]
    async fn text_after_the_payload_is_an_error() {
        assert_eq!(
            Kit::batch(Json(Numbers)).handle("7 8").await,
            dead("trailing characters at line 1 column 3")
        );
    }
}
