//! Takeover: this process becomes the host or a guest, at first and whenever the host goes away.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::guest::{ConnectError, ConnectionEvents, Guest};
use super::host::Host;
use super::{CurrentRole, Link, Role, host_monitor};
#[cfg(feature = "testing")]
use crate::engine::faults::VARIABLE;
use crate::engine::{Engine, Loss, LostFile, OpenError, StorageError, file_id};
use crate::error::Code;
use crate::files::DATA_FILE;

/// The delay before the first retries, while a host starts or stops.
pub(super) const FIRST_RETRY_DELAY: Duration = Duration::from_millis(5);
/// The longest delay between retries, for example while a host recovers a large file.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(80);

/// The role that an attempt has gained.
pub(super) enum NewRole {
    Host { engine: Arc<Engine>, host: Host },
    Guest(Arc<Guest>),
}

/// How long a new connection waits for the host's first message.
const WELCOME_PATIENCE: Duration = Duration::from_secs(5);

/// The delay before the directory is opened again after a storage failure. Doubled with each
/// further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// The longest such delay.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// After this many storage failures in a row, about five seconds, waiting transactions fail. The
/// process keeps trying.
const MAX_FAILURES: u32 = 8;
/// A storage that has worked for so long has recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(60);

/// Counts storage failures in a row.
#[derive(Debug, Default)]
pub(super) struct StorageFailures {
    count: u32,
    last: Option<Instant>,
}

impl StorageFailures {
    /// Counts a failure, and returns the delay before the next opening.
    fn add(&mut self, now: Instant) -> Duration {
        let is_recovered =
            self.last.is_none_or(|last| now.duration_since(last) > MAX_BACKOFF + RECOVERED_AFTER);
        self.count = if is_recovered { 1 } else { self.count.saturating_add(1) };
        self.last = Some(now);
        MAX_BACKOFF.min(FIRST_BACKOFF * 2u32.saturating_pow(self.count.min(16) - 1))
    }
}

/// Whether and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// Soon: a host starts or stops, or a resource is short.
    Soon,
    /// When the stopped host continues.
    WhenHostResumes,
    /// When the disk works again.
    Later,
    /// Not without a change from outside.
    Never,
}

/// Why an attempt failed.
pub(super) struct AttemptError {
    pub(super) error: OpenError,
    pub(super) retry: RetryPolicy,
}

impl From<OpenError> for AttemptError {
    fn from(error: OpenError) -> AttemptError {
        let retry = match &error {
            // The process that has the lock does not listen yet, or any more.
            OpenError::Held { .. } => RetryPolicy::Soon,
            OpenError::Io { source, .. }
            | OpenError::Storage { source: StorageError::Unopened(source), .. }
                if is_shortage(source) =>
            {
                RetryPolicy::Soon
            }
            OpenError::Io { .. } => RetryPolicy::Later,
            OpenError::Storage { source, .. } if source.code() == Code::IO_ERROR => RetryPolicy::Later,
            _ => RetryPolicy::Never,
        };
        AttemptError { error, retry }
    }
}

/// True if a resource of the process or the system is short, such as descriptors.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// Tries once to become the host or a guest. Waits up to `patience` for the host's answer.
pub(super) fn attempt(path: &Path, patience: Duration) -> Result<NewRole, AttemptError> {
    let held = match Engine::open(path) {
        Ok(engine) => {
            let engine = Arc::new(engine);
            // The canonical path stays valid if this process changes its working directory.
            let host = path.canonicalize().and_then(|path| Host::listen(&path, &engine));
            let host = host.map_err(|source| OpenError::Io { path: super::socket(path), source })?;
            return Ok(NewRole::Host { engine, host });
        }
        Err(held @ OpenError::Held { .. }) => held,
        Err(error) => return Err(error.into()),
    };
    match Guest::connect(path, patience) {
        Ok(guest) => {
            #[cfg(feature = "testing")]
            if std::env::var_os(VARIABLE).is_some() {
                crate::reports::report(&format!(
                    "{VARIABLE} has no effect on {}: another process hosts it",
                    path.display()
                ));
            }
            Ok(NewRole::Guest(guest))
        }
        Err(ConnectError::Absent) => Err(held.into()),
        Err(error) => {
            let retry = match error {
                ConnectError::Silent => RetryPolicy::WhenHostResumes,
                ConnectError::Io(_) => RetryPolicy::Soon,
                _ => RetryPolicy::Never,
            };
            let error = OpenError::Host { path: path.to_path_buf(), reason: error.to_string() };
            Err(AttemptError { error, retry })
        }
    }
}

