//! The access tokens as this daemon knows them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout_at};

use super::{
    backend::Backend,
    error::ApiError,
    guard::{self, Caller},
};
use crate::{
    access::{AccessToken, TokenStore},
    base::clock,
};

/// Older knowledge is read again, while requests go on with it.
const FRESH: Duration = Duration::from_secs(1);

/// Requests wait for the read if their knowledge is older than this: a token that is revoked is refused after this time.
const GOOD: Duration = Duration::from_millis(1_500);

/// How long they wait for one read.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the tokens that were read last are relied on while the database does not answer. Nobody can revoke one meanwhile.
const RELIED_ON: Duration = Duration::from_secs(300);

/// How often the use of a token is stored.
const USE_STORED_EVERY: Duration = Duration::from_secs(60);

/// All tokens, as the database had them a moment ago.
#[derive(Debug)]
pub(super) struct TokenCache {
    known: Mutex<Known>,
    /// Changes when a read ends.
    ends: watch::Sender<()>,
}

impl Default for TokenCache {
    fn default() -> Self {
        Self { known: Mutex::default(), ends: watch::Sender::new(()) }
    }
}

#[derive(Debug, Default)]
struct Known {
    /// When the last successful read began.
    read_at: Option<Instant>,
    /// The database's count of changes at that time.
    changes: Vec<u8>,
    by_id: HashMap<String, Arc<AccessToken>>,
    /// When the read that is under way began.
    reading: Option<Instant>,
    /// When the last read began.
    began: Option<Instant>,
    /// Why the last read failed, and when.
    failed: Option<(Instant, ApiError)>,
    /// When the use of a token was last stored.
    stored: HashMap<String, Instant>,
}

/// What a request does about the age of the knowledge.
#[derive(Debug)]
enum Step {
    /// Uses it.
    Use,
    /// Has it read, and decides again.
    Read,
    /// Waits for the end of the read that is under way; until this time, if there is one.
    Wait(Option<Instant>),
    Fail(ApiError),
}

impl TokenCache {
    /// The token that a client sends, if it is one and has not expired.
    pub(super) async fn find(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        text: &str,
    ) -> Result<Option<Arc<AccessToken>>, ApiError> {
        self.get(backend, AccessToken::id_of(text), |token| token.is(text)).await
    }

    /// The token with this id, if there is one and it has not expired.
    pub(super) async fn with_id(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        id: &str,
    ) -> Result<Option<Arc<AccessToken>>, ApiError> {
        self.get(backend, id, |_| true).await
    }

    /// The token that a client sends, by a read that begins after this call. All clients share the reads, of which
    /// there are at most ten a second.
    pub(super) async fn find_new(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        text: &str,
    ) -> Result<Option<Arc<AccessToken>>, ApiError> {
        let asked = Instant::now();
        self.follow(backend, |known, now| known.step_to_new(asked, now)).await?;
        Ok(self.used(backend, AccessToken::id_of(text), |token| token.is(text)))
    }

    /// The token that a client sends, as far as it is known without the database.
    pub(super) fn known(&self, text: &str) -> Option<Arc<AccessToken>> {
        self.lock().valid(AccessToken::id_of(text), |token| token.is(text))
    }

    /// The token with this id, as far as it is known without the database.
    pub(super) fn known_with_id(&self, id: &str) -> Option<Arc<AccessToken>> {
        self.lock().valid(id, |_| true)
    }

    async fn get(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        id: &str,
        is: impl Fn(&AccessToken) -> bool,
    ) -> Result<Option<Arc<AccessToken>>, ApiError> {
        self.follow(backend, Known::step).await?;
        Ok(self.used(backend, id, is))
    }

    /// A token that a request uses. Notes that, now and then.
    fn used(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        id: &str,
        is: impl Fn(&AccessToken) -> bool,
    ) -> Option<Arc<AccessToken>> {
        let mut known = self.lock();
        let found = known.valid(id, is);
        if let Some(token) = &found
            && known.stored.get(id).is_none_or(|at| at.elapsed() >= USE_STORED_EVERY)
        {
            known.stored.insert(id.to_owned(), Instant::now());
            note_use(backend, token.clone());
        }
        found
    }

