//! The client that requests are sent with, and what its errors mean.

use std::{
    env, fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Certificate, Client, Identity, Response, Url, redirect::Policy};
use tokio_util::sync::CancellationToken;

use super::{
    addresses::PublicOnly,
    answer::{Answer, Ending},
    proxies,
    secrets::{secret_file, unreadable, wrong},
    settings::{HttpSettings, Proxy},
};
use crate::{
    base::{causes::root_cause, tls},
    handlers::SettingsError,
};

/// Idle connections are closed after this time. It is shorter than the time after which common
/// servers close them (5 s and more), since a request on a connection that is being closed fails.
const IDLE: Duration = Duration::from_secs(4);

/// The most idle connections that are kept.
const MOST_IDLE: usize = 64;

/// How long the rest of a successful answer is read, so that its connection can be used again.
const DRAIN: Duration = Duration::from_secs(1);

/// The end of a call.
#[derive(Debug)]
pub(super) enum Reply {
    /// There was no connection, so the target does not have the item.
    NotReached(String),
    /// The target may have the item, and has not answered.
    NoAnswer(String),
    /// The item was cancelled before its outcome was known.
    Cancelled,
    Answer(Answer),
}

/// Makes a client, from the files that the settings name.
pub(super) fn build(settings: &HttpSettings) -> Result<Client, SettingsError> {
    tls::install_provider();
    let mut builder = Client::builder()
        .user_agent(concat!("kvqueue/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .connect_timeout(settings.connect_timeout())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MOST_IDLE);
    // Of itself it would use the environment's.
    builder = builder.no_proxy();
    let proxy = match settings.proxy() {
        Proxy::None => None,
        Proxy::Environment => proxies::of_environment(&settings.url()?, |name| env::var(name).ok())?,
        Proxy::At(url) => Some(reqwest::Proxy::all(url).map_err(|error| {
            let problem = format!("{}; write \"http://HOST:PORT\"", root_cause(&error));
            SettingsError::text("proxy", url, problem)
        })?),
    };
    if let Some(proxy) = proxy {
        builder = builder.proxy(proxy);
    }
    if settings.forbid_private_addresses {
        builder = builder.dns_resolver(Arc::new(PublicOnly));
    }
    if let Some(path) = &settings.ca_file {
        builder = builder.tls_certs_only(certificates(path)?);
    } else if !settings.may_need_tls() {
        // A machine may have no certificates, and needs none then.
        builder = builder.tls_certs_only([]);
    }
    if let (Some(certificate), Some(key)) = (&settings.client_certificate, &settings.client_key) {
        builder = builder.identity(identity(certificate, key)?);
    }
    builder.build().map_err(|error| {
        let fix = "install the system's certificates (ca-certificates), or name a file with ca-file";
        SettingsError(format!("cannot prepare TLS: {}; {fix}", root_cause(&error)))
    })
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, SettingsError> {
    let key = "ca-file";
    let bytes = fs::read(path).map_err(|error| unreadable(key, path, &error))?;
    let found = Certificate::from_pem_bundle(&bytes).map_err(|error| root_cause(&error));
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong(key, path, "it has no certificate", "name a file with certificates in PEM")),
        Err(error) => Err(wrong(key, path, error, "name a file with certificates in PEM")),
    }
}

fn identity(certificate: &Path, key: &Path) -> Result<Identity, SettingsError> {
    let mut pem =
        fs::read(certificate).map_err(|error| unreadable("client-certificate", certificate, &error))?;
    pem.push(b'\n');
    pem.extend(secret_file("client-key", key)?.into_bytes());
    Identity::from_pem(&pem).map_err(|error| {
        let fix = "name files with a certificate and its key in PEM";
        wrong("client-certificate", certificate, root_cause(&error), fix)
    })
}

/// Sends a request and reads its answer, until this time at the latest, or until the item is
/// cancelled. Then its connection is closed.
pub(super) async fn exchange(
    request: reqwest::RequestBuilder,
    url: &Url,
    read: Reading<'_>,
    on_head: impl FnOnce(&Response),
) -> Reply {
    let began = Instant::now();
    let late = || Reply::NoAnswer(format!("no answer in {} ms", began.elapsed().as_millis()));
    let sent = tokio::select! {
        sent = tokio::time::timeout_at(read.until.into(), request.send()) => sent,
        () = read.cancelled.cancelled() => return Reply::Cancelled,
    };
    let response = match sent {
        Err(_) => return late(),
        Ok(Err(error)) if error.is_connect() || error.is_builder() => {
            let target = HttpSettings::target(url);
            return Reply::NotReached(format!("cannot connect to {target}: {}", root_cause(&error)));
        }
        Ok(Err(error)) => {
            return Reply::NoAnswer(format!("no answer: {}", root_cause(&error)));
        }
        Ok(Ok(response)) => response,
    };
    on_head(&response);
    let mut answer = Answer::of(&response);
    let is_success = response.status().is_success();
    let is_drained = is_success && !read.whole;
    let until = if is_drained { read.until.min(Instant::now() + DRAIN) } else { read.until };
    tokio::select! {
        it = body(response, read.most, until) => (answer.body, answer.ending) = it,
        () = read.cancelled.cancelled() => {
            // The status alone decides, unless the body has the outcomes.
            if is_success && read.whole {
                return Reply::Cancelled;
            }
            answer.ending = Ending::Broken("the item was cancelled".to_owned());
        }
    }
    Reply::Answer(answer)
}

/// How much of an answer is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'c> {
    pub(super) until: Instant,
    /// Ends it earlier.
    pub(super) cancelled: &'c CancellationToken,
    /// In bytes.
    pub(super) most: usize,
    /// Whether the body of a successful answer matters.
    pub(super) whole: bool,
}

/// The body, or the beginning of it.
async fn body(mut response: Response, most: usize, until: Instant) -> (Vec<u8>, Ending) {
    let mut body = Vec::new();
    loop {
        match tokio::time::timeout_at(until.into(), response.chunk()).await {
            Err(_) => return (body, Ending::Broken("it did not end in time".to_owned())),
            Ok(Err(error)) => return (body, Ending::Broken(root_cause(&error))),
            Ok(Ok(None)) => return (body, Ending::Whole),
            Ok(Ok(Some(chunk))) => {
                let room = most.saturating_sub(body.len());
                body.extend_from_slice(&chunk[..room.min(chunk.len())]);
                if chunk.len() > room {
                    return (body, Ending::TooLong);
                }
            }
        }
    }
}
