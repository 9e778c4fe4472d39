//! Giving up the role of the host: when the engine fails, or the files that it works on are not where they were.
//!
//! Without this a host that takes no commits any more would keep the directory's lock, and nobody could use the directory until that
//! process ends.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Link, Role};
use crate::engine::{Engine, EngineEnd};
use crate::error::Code;

/// How often a host looks whether its directory and files are where they were.
const LOOK: Duration = Duration::from_secs(1);

/// Starts the thread that looks after a host's engine until that ends.
pub(super) fn start(link: &Arc<Link>, engine: &Arc<Engine>) -> io::Result<()> {
    let (link, engine) = (Arc::downgrade(link), Arc::clone(engine));
    let work = move || look_after(&link, &engine);
    thread::Builder::new().name("fdb-warden".to_owned()).spawn(work).map(drop)
}

fn look_after(link: &Weak<Link>, engine: &Arc<Engine>) {
    loop {
        match engine.await_end(LOOK) {
            None => engine.check_files(),
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
    /// Gives up the directory, whose engine has failed. Then this process tries to open it again, as all others do.
    fn step_down(self: Arc<Self>, engine: &Arc<Engine>) {
        let host = {
            let mut role = self.role.write();
            match &*role {
                Role::Host { engine: own, .. } if Arc::ptr_eq(own, engine) => {
                    std::mem::replace(&mut *role, Role::Between(Mutex::default()))
                }
                // It has ended, or is about to.
                _ => return,
            }
        };
        // Guests find the end; then the lock is free.
        host.end();
        if engine.is_lost() {
            crate::report(&format!(
                "this process has given up the database at {}; a program that opens it from now on uses what is there then",
                self.directory.display()
            ));
            return self.fail_for_good(Code::IO_ERROR);
        }
        let pause = self.set_back();
        let link = Arc::downgrade(&self);
        drop(self);
        Link::seek(&link, Some(pause));
    }
}
