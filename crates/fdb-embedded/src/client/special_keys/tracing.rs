//! `tracing/`: the ids under which a transaction would be traced. They are kept and shown; nothing is traced.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::Rows;

/// A transaction's ids for tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// The transaction.
    pub transaction_id: u128,
    /// The token; 0 is "do not trace".
    pub token: u64,
}

/// A random number; no two transactions need the same.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Trace {
    /// Ids of its own.
    pub fn random() -> Trace {
        let transaction_id = u128::from(random()) << 64 | u128::from(random());
        Trace { transaction_id, token: random() }
    }
}

/// The rows below `prefix`.
pub fn rows(prefix: &[u8], trace: Trace) -> Rows {
    let row = |name: &str, value: String| ([prefix, name.as_bytes()].concat(), value.into_bytes());
    Rows::from([
        row("token", trace.token.to_string()),
        row("transaction_id", format!("{:032x}", trace.transaction_id)),
    ])
}
