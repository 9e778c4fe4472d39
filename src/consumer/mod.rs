//! Consumers without their actors: decisions, fetches, leases, and the dispatch of items to handlers.
//! `actors::consumer` and `actors::fetcher` carry out what is decided here.

pub(crate) mod breaker;
pub(crate) mod claimed;
pub(crate) mod dispatch;
pub(crate) mod expiry;
pub(crate) mod fetch;
pub(crate) mod heartbeat;
pub(crate) mod lease;
pub(crate) mod pause_state;
pub(crate) mod runtime;
pub(crate) mod sharing;
pub(crate) mod shutdown;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod suspects;
