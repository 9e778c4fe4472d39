//! The bodies of transactions, one operation per file.
//!
//! None of it commits or retries; all of it may run several times for one commit, and has no other effect than on the
//! transaction.

pub(crate) mod acknowledge;
pub(crate) mod aside;
pub(crate) mod claim;
pub(crate) mod conflict;
pub(crate) mod cost;
pub(crate) mod counts;
pub(crate) mod dead;
pub(crate) mod dead_page;
pub(crate) mod delete;
pub(crate) mod duty;
pub(crate) mod exists;
pub(crate) mod expire;
pub(crate) mod find;
pub(crate) mod forget_operations;
pub(crate) mod jump;
pub(crate) mod keyed;
pub(crate) mod kinds;
pub(crate) mod lease;
pub(crate) mod len;
pub(crate) mod list;
pub(crate) mod locate;
pub(crate) mod look;
#[cfg(feature = "migration")]
pub(crate) mod migrate;
pub(crate) mod orphans;
pub(crate) mod parts;
pub(crate) mod pause;
pub(crate) mod peek;
pub(crate) mod place;
pub(crate) mod pop;
pub(crate) mod promote;
pub(crate) mod push;
pub(crate) mod queues;
pub(crate) mod recipe;
pub(crate) mod recount;
pub(crate) mod relocate;
pub(crate) mod requeue;
#[cfg(feature = "migration")]
pub(crate) mod rows;
pub(crate) mod running;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod sweep_right;
pub(crate) mod sweep_tokens;
pub(crate) mod times;
pub(crate) mod token;
pub(crate) mod unreadable;
pub(crate) mod version;
pub(crate) mod view;
pub(crate) mod waiting;
pub(crate) mod want;
pub(crate) mod watch;
pub(crate) mod went_back;
