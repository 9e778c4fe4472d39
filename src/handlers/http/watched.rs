//! A value that is read from files, and read again when one of them changes.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::handlers::SettingsError;

/// The files are looked at once in this time at most.
const PAUSE: Duration = Duration::from_secs(1);

type Read<T> = Box<dyn Fn() -> Result<T, SettingsError> + Send + Sync>;

/// The value, and the files that it was read from.
pub(super) struct Watched<T> {
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
}

/// What tells that a file has changed: its device, number, size, and the seconds and nanoseconds of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen(u64, u64, u64, i64, i64);

impl<T: Clone> Watched<T> {
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
        let state = Mutex::new(State { value: read()?, seen, looked });
        Ok(Self { files, read: Box::new(read), pause, state })
    }

    /// The value. If the files cannot be used since they have changed, it is the one that they had before.
    pub(super) fn get(&self) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.files.is_empty() || state.looked.elapsed() < self.pause {
            return state.value.clone();
        }
        state.looked = Instant::now();
        let seen = look(&self.files);
        if seen != state.seen {
            state.seen = seen;
            match (self.read)() {
                Ok(value) => {
                    state.value = value;
                    tracing::info!(
                        event = "webhook_files_read",
                        files = ?self.files,
                        "files of a handler \"http\" have changed; it uses the new ones"
                    );
                }
                Err(error) => tracing::warn!(
                    event = "webhook_files_refused",
                    %error,
                    "cannot use a changed file of a handler \"http\"; its previous content stays in use"
                ),
            }
        }
        state.value.clone()
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
        f.debug_struct("Watched").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let replace = |text: &str| {
            fs::write(folder.path().join("new"), text).unwrap();
            fs::rename(folder.path().join("new"), &file).unwrap();
        };
        let watched = |pause| {
            let path = file.clone();
            Watched::every(pause, [file.clone()], move || {
                let text = fs::read_to_string(&path).map_err(|error| SettingsError(error.to_string()))?;
                if text == "broken" { Err(SettingsError("broken".to_owned())) } else { Ok(text) }
            })
        };
        assert!(watched(Duration::ZERO).is_err(), "there is no file yet");
        replace("first");
        let (often, seldom) = (watched(Duration::ZERO).unwrap(), watched(Duration::from_hours(1)).unwrap());
        replace("second one");
        assert_eq!((&*often.get(), &*seldom.get()), ("second one", "first"));
        replace("broken");
        assert_eq!(often.get(), "second one");
        replace("third");
        assert_eq!(often.get(), "third");
        fs::remove_file(&file).unwrap();
        assert_eq!(often.get(), "third");
    }
}