    /// Takes steps until the knowledge can be used.
    async fn follow(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        step: impl Fn(&Known, Instant) -> Step,
    ) -> Result<(), ApiError> {
        loop {
            let mut ends = self.ends.subscribe();
            let next = step(&self.lock(), Instant::now());
            match next {
                Step::Use => {
                    self.read_if_old(backend);
                    return Ok(());
                }
                Step::Read => self.read(backend),
                // The sender lives as long as `self`.
                Step::Wait(None) => drop(ends.changed().await),
                Step::Wait(Some(until)) => drop(timeout_at(until.into(), ends.changed()).await),
                Step::Fail(error) => return Err(error),
            }
        }
    }

    fn read_if_old(self: &Arc<Self>, backend: &Arc<Backend>) {
        let is_old = self.lock().is_old(Instant::now());
        if is_old {
            self.read(backend);
        }
    }

    /// Reads in the background, unless a read is under way.
    fn read(self: &Arc<Self>, backend: &Arc<Backend>) {
        let began = Instant::now();
        let mut known = self.lock();
        if known.reading.is_some() {
            return;
        }
        (known.reading, known.began) = (Some(began), Some(began));
        let before = known.read_at.map(|_| known.changes.clone());
        drop(known);
        let reading = Reading { cache: self.clone(), backend: backend.clone(), began, result: None };
        drop(backend.spawn(reading.run(before)));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn valid(&self, id: &str, is: impl Fn(&AccessToken) -> bool) -> Option<Arc<AccessToken>> {
        let now = clock::now();
        self.by_id.get(id).filter(|token| is(token) && !token.is_expired(now)).cloned()
    }

    /// Whether to read again. After a failure the next read waits, too.
    fn is_old(&self, now: Instant) -> bool {
        let last = self.failed.as_ref().map(|(at, _)| *at).max(self.read_at);
        self.reading.is_none() && last.is_none_or(|last| now.duration_since(last) >= FRESH)
    }

    /// The next step of a request with a token that may be known.
    fn step(&self, now: Instant) -> Step {
        let age = self.read_at.map(|at| now.duration_since(at));
        let is_relied_on = age.is_some_and(|age| age < RELIED_ON);
        if age.is_some_and(|age| age < GOOD) || (is_relied_on && self.failed.is_some()) {
            return Step::Use;
        }
        match (self.reading, &self.failed) {
            (Some(_), _) if !is_relied_on => Step::Wait(None),
            (Some(began), _) if now < began + PATIENCE => Step::Wait(Some(began + PATIENCE)),
            (Some(_), _) => Step::Use,
            (None, Some((at, error))) if now.duration_since(*at) < FRESH => Step::Fail(error.clone()),
            (None, _) => Step::Read,
        }
    }

    /// The next step of a request that asked at this time, with a token that is not known.
    fn step_to_new(&self, asked: Instant, now: Instant) -> Step {
        if self.read_at.is_some_and(|at| at >= asked) {
            return Step::Use;
        }
        match (self.reading, &self.failed, self.began) {
            (Some(_), _, _) => Step::Wait(None),
            (None, Some((at, error)), _) if now.duration_since(*at) < FRESH => Step::Fail(error.clone()),
            (None, _, Some(began)) if now < began + guard::LOOK => Step::Wait(Some(began + guard::LOOK)),
            (None, ..) => Step::Read,
        }
    }
}

/// The count of changes, and all tokens if it is another one than before.
type Read = (Vec<u8>, Option<Vec<AccessToken>>);

/// A read that is under way. Dropping it ends it.
struct Reading {
    cache: Arc<TokenCache>,
    backend: Arc<Backend>,
    began: Instant,
    result: Option<Result<Read, ApiError>>,
}

impl Reading {
    /// Takes no database permit: there is one read at a time, and pushes must not make it fail.
    async fn run(mut self, before: Option<Vec<u8>>) {
        let (store, before) = (&self.backend.token_store(), &before);
        let read = self.backend.run(|tr| async move {
            let read = async {
                let changes = store.changes(&tr).await?;
                let is_same = before.as_ref() == Some(&changes);
                Ok((changes, if is_same { None } else { Some(store.list(&tr).await?) }))
            };
            let read = read.await;
            (tr, read)
        });
        self.result = Some(read.await);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let stopped = || Err(ApiError::Unavailable("the access tokens cannot be read".to_owned()));
        let mut known = self.cache.lock();
        known.reading = None;
        match self.result.take().unwrap_or_else(stopped) {
            Ok((changes, tokens)) => {
                (known.read_at, known.changes, known.failed) = (Some(self.began), changes, None);
                if let Some(tokens) = tokens {
                    known.by_id =
                        tokens.into_iter().map(|token| (token.id.clone(), Arc::new(token))).collect();
                    let Known { stored, by_id, .. } = &mut *known;
                    stored.retain(|id, _| by_id.contains_key(id));
                }
            }
            Err(error) => known.failed = Some((Instant::now(), error)),
        }
        drop(known);
        self.cache.ends.send_replace(());
    }
}

/// Stores that a token is used now. The request does not wait for it.
fn note_use(backend: &Arc<Backend>, token: Arc<AccessToken>) {
    let shared = backend.clone();
    drop(backend.spawn(async move {
        let (store, id): (&TokenStore, &str) = (&shared.token_store(), &token.id);
        let noted = async {
            let _permit = shared.permit(&Caller::Token(token.clone()))?;
            let write = shared.run(|tr| async move {
                let noted = store.note_use(&tr, id, clock::now()).await;
                (tr, noted)
            });
            write.await
        };
        if let Err(error) = noted.await {
            tracing::debug!(event = "token_use_unstored", %error, "cannot store when a token was last used");
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn failure(at: Instant) -> Option<(Instant, ApiError)> {
        Some((at, ApiError::Unavailable("the database does not answer".to_owned())))
    }

    #[test]
    fn requests_wait_only_for_a_database_that_may_know_better() {
        let read = Instant::now();
        let known = |failed, reading| Known { read_at: Some(read), failed, reading, ..Known::default() };
        let (fresh, quiet) = (known(None, None), read + FRESH);
        assert!(matches!(fresh.step(quiet), Step::Use) && fresh.is_old(quiet));
        assert!(matches!(fresh.step(read + GOOD), Step::Read));
        let began = read + GOOD;
        let slow = known(None, Some(began));
        let wait = slow.step(began + MS);
        assert!(matches!(wait, Step::Wait(Some(until)) if until == began + PATIENCE), "{wait:?}");
        assert!(matches!(slow.step(began + PATIENCE), Step::Use));
        // Once it has failed, requests go on at once, also while it is asked again.
        let failed = || failure(began + PATIENCE);
        for reading in [None, Some(began + PATIENCE + FRESH)] {
            assert!(matches!(known(failed(), reading).step(began + PATIENCE + FRESH), Step::Use));
        }
        assert!(!known(failed(), None).is_old(began + PATIENCE + MS));
        assert!(known(failed(), None).is_old(began + PATIENCE + FRESH));
        // After minutes, somebody else may have revoked tokens.
        let late = read + RELIED_ON;
        assert!(matches!(known(failed(), None).step(late), Step::Read));
        assert!(matches!(known(failed(), Some(late)).step(late + PATIENCE), Step::Wait(None)));
        assert!(matches!(known(failure(late), None).step(late + MS), Step::Fail(_)));
    }

    #[test]
    fn many_unknown_tokens_share_the_reads() {
        let read = Instant::now();
        let known = |began, reading| Known { read_at: Some(read), began, reading, ..Known::default() };
        let asked = read + MS;
        assert!(matches!(known(Some(read), None).step_to_new(read, asked), Step::Use));
        let wait = known(Some(read), None).step_to_new(asked, asked);
        assert!(matches!(wait, Step::Wait(Some(until)) if until == read + guard::LOOK), "{wait:?}");
        assert!(matches!(known(Some(read), None).step_to_new(asked, read + guard::LOOK), Step::Read));
        assert!(matches!(known(Some(read), Some(read)).step_to_new(asked, asked), Step::Wait(None)));
    }
}