struct GuestOf(Weak<Link>);

impl ConnectionEvents for GuestOf {
    fn fired(&self, watch: u64, error: Option<Code>) {
        let Some(link) = self.0.upgrade() else { return };
        let watch = link.watches.lock().remove(&watch);
        let Some(watch) = watch else { return };
        match error {
            None => watch.future.succeed(),
            Some(code) => watch.future.fail(code),
        };
    }

    fn ending(&self) {
        let Some(link) = self.0.upgrade() else { return };
        let mut role = link.role.write();
        // The link may have been closed.
        if matches!(*role, Role::Guest(_)) {
            *role = Role::TakingOver(Mutex::default());
        }
    }

    fn lost(&self) {
        Link::run_takeover(&self.0, None);
    }
}

impl Link {
    /// Assumes a role: arms the watches there, and continues callers that waited for it. After an
    /// error nothing has changed.
    pub(super) fn assume_role(self: &Arc<Self>, new_role: NewRole) -> Result<(), AttemptError> {
        let mut role = self.role.write();
        if matches!(*role, Role::Closed(_)) {
            drop(role);
            Role::from(new_role).end();
            return Ok(());
        }
        let started = match &new_role {
            NewRole::Guest(guest) => guest.start(GuestOf(Arc::downgrade(self))),
            NewRole::Host { engine, .. } => host_monitor::start(self, engine),
        };
        if let Err(error) = started {
            drop(role);
            Role::from(new_role).end();
            let (path, reason) = (self.directory.clone(), format!("cannot start a thread: {error}"));
            let retry = if is_shortage(&error) { RetryPolicy::Soon } else { RetryPolicy::Never };
            return Err(AttemptError { error: OpenError::Host { path, reason }, retry });
        }
        let before = std::mem::replace(&mut *role, new_role.into());
        drop(role);
        if let Ok(identity) = file_id(&self.directory.join(DATA_FILE)) {
            let _ = self.database.set(identity);
        }
        self.rearm_watches();
        if let Role::TakingOver(waiting) = before {
            waiting.into_inner().into_iter().for_each(|then| then());
        }
        Ok(())
    }

    /// Arms the watches of the previous host.
    fn rearm_watches(&self) {
        let watches = self.watches.lock();
        let all: Vec<_> = watches
            .iter()
            .map(|(id, watch)| (*id, watch.key.clone(), watch.baseline.clone(), Arc::clone(&watch.future)))
            .collect();
        drop(watches);
        for (id, key, baseline, future) in all {
            match self.current_role() {
                CurrentRole::Host(engine) => engine.arm(&key, baseline, &future),
                CurrentRole::Guest(guest) => guest.arm(id, &key, baseline),
                // The next role will arm them.
                CurrentRole::TakingOver | CurrentRole::Failed(_) => return,
            }
        }
    }

