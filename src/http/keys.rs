//! The keys by which the daemon recognizes what it has given to clients: sessions of browsers, and ids of leases.
//!
//! The daemons of a database share a random key in the database, so a client can go on at another daemon, and after a
//! restart. Until that is read, and while the database cannot store it because its disk is full, a daemon signs with a key of
//! its own, which it keeps in memory.

use std::{convert::Infallible, future::pending, time::Duration};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{backend::Backend, error::ApiError};
use crate::access::{KeyStore, SharedKey};

/// How long a request waits for the first try to read the shared key.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause after a try that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// A key for signatures. Never shown.
#[derive(Clone)]
pub(super) struct Key(SharedKey);

/// The key that the daemons share, as far as it is known.
#[derive(Clone)]
enum Shared {
    /// Nobody has tried to read it.
    Unread,
    /// It could not be read, and none could be stored.
    Missing,
    Known(Key),
}

/// The keys of a daemon.
pub(super) struct Keys {
    own: Key,
    shared: watch::Sender<Shared>,
}

impl Key {
    /// A signature with this key. Signatures for different purposes have nothing in common.
    pub(super) fn sign(&self, purpose: &str) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.chain_update(purpose).chain_update([0])
    }

    /// Random bytes of the system.
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = SharedKey::default();
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

impl Keys {
    pub(super) fn new(own: Key) -> Self {
        Self { own, shared: watch::Sender::new(Shared::Unread) }
    }

    /// The key that only this process has.
    pub(super) fn own(&self) -> &Key {
        &self.own
    }

    /// The key to sign with, after the first try to read the shared one.
    pub(super) async fn current(&self) -> Key {
        match self.tried().await {
            Shared::Known(key) => key,
            Shared::Unread | Shared::Missing => self.own.clone(),
        }
    }

    /// What a check finds with the key that something was signed with. An error if it was perhaps signed with the shared one,
    /// and that is not known.
    pub(super) async fn find<T>(&self, check: impl Fn(&Key) -> Option<T>) -> Result<Option<T>, ApiError> {
        let shared = self.tried().await;
        match (check(&self.own), shared) {
            (Some(found), _) => Ok(Some(found)),
            (None, Shared::Known(key)) => Ok(check(&key)),
            (None, Shared::Unread | Shared::Missing) => {
                let problem = "the database has not given the key of sessions and leases yet";
                Err(ApiError::Unavailable(problem.to_owned()))
            }
        }
    }

    /// The same, with the keys that are known now.
    pub(super) fn find_now<T>(&self, check: impl Fn(&Key) -> Option<T>) -> Option<T> {
        let shared = self.shared.borrow().clone();
        let by_shared = if let Shared::Known(key) = shared { check(&key) } else { None };
        by_shared.or_else(|| check(&self.own))
    }

    async fn tried(&self) -> Shared {
        let mut shared = self.shared.subscribe();
        let tried = timeout(PATIENCE, shared.wait_for(|shared| !matches!(shared, Shared::Unread))).await;
        tried.map_or(Shared::Unread, |tried| tried.map_or(Shared::Unread, |shared| shared.clone()))
    }

    /// Reads the shared key, or makes it. Does not return.
    pub(super) async fn read(&self, backend: &Backend) -> Infallible {
        loop {
            let (store, new) = (&KeyStore::new(backend.config().prefix.as_bytes()), &self.own.0);
            let read = backend.run(|tr| async move {
                let read = store.read_or_make(&tr, new).await;
                (tr, read)
            });
            match read.await {
                Ok(key) => {
                    self.shared.send_replace(Shared::Known(Key(key)));
                    return pending().await;
                }
                Err(error) => {
                    self.shared.send_replace(Shared::Missing);
                    tracing::debug!(event = "http_key_unread", %error, "cannot read or store the key of sessions and leases");
                }
            }
            sleep(PAUSE).await;
        }
    }
}
