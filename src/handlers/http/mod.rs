//! `http`: posts each item, or each batch, to a URL.
//!
//! `docs/workers/webhooks.md` documents the requests and the answers, and `docs/decisions/0030-webhooks.md`
//! when an outage of the target begins and ends.

mod addresses;
mod answer;
mod batch;
mod client;
mod health;
mod message;
mod proxies;
mod secrets;
mod settings;
#[cfg(test)]
mod tests;
mod watched;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use async_trait::async_trait;
use kvqueue_queue::{Item, MAX_RESULT};
use reqwest::{
    Client, Url,
    header::{AUTHORIZATION, CONTENT_LENGTH, HeaderName, HeaderValue},
};

use self::{
    answer::Failure,
    client::{Reading, Reply, exchange},
    health::Health,
    message::Message,
    secrets::Keys,
    settings::{HttpSettings, ResultFrom},
    watched::Watched,
};
use super::{AnyHandler, BatchHandler, Context, Handler, Outcome, Settings, SettingsError};
use crate::base::{clock, times::between};

/// Posts items to a URL. One value for all consumers of a queue.
#[derive(Debug)]
pub(crate) struct Webhook {
    settings: HttpSettings,
    url: Url,
    client: Watched<Client>,
    keys: Option<Watched<Keys>>,
    authorization: Option<Watched<HeaderValue>>,
    health: Health,
}

/// The handler of a queue with these settings.
pub(crate) fn build(settings: &Settings) -> Result<AnyHandler, SettingsError> {
    let webhook = Arc::new(Webhook::from_config(settings)?);
    Ok(if webhook.settings.batch { AnyHandler::Batch(webhook) } else { AnyHandler::Each(webhook) })
}

/// `connect-timeout` of these settings; none if they are wrong, which [`build`] reports.
pub(crate) fn connect_timeout(settings: &Settings) -> Option<Duration> {
    HttpSettings::read(settings).ok().map(|settings| settings.connect_timeout())
}

impl Webhook {
    fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        let settings = HttpSettings::read(settings)?;
        let keys = settings.signing_key_file.clone().map(|path| watch(path, Keys::read)).transpose()?;
        let authorization = settings
            .authorization_file
            .clone()
            .map(|path| watch(path, secrets::authorization))
            .transpose()?;
        let files = [&settings.ca_file, &settings.client_certificate, &settings.client_key];
        let files: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
        let of_client = settings.clone();
        let client = Watched::new(files, move || client::build(&of_client))?;
        let (url, health) = (settings.url()?, Health::new(settings.outage_after));
        Ok(Self { settings, url, client, keys, authorization, health })
    }

    /// Sends a message and waits for the answer.
    async fn post(&self, message: Message, context: &Context) -> Reply {
        let until = self.until(context);
        let Message { id, mut headers, body } = message;
        let timestamp = between(UNIX_EPOCH, clock::now()).as_secs().to_string();
        let signature = match &self.keys {
            Some(keys) => Some(keys.get().await.sign(&id, &timestamp, &body)),
            None => None,
        };
        // An empty body has no length otherwise, and some servers refuse that.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let standard = [
            ("webhook-id", Some(id)),
            ("webhook-timestamp", Some(timestamp)),
            ("webhook-signature", signature),
        ];
        for (name, value) in standard {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.get().await);
        }
        let request = self.client.get().await.post(self.url.clone()).headers(headers).body(body);
        let mut most = usize::try_from(self.settings.max_response).unwrap_or(usize::MAX);
        let has_result = self.settings.result == ResultFrom::Body;
        if has_result {
            // One byte more shows that it is too long.
            most = most.max(MAX_RESULT + 1);
        }
        let whole = self.settings.batch || has_result;
        let reading = Reading { until, cancelled: &context.cancelled, most, whole };
        exchange(request, &self.url, reading, |response| {
            // Of a batch, the answer's body has to be read first.
            if response.status().is_success() && !self.settings.batch {
                self.works(context);
            }
        })
        .await
    }

    /// The target works: an outage is over.
    fn works(&self, context: &Context) {
        self.health.works();
        context.works();
    }

    /// When a call that begins now gives up.
    fn until(&self, context: &Context) -> Instant {
        let now = Instant::now();
        let left = context.deadline.map(|deadline| deadline.saturating_duration_since(now));
        now + left.map_or(self.settings.timeout, |left| left.min(self.settings.timeout))
    }

    /// The outcome of a call about this item, or about a batch that begins with it.
    fn outcome(&self, reply: &Reply, item: &Item) -> Outcome {
        let answer = match reply {
            Reply::NotReached(reason) => return Outcome::unavailable(reason),
            Reply::NoAnswer(reason) => return self.failed(item, Failure::of_target(reason.clone())),
            Reply::Cancelled => return Outcome::retry("the connection was closed: the item was cancelled"),
            Reply::Answer(answer) => answer,
        };
        match answer.outcome(&self.settings) {
            Ok(Outcome::Done) if self.settings.result == ResultFrom::Body => match answer.result() {
                Ok(result) => {
                    self.health.works();
                    Outcome::DoneWith(result)
                }
                Err(reason) => self.failed(item, Failure::of_target(reason)),
            },
            Ok(outcome) => {
                self.health.works();
                outcome
            }
            Err(failure) => self.failed(item, failure),
        }
    }

    /// The outcome of an item that the target got and did not handle: a failed attempt, unless the
    /// target is out.
    fn failed(&self, item: &Item, Failure { reason, pause, blames }: Failure) -> Outcome {
        match (self.health.fails(&item.id, blames, Instant::now()), pause) {
            (Some(postponed), pause) => {
                Outcome::UnavailableAfter(postponed.max(pause.unwrap_or_default()), reason)
            }
            (None, Some(pause)) => Outcome::RetryAfter(pause, reason),
            (None, None) => Outcome::Retry(reason),
        }
    }
}

/// A secret, and the file that it comes from.
fn watch<T: Clone + Send + 'static>(
    path: PathBuf,
    read: fn(&std::path::Path) -> Result<T, SettingsError>,
) -> Result<Watched<T>, SettingsError> {
    Watched::new([path.clone()], move || read(&path))
}

#[async_trait]
impl Handler for Webhook {
    fn warning(&self) -> Option<String> {
        self.settings.warning()
    }

    /// So that the reason of a call whose time is up names the target.
    fn limits_itself(&self) -> bool {
        true
    }

    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let reply = self.post(Message::of_item(item, context), context).await;
        self.outcome(&reply, item)
    }
}

#[async_trait]
impl BatchHandler for Webhook {
    fn warning(&self) -> Option<String> {
        self.settings.warning()
    }

    fn limits_itself(&self) -> bool {
        true
    }

    async fn handle(&self, items: &[Item], context: &Context) -> Vec<Outcome> {
        let Some(first) = items.first() else { return Vec::new() };
        let reply = self.post(Message::of_batch(items, context), context).await;
        let same = |outcome: Outcome| vec![outcome; items.len()];
        match &reply {
            Reply::Answer(answer) if answer.status.is_success() => match batch::outcomes(items, answer) {
                Ok(outcomes) => {
                    self.works(context);
                    outcomes
                }
                Err(reason) => same(self.failed(first, Failure::of_target(reason))),
            },
            _ => same(self.outcome(&reply, first)),
        }
    }
}
