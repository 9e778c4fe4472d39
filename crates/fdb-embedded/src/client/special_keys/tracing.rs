//! `tracing/`: the ids of a transaction for tracing. They are stored and shown, but nothing is
//! traced.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::Rows;

/// A transaction's ids for tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// The id of the transaction.
    pub transaction_id: u128,
    /// The token; 0 disables tracing.
    pub token: u64,
}

/// A random number.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Trace {
    /// Random ids.
    pub fn random() -> Trace {
        let transaction_id = u128::from(random()) << 64 | u128::from(random());
        Trace { transaction_id, token: random() }
    }
}

/// The rows under `prefix`.
pub fn rows(prefix: &[u8], trace: Trace) -> Rows {
    let row = |name: &str, value: String| ([prefix, name.as_bytes()].concat(), value.into_bytes());
    Rows::from([
        row("token", trace.token.to_string()),
        row("transaction_id", format!("{:032x}", trace.transaction_id)),
    ])
}
