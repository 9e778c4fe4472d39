//! Becoming the directory's host or a guest of it, at first and whenever the host goes away.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::guest::{ConnectError, Events, Guest};
use super::host::Host;
use super::{Link, Now, Role, warden};
use crate::engine::faults::VARIABLE;
use crate::engine::{DATA_FILE, Engine, Loss, LostFile, OpenError, StorageError, file_id};
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

/// Loss long a new connection waits for the host to say who it is.
const WELCOME_PATIENCE: Duration = Duration::from_secs(5);

/// After a failure of the storage this long, doubled with each that follows, until the directory is opened again.
const FIRST_SETBACK: Duration = Duration::from_millis(20);
/// But never longer.
const LONGEST_SETBACK: Duration = Duration::from_secs(5);
/// After so many failures in a row, about five seconds, waiting transactions fail. The process goes on trying.
const MAX_SETBACKS: u32 = 8;
/// A storage that has worked for so long has recovered.
const RECOVERED: Duration = Duration::from_secs(60);

/// Failures of the storage, one after the other.
#[derive(Debug, Default)]
pub(super) struct Setbacks {
    count: u32,
    last: Option<Instant>,
}

impl Setbacks {
    /// One more: loss long to wait now.
    fn add(&mut self, now: Instant) -> Duration {
        let is_recovered =
            self.last.is_none_or(|last| now.duration_since(last) > LONGEST_SETBACK + RECOVERED);
        self.count = if is_recovered { 1 } else { self.count.saturating_add(1) };
        self.last = Some(now);
        LONGEST_SETBACK.min(FIRST_SETBACK * 2u32.saturating_pow(self.count.min(16) - 1))
    }
}

/// Whether another attempt may go otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hope {
    /// Soon: somebody is coming or going, or something is short that comes back.
    Soon,
    /// When the process goes on that hosts the directory.
    Stopped,
    /// When the disk works again.
    Later,
    /// Not without somebody who changes something.
    None,
}

/// Why an attempt came to nothing.
pub(super) struct Refused {
    pub(super) error: OpenError,
    pub(super) hope: Hope,
}

impl From<OpenError> for Refused {
    fn from(error: OpenError) -> Refused {
        let hope = match &error {
            // Whoever holds the directory does not listen yet, or any more.
            OpenError::Held { .. } => Hope::Soon,
            OpenError::Io { source, .. }
            | OpenError::Storage { source: StorageError::Unopened(source), .. }
                if is_shortage(source) =>
            {
                Hope::Soon
            }
            OpenError::Io { .. } => Hope::Later,
            OpenError::Storage { source, .. } if source.code() == Code::IO_ERROR => Hope::Later,
            _ => Hope::None,
        };
        Refused { error, hope }
    }
}

/// Is this process, or the system, short of something that comes back, as descriptors do?
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// Tries once. Waits for so long until a host answers.
pub(super) fn attempt(path: &Path, patience: Duration) -> Result<Place, Refused> {
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
    match Guest::connect(path, patience) {
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
            let hope = match error {
                ConnectError::Silent => Hope::Stopped,
                ConnectError::Io(_) => Hope::Soon,
                _ => Hope::None,
            };
            let error = OpenError::Host { path: path.to_path_buf(), reason: error.to_string() };
            Err(Refused { error, hope })
        }
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
        let started = match &place {
            Place::Guest(guest) => guest.start(GuestOf(Arc::downgrade(self))),
            Place::Host { engine, .. } => warden::start(self, engine),
        };
        if let Err(error) = started {
            drop(role);
            Role::from(place).end();
            let (path, reason) = (self.directory.clone(), format!("cannot start a thread: {error}"));
            let hope = if is_shortage(&error) { Hope::Soon } else { Hope::None };
            return Err(Refused { error: OpenError::Host { path, reason }, hope });
        }
        let before = std::mem::replace(&mut *role, place.into());
        drop(role);
        if let Ok(identity) = file_id(&self.directory.join(DATA_FILE)) {
            let _ = self.database.set(identity);
        }
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
        Link::seek(&Arc::downgrade(self), None);
    }

    /// Tries to become the host or a guest of it, until one of them succeeds or neither can. Waits for `wait` first.
    pub(super) fn seek(link: &Weak<Link>, wait: Option<Duration>) {
        wait.into_iter().for_each(thread::sleep);
        let (mut pause, mut is_reported) = (PAUSE, false);
        loop {
            // Whoever drops the last handle meanwhile ends the search.
            let Some(link) = link.upgrade() else { return };
            if matches!(*link.role.read(), Role::Closed(_)) {
                return;
            }
            let settled = link.succeed().and_then(|place| link.settle(place));
            let Err(Refused { error, hope }) = settled else { return };
            let wait = match hope {
                Hope::None => {
                    crate::keep_failure(error.to_string());
                    crate::report(&format!(
                        "no other process hosts the database any more, and this one cannot: {error}"
                    ));
                    return link.fail_for_good(Code::IO_ERROR);
                }
                Hope::Soon | Hope::Stopped => {
                    let longer = LONGEST_PAUSE.min(pause * 2);
                    std::mem::replace(&mut pause, longer)
                }
                Hope::Later => link.set_back(),
            };
            if !is_reported && !matches!(error, OpenError::Held { .. }) {
                is_reported = true;
                crate::report(&format!("trying on to reach the database or to host it: {error}"));
            }
            drop(link);
            thread::sleep(wait);
        }
    }

    /// Tries once, on a directory that has been hosted. If its data file is gone, or is another one, the database has been removed under its
    /// host: an empty one in its place would look as if everything had been deleted, and another one is older, or of somebody else.
    fn succeed(&self) -> Result<Place, Refused> {
        let path = self.directory.join(DATA_FILE);
        let loss = match (file_id(&path), self.database.get()) {
            (Ok(found), Some(own)) if found != *own => Loss::Replaced,
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Loss::Removed,
            _ => return attempt(&self.directory, WELCOME_PATIENCE),
        };
        Err(OpenError::from(LostFile { path, loss, is_final: true }).into())
    }

    /// The storage has failed once more. Returns loss long to wait until the next opening. After many
    /// failures, waiting transactions fail.
    pub(super) fn set_back(&self) -> Duration {
        let (pause, is_often) = {
            let mut setbacks = self.setbacks.lock();
            (setbacks.add(Instant::now()), setbacks.count > MAX_SETBACKS)
        };
        if is_often {
            self.fail(Code::IO_ERROR);
        }
        pause
    }

    /// There is no host any more, and this link finds none.
    pub(super) fn fail_for_good(&self, code: Code) {
        self.is_over.store(true, Ordering::Release);
        self.fail(code);
    }

    /// There is no host: everything fails until there is one.
    fn fail(&self, code: Code) {
        let before = {
            let mut role = self.role.write();
            if matches!(*role, Role::Closed(_)) {
                return;
            }
            std::mem::replace(&mut *role, Role::Failed(code))
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_failures_grow_to_a_bound_and_begin_again_when_the_storage_has_recovered() {
        let (mut setbacks, mut now) = (Setbacks::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pauses.push(setbacks.add(now));
            now += LONGEST_SETBACK;
        }
        assert_eq!(pauses[..4], [20, 40, 80, 160].map(Duration::from_millis));
        assert_eq!(pauses[10..], [LONGEST_SETBACK; 30]);
        let told_after: Duration = pauses[..MAX_SETBACKS as usize].iter().sum();
        assert!((4..7).contains(&told_after.as_secs()), "{told_after:?}");
        now += RECOVERED + LONGEST_SETBACK;
        assert_eq!(setbacks.add(now), FIRST_SETBACK);
    }
}
