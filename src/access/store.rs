//! The records of tokens in the database.

use std::{cell::Cell, collections::HashMap, time::SystemTime};

use foundationdb::{
    RangeOption, Transaction,
    options::{MutationType, StreamingMode},
    tuple::{Subspace, pack},
};
use kvqueue_queue::{QueueError, from_millis, millis};

use super::AccessToken;
use crate::audit::{AuditStore, Record};

/// The most tokens: a daemon has all of them in memory.
pub(crate) const MAX_TOKENS: usize = 1_000;

/// The result of storing a new token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// It is stored.
    Done,
    /// There is a token of this name.
    NameTaken,
    /// There are [`MAX_TOKENS`].
    TooMany,
}

/// The tokens behind a prefix.
#[derive(Clone, Debug)]
pub(crate) struct TokenStore {
    /// `(0, "kvqueue", "token", id)`: the record.
    tokens: Subspace,
    /// `(0, "kvqueue", "token-used", id)`: the time of the last use.
    used: Subspace,
    /// `(0, "kvqueue", "tokens")`: counts changes, so that nobody needs to read all records to learn of one.
    changes: Vec<u8>,
}

impl TokenStore {
    pub(crate) fn new(prefix: &[u8]) -> Self {
        let below = |name: &str| [prefix, &pack(&(0, "kvqueue", name))].concat();
        Self {
            tokens: Subspace::from_bytes(below("token")),
            used: Subspace::from_bytes(below("token-used")),
            changes: below("tokens"),
        }
    }

    /// The number of changes so far, as the database has it.
    pub(crate) async fn changes(&self, tr: &Transaction) -> Result<Vec<u8>, QueueError> {
        Ok(tr.get(&self.changes, true).await?.map(|value| value.to_vec()).unwrap_or_default())
    }

    /// All tokens that can be read. A newer version of kvqueue may have written others.
    pub(crate) async fn list(&self, tr: &Transaction) -> Result<Vec<AccessToken>, QueueError> {
        let rows = self.rows(tr, &self.tokens).await?;
        Ok(rows.iter().filter_map(|(_, value)| serde_json::from_slice(value).ok()).collect())
    }

    /// When each token was last used, by its id.
    pub(crate) async fn last_uses(
        &self,
        tr: &Transaction,
    ) -> Result<HashMap<String, SystemTime>, QueueError> {
        let rows = self.rows(tr, &self.used).await?;
        let parsed = rows.into_iter().filter_map(|(key, value)| {
            let (id,) = self.used.unpack::<(String,)>(&key).ok()?;
            Some((id, from_millis(u64::from_le_bytes(value.try_into().ok()?))))
        });
        Ok(parsed.collect())
    }

    /// Stores a new token, with this record in the audit trail. Repeating it after an unknown outcome does no harm.
    pub(crate) async fn create(
        &self,
        tr: &Transaction,
        token: &AccessToken,
        audit: &AuditStore,
        record: &Record,
    ) -> Result<Created, QueueError> {
        let others = self.list(tr).await?;
        if let Some(other) = others.iter().find(|other| other.name == token.name) {
            if other != token {
                return Ok(Created::NameTaken);
            }
            audit.write(tr, record);
            return Ok(Created::Done);
        }
        if others.len() >= MAX_TOKENS {
            return Ok(Created::TooMany);
        }
        let value = serde_json::to_vec(token).expect("a record has texts and numbers only");
        tr.set(&self.tokens.pack(&(token.id.as_str(),)), &value);
        self.note_change(tr);
        audit.write(tr, record);
        Ok(Created::Done)
    }

    /// Removes the token of this name, with this record in the audit trail. False if there is none.
    ///
    /// `is_found` is kept over all attempts of the transaction: if the outcome of a commit is unknown,
    /// the next attempt may find that the token is gone.
    pub(crate) async fn revoke(
        &self,
        tr: &Transaction,
        name: &str,
        (audit, record): (&AuditStore, &Record),
        is_found: &Cell<bool>,
    ) -> Result<bool, QueueError> {
        let found = self.list(tr).await?.into_iter().find(|token| token.name == name);
        let Some(token) = found else { return Ok(is_found.get()) };
        is_found.set(true);
        tr.clear(&self.tokens.pack(&(token.id.as_str(),)));
        tr.clear(&self.used.pack(&(token.id.as_str(),)));
        self.note_change(tr);
        audit.write(tr, record);
        Ok(true)
    }

    /// Records that a token is used. It is not there any more if it was revoked meanwhile.
    pub(crate) async fn note_use(
        &self,
        tr: &Transaction,
        id: &str,
        at: SystemTime,
    ) -> Result<(), QueueError> {
        if tr.get(&self.tokens.pack(&(id,)), false).await?.is_some() {
            tr.set(&self.used.pack(&(id,)), &millis(at).to_le_bytes());
        }
        Ok(())
    }

    fn note_change(&self, tr: &Transaction) {
        tr.atomic_op(&self.changes, &1_u64.to_le_bytes(), MutationType::Add);
    }

    /// All rows of a subspace. The reads conflict with changes, so two tokens never get one name.
    async fn rows(&self, tr: &Transaction, space: &Subspace) -> Result<Vec<(Vec<u8>, Vec<u8>)>, QueueError> {
        let mut rows = Vec::new();
        let mut rest = Some(RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from(space.range()) });
        while let Some(range) = rest {
            let page = tr.get_range(&range, 1, false).await?;
            rows.extend(page.iter().map(|row| (row.key().to_vec(), row.value().to_vec())));
            rest = range.next_range(&page);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        access::{NewToken, QueuePattern, Scope},
        audit::{Action, Who},
        testing::TestDatabase,
    };

    #[tokio::test]
    async fn a_revocation_that_runs_again_after_its_commit_has_found_the_token() {
        let db = TestDatabase::new().unwrap();
        let (store, audit) = (TokenStore::new(b""), AuditStore::new(b""));
        let record = Record::new(Action::OF_A_TEST, Who::Operator);
        let (scopes, queues) = ([Scope::Push].into(), vec![QueuePattern::all()]);
        let new = NewToken { name: "ci".to_owned(), scopes, queues, expires_at: None };
        let (_, token) = new.issue(std::time::UNIX_EPOCH).unwrap();
        let tr = db.create_trx().unwrap();
        assert_eq!(store.create(&tr, &token, &audit, &record).await.unwrap(), Created::Done);
        tr.commit().await.unwrap();
        let is_found = Cell::new(false);
        for _ in 0..2 {
            let tr = db.create_trx().unwrap();
            assert!(store.revoke(&tr, "ci", (&audit, &record), &is_found).await.unwrap());
            tr.commit().await.unwrap();
        }
        let tr = db.create_trx().unwrap();
        assert!(!store.revoke(&tr, "ci", (&audit, &record), &Cell::new(false)).await.unwrap());
    }
}
