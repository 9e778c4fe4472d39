//! A safe way to start the network.

use baton::thread::JoinHandle;

use super::{chosen, network};
use crate::error::Code;

/// Why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// FoundationDB allows one network in the life of a process.
    #[error("cannot start the database network: {0}; it can be started once in a process")]
    Refused(#[from] Code),
    /// The network's thread could not be started.
    #[error("cannot start the database network's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// The running network: the thread that runs the callbacks of database futures.
///
/// All database functions need it. Dropping it stops the network, including the real client
/// library's if that was loaded, and waits for its thread. Pending futures stay pending.
#[derive(Debug)]
pub struct Network {
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Selects the API version and starts the network. Only possible once in a process.
    pub fn start() -> Result<Network, StartError> {
        chosen::select_api_version(chosen::API_VERSION, chosen::API_VERSION)?;
        network::setup()?;
        let thread = baton::thread::Builder::new().name("fdb-callbacks".to_owned()).spawn(|| {
            network::run().expect("the network was set up above and nobody else runs it");
        })?;
        Ok(Network { thread: Some(thread) })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            // The thread belongs to the parent process.
            return std::mem::forget(self.thread.take());
        }
        crate::network::stop().expect("the network was set up");
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a callback that panicked.
            let _ = thread.join();
        }
    }
}
