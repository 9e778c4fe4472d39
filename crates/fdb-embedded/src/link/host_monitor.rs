//! Monitors a host: it steps down if the engine fails or its files are gone, and makes its socket again.
//!
//! Without this, a host that accepts no commits would keep the lock, and no process could use the
//! directory until that host ends.

use baton::thread;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use baton::Mutex;

use super::{Link, Role};
use crate::engine::{Engine, EngineEnd};
use crate::error::Code;

/// How often the host checks its directory and files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread that monitors a host's engine until it ends.
pub(super) fn start(link: &Arc<Link>, engine: &Arc<Engine>) -> io::Result<()> {
    let (link, engine) = (Arc::downgrade(link), Arc::clone(engine));
    let work = move || monitor(&link, &engine);
    thread::Builder::new().name("fdb-monitor".to_owned()).spawn(work).map(drop)
}

fn monitor(link: &Weak<Link>, engine: &Arc<Engine>) {
    loop {
        match engine.await_end(CHECK_INTERVAL) {
            None => {
                engine.check_files();
                if let Some(link) = link.upgrade() {
                    link.check_socket(engine);
                }
            }
            Some(EngineEnd::Closed) => return,
            Some(EngineEnd::Failed(_)) => {
                if let Some(link) = link.upgrade() {
                    link.step_down(engine);
                }
                return;
            }
        }
    }
}

impl Link {
    /// Checks that other processes find the socket of this host, whose files are in their places.
    fn check_socket(&self, engine: &Arc<Engine>) {
        if let Role::Host { engine: own, host } = &*self.role.read()
            && Arc::ptr_eq(own, engine)
            && !engine.has_lost_files()
        {
            host.check_socket();
        }
    }

    /// Closes the directory after the engine has failed. Then this process takes part in the
    /// takeover.
    fn step_down(self: Arc<Self>, engine: &Arc<Engine>) {
        let host = {
            let mut role = self.role.write();
            match &*role {
                Role::Host { engine: own, .. } if Arc::ptr_eq(own, engine) => {
                    std::mem::replace(&mut *role, Role::TakingOver(Mutex::default()))
                }
                // The role has ended already.
                _ => return,
            }
        };
        // Guests find the end of their connections; then the lock is free.
        host.end();
        if engine.is_lost() {
            crate::reports::report(&format!(
                "this process has given up the database at {}; a program that opens it from now on uses what is there then",
                self.directory.display()
            ));
            return self.fail_permanently(Code::IO_ERROR);
        }
        let pause = self.note_storage_failure();
        let link = Arc::downgrade(&self);
        drop(self);
        Link::run_takeover(&link, Some(pause));
    }
}
