//! A consumer without its actor: what it decides, how it takes, how it hands items to a handler, how it keeps its leases.
//!
//! | file | role |
//! |---|---|
//! | `state` | the state machine: events in, effects out, nothing else |
//! | `take` | takes for all of a queue's consumers |
//! | `dispatch` | a batch to the handler, in order |
//! | `holder` | the lease of a batch: heartbeats, settling, its loss |
//! | `idle` | waiting for items: one watch for all consumers of a queue |
//! | `batch` | items in hand |
//! | `source` | a queue as its consumers share it |
//! | `gate` | whether takes may begin |
//! | `suspects` | what the queues of a process share about items that may kill it |
//! | `signals` | what all that works on items is told, and tells |
//! | `breaker` | holds takes back while the handler cannot work |
//! | `backoff` | pauses between failed takes |
//! | `contention` | how often takes lose against those of other processes |
//! | `identity` | ids of sessions, which tell their process |
//! | `ambient` | the clock on the wall, the monotonic clock, and chance |
//!
//! `actors::consumer` carries the effects out.

pub(crate) mod ambient;
pub(crate) mod backoff;
pub(crate) mod batch;
pub(crate) mod breaker;
pub(crate) mod contention;
pub(crate) mod dispatch;
pub(crate) mod gate;
pub(crate) mod holder;
pub(crate) mod identity;
pub(crate) mod idle;
pub(crate) mod signals;
pub(crate) mod source;
pub(crate) mod state;
pub(crate) mod suspects;
pub(crate) mod take;
