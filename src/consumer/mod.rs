//! A consumer without its actor: what it decides, how it takes, how it hands items to a handler, how it keeps its leases.
//!
//! `actors::consumer` and `actors::fetcher` carry the effects out.

pub(crate) mod ambient;
pub(crate) mod backoff;
pub(crate) mod batch;
pub(crate) mod breaker;
pub(crate) mod dispatch;
pub(crate) mod fetch;
pub(crate) mod gate;
pub(crate) mod holder;
pub(crate) mod identity;
pub(crate) mod signals;
pub(crate) mod source;
pub(crate) mod state;
pub(crate) mod suspects;
