//! The key that the daemons of a database share: random bytes, made by the first of them.

use foundationdb::{Transaction, tuple::pack};
use kvqueue_queue::QueueError;

/// Bytes that no client knows.
pub(crate) type SharedKey = [u8; 32];

/// The record of the key behind a prefix.
#[derive(Clone, Debug)]
pub(crate) struct KeyStore {
    /// `(0, "kvqueue", "http-key")`: the bytes.
    key: Vec<u8>,
}

impl KeyStore {
    pub(crate) fn new(prefix: &[u8]) -> Self {
        Self { key: [prefix, &pack(&(0, "kvqueue", "http-key"))].concat() }
    }

    /// The key in the database; or `new`, which is then stored. Repeating it after an unknown outcome does no harm.
    pub(crate) async fn read_or_make(
        &self,
        tr: &Transaction,
        new: &SharedKey,
    ) -> Result<SharedKey, QueueError> {
        let found = tr.get(&self.key, false).await?;
        // Nothing else writes it, so its length is right; a damaged one is replaced.
        if let Some(key) = found.and_then(|found| found.as_ref().try_into().ok()) {
            return Ok(key);
        }
        tr.set(&self.key, new);
        Ok(*new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDatabase;

    #[tokio::test]
    async fn daemons_that_make_the_key_at_the_same_time_have_the_same_one() {
        let (db, store) = (TestDatabase::new().unwrap(), KeyStore::new(b"p"));
        let [one, two] = [db.create_trx().unwrap(), db.create_trx().unwrap()];
        let made = store.read_or_make(&one, &[1; 32]).await.unwrap();
        store.read_or_make(&two, &[2; 32]).await.unwrap();
        one.commit().await.unwrap();
        assert!(two.commit().await.is_err(), "it has to read the first one's");
        let again = db.create_trx().unwrap();
        assert_eq!(store.read_or_make(&again, &[2; 32]).await.unwrap(), made);
        let vector = "14 02 6b 76 71 75 65 75 65 00 02 68 74 74 70 2d 6b 65 79 00";
        let stored: Vec<_> = store.key[1..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(stored.join(" "), vector);
        assert!(include_str!("../../docs/keyspace/vectors-of-features.md").contains(vector));
    }
}
