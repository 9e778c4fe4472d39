//! Programs for the test of `tests/it/chaos`.

mod audit;
mod daemon;
#[path = "../../it/chaos/payload.rs"]
mod payload;
mod puller;
#[expect(dead_code, reason = "the test itself uses the rest")]
#[path = "../../it/chaos/records.rs"]
mod records;

pub(crate) use self::{audit::audit, daemon::daemon, puller::puller};