    /// Tries to become the host or a guest, until that succeeds or cannot succeed. Waits for `wait`
    /// first.
    pub(super) fn run_takeover(link: &Weak<Link>, wait: Option<Duration>) {
        wait.into_iter().for_each(thread::sleep);
        let (mut pause, mut is_reported) = (FIRST_RETRY_DELAY, false);
        loop {
            // Dropping the last handle ends the takeover.
            let Some(link) = link.upgrade() else { return };
            if matches!(*link.role.read(), Role::Closed(_)) {
                return;
            }
            let settled = link.attempt_takeover().and_then(|role| link.assume_role(role));
            let Err(AttemptError { error, retry }) = settled else { return };
            let wait = match retry {
                RetryPolicy::Never => {
                    crate::reports::keep_failure(error.to_string());
                    crate::reports::report(&format!(
                        "no other process hosts the database any more, and this one cannot: {error}"
                    ));
                    return link.fail_permanently(Code::IO_ERROR);
                }
                RetryPolicy::Soon | RetryPolicy::WhenHostResumes => {
                    let longer = MAX_RETRY_DELAY.min(pause * 2);
                    std::mem::replace(&mut pause, longer)
                }
                RetryPolicy::Later => link.note_storage_failure(),
            };
            if !is_reported && !matches!(error, OpenError::Held { .. }) {
                is_reported = true;
                crate::reports::report(&format!("trying on to reach the database or to host it: {error}"));
            }
            drop(link);
            thread::sleep(wait);
        }
    }

    /// Tries once, on a directory that was hosted before. If its data file is gone or another one,
    /// the database was removed. An empty database in its place would look as if everything had
    /// been deleted; another one may be older or belong to somebody else.
    fn attempt_takeover(&self) -> Result<NewRole, AttemptError> {
        let path = self.directory.join(DATA_FILE);
        let loss = match (file_id(&path), self.database.get()) {
            (Ok(found), Some(own)) if found != *own => Loss::Replaced,
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Loss::Removed,
            _ => return attempt(&self.directory, WELCOME_PATIENCE),
        };
        Err(OpenError::from(LostFile { path, loss, is_final: true }).into())
    }

    /// Counts a storage failure, and returns the delay before the next opening. After many
    /// failures, waiting transactions fail.
    pub(super) fn note_storage_failure(&self) -> Duration {
        let (pause, is_often) = {
            let mut storage_failures = self.storage_failures.lock();
            (storage_failures.add(Instant::now()), storage_failures.count > MAX_FAILURES)
        };
        if is_often {
            self.fail(Code::IO_ERROR);
        }
        pause
    }

    /// Fails permanently: this link will never have a role again.
    pub(super) fn fail_permanently(&self, code: Code) {
        self.has_failed_permanently.store(true, Ordering::Release);
        self.fail(code);
    }

    /// Fails everything until there is a role again.
    fn fail(&self, code: Code) {
        let before = {
            let mut role = self.role.write();
            if matches!(*role, Role::Closed(_)) {
                return;
            }
            std::mem::replace(&mut *role, Role::Failed(code))
        };
        if let Role::TakingOver(waiting) = before {
            waiting.into_inner().into_iter().for_each(|then| then());
        }
        let watches = std::mem::take(&mut *self.watches.lock());
        for watch in watches.into_values() {
            watch.future.fail(code);
        }
    }
}

impl From<NewRole> for Role {
    fn from(role: NewRole) -> Role {
        match role {
            NewRole::Host { engine, host } => Role::Host { engine, host },
            NewRole::Guest(guest) => Role::Guest(guest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_backoff_is_bounded_and_resets_after_recovery() {
        let (mut storage_failures, mut now) = (StorageFailures::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pauses.push(storage_failures.add(now));
            now += MAX_BACKOFF;
        }
        assert_eq!(pauses[..4], [20, 40, 80, 160].map(Duration::from_millis));
        assert_eq!(pauses[10..], [MAX_BACKOFF; 30]);
        let told_after: Duration = pauses[..MAX_FAILURES as usize].iter().sum();
        assert!((4..7).contains(&told_after.as_secs()), "{told_after:?}");
        now += RECOVERED_AFTER + MAX_BACKOFF;
        assert_eq!(storage_failures.add(now), FIRST_BACKOFF);
    }
}
