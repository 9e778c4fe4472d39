//! The lease of fetched items: who extends it and writes its acknowledgements, and what consumers
//! and dispatchers have of it.

mod cancelled;
mod held;
mod keeper;
mod slice;
mod timer;
mod transaction;

pub(crate) use self::{
    held::HeldLeases,
    keeper::LeaseKeeper,
    slice::{CommitOutcome, LeaseHandle, Slice},
    timer::{LeaseTimer, Next},
};
