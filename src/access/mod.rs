//! Access tokens: which clients of the HTTP API may do what, with which queues.
//!
//! A token is shown once, when it is made. The database has its record with a hash of the secret, so every
//! daemon that uses the database knows it. `docs/SECURITY.md` is the page for operators, and
//! `docs/KEYSPACE.md` has the bytes.

mod key;
mod pattern;
mod scope;
mod store;
mod token;

pub(crate) use key::{KeyStore, SharedKey};
pub(crate) use pattern::QueuePattern;
pub(crate) use scope::Scope;
pub(crate) use store::{Created, MAX_TOKENS, TokenStore};
pub(crate) use token::{AccessToken, NewToken, is_access_token, random_text};
