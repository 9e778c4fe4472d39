//! Becoming the directory's host or a guest of it, at first and whenever the host goes away.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::guest::{ConnectError, Events, Guest};
use super::host::Host;
use super::{Link, Now, Role};
use crate::engine::faults::VARIABLE;
use crate::engine::{DATA_FILE, Engine, OpenError, StorageError};
use crate::error::Code;

/// Between the first attempts while somebody else is coming or going.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// Between later ones: a large file is being looked over, or a process holds the directory and does not listen.
const LONGEST_PAUSE: Duration = Duration::from_millis(80);

/// What this process can be to the directory.
pub(super) enum Place {
    Host { engine: Arc<Engine>, host: Host },
    Guest(Arc<Guest>),
}

/// Why an attempt came to nothing.
pub(super) struct Refused {
    pub(super) error: OpenError,
    /// Another attempt may go otherwise.
    pub(super) passes: bool,
}

impl From<OpenError> for Refused {
    fn from(error: OpenError) -> Refused {
        let passes = match &error {
            // Whoever holds the directory does not listen yet, or any more.
            OpenError::Held { .. } => true,
            OpenError::Io { source, .. }
            | OpenError::Storage { source: StorageError::Unopened(source), .. } => is_shortage(source),
            _ => false,
        };
        Refused { error, passes }
    }
}

/// Is this process, or the system, short of something that comes back, as descriptors do?
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// Tries once.
pub(super) fn attempt(path: &Path) -> Result<Place, Refused> {
    let held = match Engine::open(path) {
        Ok(engine) => {
            let engine = Arc::new(engine);
            // The socket is found again at the end, wherever this process works by then.
            let host = path.canonicalize().and_then(|path| Host::listen(&path, &engine));
            let host = host.map_err(|source| OpenError::Io { path: path.join("socket"), source })?;
            return Ok(Place::Host { engine, host });
        }
        Err(held @ OpenError::Held { .. }) => held,
        Err(error) => return Err(error.into()),
    };
    match Guest::connect(path) {
        Ok(guest) => {
            if std::env::var_os(VARIABLE).is_some() {
                crate::report(&format!(
                    "{VARIABLE} has no effect on {}: another process hosts it",
                    path.display()
                ));
            }
            Ok(Place::Guest(guest))
        }
        Err(ConnectError::Absent) => Err(held.into()),
        Err(error) => {
            let passes = matches!(error, ConnectError::Silent | ConnectError::Io(_));
            let error = OpenError::Host { path: path.to_path_buf(), reason: error.to_string() };
            Err(Refused { error, passes })
        }
    }
}

/// Tries once, on a directory that another process has hosted. If its file is gone, it has been removed under that
/// one: an empty database in its place would look as if everything had been deleted.
fn succeed_at(directory: &Path) -> Result<Place, Refused> {
    let path = directory.join(DATA_FILE);
    match path.symlink_metadata() {
        Ok(_) => attempt(directory),
        Err(source) => Err(OpenError::Io { path, source }.into()),
    }
}

struct GuestOf(Weak<Link>);

impl Events for GuestOf {
    fn fired(&self, watch: u64, error: Option<Code>) {
        let Some(link) = self.0.upgrade() else { return };
        let watch = link.watches.lock().remove(&watch);
        let Some(watch) = watch else { return };
        match error {
            None => watch.future.succeed(),
            Some(code) => watch.future.fail(code),
        };
    }

    fn lost(&self) {
        if let Some(link) = self.0.upgrade() {
            link.find_host();
        }
    }
}

impl Link {
    /// Takes its place, arms the watches there, and wakes what has waited for it. Nothing has changed if that is refused.
    pub(super) fn settle(self: &Arc<Self>, place: Place) -> Result<(), Refused> {
        let mut role = self.role.write();
        if matches!(*role, Role::Closed(_)) {
            drop(role);
            Role::from(place).end();
            return Ok(());
        }
        if let Place::Guest(guest) = &place
            && let Err(error) = guest.start(GuestOf(Arc::downgrade(self)))
        {
            guest.close();
            let (path, reason) = (self.directory.clone(), format!("cannot start a thread: {error}"));
            return Err(Refused { error: OpenError::Host { path, reason }, passes: is_shortage(&error) });
        }
        let before = std::mem::replace(&mut *role, place.into());
        drop(role);
        self.arm_again();
        if let Role::Between(waiting) = before {
            waiting.into_inner().into_iter().for_each(|then| then());
        }
        Ok(())
    }

    /// Arms what was armed at the last host.
    fn arm_again(&self) {
        let watches = self.watches.lock();
        let all: Vec<_> = watches
            .iter()
            .map(|(id, watch)| (*id, watch.key.clone(), watch.baseline.clone(), Arc::clone(&watch.future)))
            .collect();
        drop(watches);
        for (id, key, baseline, future) in all {
            match self.now() {
                Now::Host(engine) => engine.arm(&key, baseline, &future),
                Now::Guest(guest) => guest.arm(id, &key, baseline),
                // It will be done when that has changed.
                Now::Unsettled | Now::Failed(_) => return,
            }
        }
    }

    /// The host is gone: become the next, or find it. On the thread of the connection that has ended.
    fn find_host(self: &Arc<Self>) {
        {
            let mut role = self.role.write();
            if !matches!(*role, Role::Guest(_)) {
                return;
            }
            *role = Role::Between(Mutex::default());
        }
        let (link, directory) = (Arc::downgrade(self), self.directory.clone());
        let (mut pause, mut is_reported) = (PAUSE, false);
        loop {
            // Whoever drops the last handle meanwhile ends the search.
            let Some(link) = link.upgrade() else { return };
            if matches!(*link.role.read(), Role::Closed(_)) {
                return;
            }
            let settled = succeed_at(&directory).and_then(|place| link.settle(place));
            let Err(refused) = settled else { return };
            let error = &refused.error;
            if !refused.passes {
                crate::report(&format!(
                    "no other process hosts the database any more, and this one cannot: {error}"
                ));
                return link.fail(Code::IO_ERROR);
            }
            if !is_reported && !matches!(error, OpenError::Held { .. }) {
                is_reported = true;
                crate::report(&format!("trying on to reach the database or to host it: {error}"));
            }
            drop(link);
            thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// There is no host any more: everything fails from now on.
    fn fail(&self, code: Code) {
        let before = std::mem::replace(&mut *self.role.write(), Role::Failed(code));
        if let Role::Between(waiting) = before {
            waiting.into_inner().into_iter().for_each(|then| then());
        }
        let watches = std::mem::take(&mut *self.watches.lock());
        for watch in watches.into_values() {
            watch.future.fail(code);
        }
    }
}

impl From<Place> for Role {
    fn from(place: Place) -> Role {
        match place {
            Place::Host { engine, host } => Role::Host { engine, host },
            Place::Guest(guest) => Role::Guest(guest),
        }
    }
}
