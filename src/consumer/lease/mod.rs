//! The lease of fetched items: who extends it and writes its acknowledgements, and what consumers
//! and dispatchers have of it.

mod ack_buffer;
mod handle;
mod keeper;
mod slice;
mod timer;
mod transaction;

pub(crate) use self::{
    handle::{CommitOutcome, LeaseHandle},
    keeper::{LeaseKeeper, Leased},
    slice::Slice,
};
