//! Takeover: this process becomes the host or a guest, at first and whenever the host goes away.

use baton::thread;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use baton::Mutex;

use super::attempt::{AttemptError, FIRST_RETRY_DELAY, NewRole, RetryPolicy, attempt, is_shortage};
use super::guest::ConnectionEvents;
use super::storage_failures::MAX_FAILURES;
use super::{CurrentRole, Link, Role, host_monitor};
use crate::engine::{Loss, LostFile, OpenError, file_id};
use crate::error::Code;
use crate::files::DATA_FILE;

/// The longest delay between retries, for example while a host recovers a large file.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(80);

/// How long a new connection waits for the host's first message.
const WELCOME_PATIENCE: Duration = Duration::from_secs(5);

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
            (storage_failures.add(baton::now()), storage_failures.count > MAX_FAILURES)
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
