//! A consumer without its actor: what it decides, how it takes, how it hands items to a handler.
//!
//! | file | role |
//! |---|---|
//! | `state` | the state machine: events in, effects out, nothing else |
//! | `take` | one take, in turn with the queue's other consumers |
//! | `dispatch` | a batch to the handler: order, time limit, panic boundary |
//! | `batch` | items in hand, which never vanish without a word |
//! | `source` | a queue as its consumers share it |
//! | `backoff` | pauses between failed takes |
//! | `ambient` | the clock on the wall, and chance |
//!
//! `actors::consumer` carries the effects out.

pub(crate) mod ambient;
pub(crate) mod backoff;
pub(crate) mod batch;
pub(crate) mod dispatch;
pub(crate) mod source;
pub(crate) mod state;
pub(crate) mod take;
