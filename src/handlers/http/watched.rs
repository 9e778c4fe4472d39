//! A value that is read from files, and read again when one of them changes.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{task::spawn_blocking, time::timeout};

use crate::handlers::SettingsError;

/// The files are looked at once in this time at most.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a call waits for the files. On a file system that hangs, it then uses the previous
/// value.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

type Read<T> = Box<dyn Fn() -> Result<T, SettingsError> + Send + Sync>;

/// The value, and the files that it was read from.
pub(super) struct Watched<T>(Arc<Inner<T>>);

struct Inner<T> {
    files: Vec<PathBuf>,
    read: Read<T>,
    pause: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: T,
    /// The files as they were before the value was read.
    seen: Vec<Option<Seen>>,
    looked: Instant,
    /// Whether a thread looks at the files now. There is one at most, since it may hang.
    is_looking: bool,
    /// Why the files could not be used when they were read last. Logged once, and tried again.
    refused: Option<String>,
}

/// The identity and version of a file: its device, inode, size, and the seconds and nanoseconds of
/// its last change (ctime).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen(u64, u64, u64, i64, i64);

impl<T: Clone + Send + 'static> Watched<T> {
    /// Reads the value, which is an error if it cannot be read.
    pub(super) fn new(
        files: impl IntoIterator<Item = PathBuf>,
        read: impl Fn() -> Result<T, SettingsError> + Send + Sync + 'static,
    ) -> Result<Self, SettingsError> {
        Self::every(PAUSE, files, read)
    }

    fn every(
        pause: Duration,
        files: impl IntoIterator<Item = PathBuf>,
        read: impl Fn() -> Result<T, SettingsError> + Send + Sync + 'static,
    ) -> Result<Self, SettingsError> {
        let files: Vec<_> = files.into_iter().collect();
        let (seen, looked) = (look(&files), Instant::now());
        let state = State { value: read()?, seen, looked, is_looking: false, refused: None };
        Ok(Self(Arc::new(Inner { files, read: Box::new(read), pause, state: Mutex::new(state) })))
    }

    /// The value. If the files cannot be used since they have changed, it is the one that they had
    /// before.
    pub(super) async fn get(&self) -> T {
        if self.0.is_due() {
            let inner = self.0.clone();
            let looking = spawn_blocking(move || inner.look());
            // Both errors leave the previous value: the time-out, and a panic of the thread.
            if let Ok(Err(_)) = timeout(LOOK_TIMEOUT, looking).await {
                self.0.lock().is_looking = false;
            }
        }
        self.0.lock().value.clone()
    }
}

impl<T> Inner<T> {
    /// Whether the caller has to look at the files.
    fn is_due(&self) -> bool {
        let mut state = self.lock();
        let is_due = !self.files.is_empty() && !state.is_looking && state.looked.elapsed() >= self.pause;
        state.is_looking |= is_due;
        is_due
    }

    /// Reads the value again if the files have changed. It blocks its thread, and holds the lock
    /// only to store the result.
    fn look(&self) {
        let seen = look(&self.files);
        let has_changed = seen != self.lock().seen;
        let read = has_changed.then(|| (self.read)());
        let mut state = self.lock();
        (state.is_looking, state.looked) = (false, Instant::now());
        match read {
            None => state.refused = None,
            Some(Ok(value)) => {
                (state.value, state.seen, state.refused) = (value, seen, None);
                tracing::info!(
                    event = "webhook_files_read",
                    files = ?self.files,
                    "files of a handler \"http\" have changed; it uses the new ones"
                );
            }
            Some(Err(SettingsError(error))) if state.refused.as_ref() != Some(&error) => {
                tracing::warn!(
                    event = "webhook_files_refused",
                    %error,
                    "cannot use a changed file of a handler \"http\"; its previous content stays in use"
                );
                state.refused = Some(error);
            }
            Some(Err(_)) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look(files: &[PathBuf]) -> Vec<Option<Seen>> {
    let look = |file: &PathBuf| {
        let found = fs::metadata(file).ok()?;
        Some(Seen(found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
    };
    files.iter().map(look).collect()
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("files", &self.0.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A file for tests, and the value that is read from it.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn file(&self) -> PathBuf {
            self.0.path().join("file")
        }

        fn replace(&self, text: &str) {
            fs::write(self.0.path().join("new"), text).unwrap();
            fs::rename(self.0.path().join("new"), self.file()).unwrap();
        }

        fn watched(&self, pause: Duration) -> Result<Watched<String>, SettingsError> {
            let path = self.file();
            Watched::every(pause, [self.file()], move || {
                let text = fs::read_to_string(&path).map_err(|error| SettingsError(error.to_string()))?;
                if text == "broken" { Err(SettingsError("broken".to_owned())) } else { Ok(text) }
            })
        }
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again_and_a_broken_one_is_not_used() {
        let folder = Folder(tempfile::tempdir().unwrap());
        assert!(folder.watched(Duration::ZERO).is_err(), "there is no file yet");
        folder.replace("first");
        let often = folder.watched(Duration::ZERO).unwrap();
        let seldom = folder.watched(Duration::from_hours(1)).unwrap();
        folder.replace("second one");
        assert_eq!((&*often.get().await, &*seldom.get().await), ("second one", "first"));
        folder.replace("broken");
        assert_eq!(often.get().await, "second one");
        folder.replace("third");
        assert_eq!(often.get().await, "third");
        fs::remove_file(folder.file()).unwrap();
        assert_eq!(often.get().await, "third");
    }

    #[tokio::test]
    async fn a_read_that_failed_is_tried_again_though_the_file_stays_the_same() {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.replace("first");
        let fails = Arc::new(AtomicBool::new(false));
        let (path, is_failing) = (folder.file(), fails.clone());
        let watched = Watched::every(Duration::ZERO, [folder.file()], move || {
            if is_failing.load(Ordering::Relaxed) {
                return Err(SettingsError("too many open files".to_owned()));
            }
            fs::read_to_string(&path).map_err(|error| SettingsError(error.to_string()))
        });
        let watched = watched.unwrap();
        fails.store(true, Ordering::Relaxed);
        folder.replace("second");
        assert_eq!(watched.get().await, "first");
        fails.store(false, Ordering::Relaxed);
        assert_eq!(watched.get().await, "second");
    }

    #[tokio::test]
    async fn files_that_hang_delay_one_call_and_block_no_thread_of_the_handlers() {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.replace("first");
        let (hang, hangs) = std::sync::mpsc::channel::<()>();
        let (hangs, is_first) = (Mutex::new(hangs), AtomicBool::new(true));
        let watched = Watched::every(Duration::ZERO, [folder.file()], move || {
            if !is_first.swap(false, Ordering::Relaxed) {
                let _ = hangs.lock().unwrap().recv();
            }
            Ok("read".to_owned())
        });
        let watched = watched.unwrap();
        folder.replace("second");
        // This runtime has one thread, on which the clock goes on.
        let (one, ticked) = tokio::join!(watched.get(), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let began = Instant::now();
            watched.get().await;
            began.elapsed()
        });
        assert_eq!(one, "read");
        assert!(ticked < LOOK_TIMEOUT / 2, "{ticked:?}");
        drop(hang);
    }
}
