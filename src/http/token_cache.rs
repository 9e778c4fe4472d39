//! The access tokens as this daemon knows them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::{app_state::AppState, error::ApiError, guard};
use crate::{
    access::{AccessToken, TokenStore},
    consumer::clock,
};

/// How old the knowledge may be: a token that is revoked is refused after this time. A new one is
/// known after it, too, for which its first request waits.
const FRESH: Duration = guard::PAUSE;

/// How often the last use of a token is stored.
const USE_STORED_EVERY: Duration = Duration::from_secs(60);

/// All tokens, as the database had them less than [`FRESH`] ago.
#[derive(Debug, Default)]
pub(super) struct TokenCache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    read_at: Option<Instant>,
    /// The database's count of changes at that time.
    changes: Vec<u8>,
    by_id: HashMap<String, Arc<AccessToken>>,
    /// Why the last attempt to read them failed, and when. Requests get this error until [`FRESH`]
    /// has passed; then one of them reads again.
    failed: Option<(Instant, ApiError)>,
    /// When the use of a token was last stored.
    stored: HashMap<String, Instant>,
}

impl TokenCache {
    /// The token that a client sends, if it is one and has not expired.
    pub(super) async fn find(
        &self,
        app: &Arc<AppState>,
        text: &str,
    ) -> Result<Option<Arc<AccessToken>>, ApiError> {
        self.get(app, AccessToken::id_of(text), |token| token.is(text)).await
    }

    /// The token with this id, if there is one and it has not expired.
    pub(super) async fn with_id(
        &self,
        app: &Arc<AppState>,
        id: &str,
    ) -> Result<Option<Arc<AccessToken>>, ApiError> {
        self.get(app, id, |_| true).await
    }

    async fn get(
        &self,
        app: &Arc<AppState>,
        id: &str,
        is: impl Fn(&AccessToken) -> bool,
    ) -> Result<Option<Arc<AccessToken>>, ApiError> {
        let mut known = self.0.lock().await;
        if known.read_at.is_none_or(|at| at.elapsed() >= FRESH) {
            known.refresh_unless_it_just_failed(app).await?;
        }
        let now = clock::now();
        let found = known.by_id.get(id).filter(|token| is(token) && !token.is_expired(now)).cloned();
        if found.is_some() && known.stored.get(id).is_none_or(|at| at.elapsed() >= USE_STORED_EVERY) {
            known.stored.insert(id.to_owned(), Instant::now());
            note_use(app, id.to_owned());
        }
        Ok(found)
    }
}

impl Known {
    async fn refresh_unless_it_just_failed(&mut self, app: &Arc<AppState>) -> Result<(), ApiError> {
        if let Some((_, error)) = self.failed.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Err(error.clone());
        }
        let refreshed = self.refresh(app).await;
        self.failed = refreshed.as_ref().err().map(|error| (Instant::now(), error.clone()));
        refreshed
    }

    /// Takes no database permit: one request at a time reads for all others, and pushes must not
    /// make it fail.
    async fn refresh(&mut self, app: &Arc<AppState>) -> Result<(), ApiError> {
        let (store, before) = (&app.token_store(), &self.changes);
        let is_first = self.read_at.is_none();
        let read_at = Instant::now();
        let read = app.run(|tr| async move {
            let read = async {
                let changes = store.changes(&tr).await?;
                let is_same = !is_first && changes == *before;
                Ok((changes, if is_same { None } else { Some(store.list(&tr).await?) }))
            };
            let read = read.await;
            (tr, read)
        });
        let (changes, tokens) = read.await?;
        (self.read_at, self.changes) = (Some(read_at), changes);
        if let Some(tokens) = tokens {
            self.by_id = tokens.into_iter().map(|token| (token.id.clone(), Arc::new(token))).collect();
            self.stored.retain(|id, _| self.by_id.contains_key(id));
        }
        Ok(())
    }
}

/// Stores that a token is used now. The request does not wait for it.
fn note_use(app: &Arc<AppState>, id: String) {
    let shared = app.clone();
    drop(app.spawn(async move {
        let (store, id): (&TokenStore, &str) = (&shared.token_store(), &id);
        let noted = shared
            .transact(|tr| async move {
                let noted = store.note_use(&tr, id, clock::now()).await;
                (tr, noted)
            })
            .await;
        if let Err(error) = noted {
            tracing::debug!(event = "token_use_unstored", %error, "cannot store when a token was last used");
        }
    }));
}
