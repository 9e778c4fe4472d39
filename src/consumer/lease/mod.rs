//! The lease of fetched items: who extends it and writes its acknowledgements, and what consumers
//! and dispatchers have of it.

mod keeper;
mod slice;
mod timer;
mod transaction;

pub(crate) use self::{
    keeper::{LeaseKeeper, Leased},
    slice::{CommitOutcome, LeaseHandle, Slice},
    timer::{LeaseTimer, Next},
};
