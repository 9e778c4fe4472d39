//! The commands of workers: they ask daemons over HTTP and need no database. `lease`, `extend` and
//! `ack` are one request each, `work` is a whole worker.

mod ack;
mod daemons;
mod extend;
mod lease;
mod leased;
mod work;

use tokio::runtime;

pub(super) use self::{ack::Args as Ack, extend::Args as Extend, lease::Args as Lease, work::Args as Work};
use super::api_client::encoded;

/// The path of a queue in the API.
fn queue_path(queue: &str) -> String {
    format!("/api/v1/queues/{}", encoded(queue))
}

/// A runtime for the requests of a command.
fn runtime() -> std::io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}
