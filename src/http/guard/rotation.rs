//! A secret that changes while the daemon runs: its file is read again when a client sends another secret than the active one.

use std::{path::PathBuf, time::Duration};

use tokio::{sync::Mutex, task::spawn_blocking, time::Instant};

use super::Token;

/// The file is not read more often, however many clients send wrong secrets.
pub(in crate::http) const PAUSE: Duration = Duration::from_secs(1);

/// The file's content when it was last read.
#[derive(Debug)]
pub(in crate::http) struct Rotation {
    pause: Duration,
    /// No secret if it could not be used.
    last: Mutex<Option<(Instant, Option<Token>)>>,
}

impl Default for Rotation {
    fn default() -> Self {
        Self::every(PAUSE)
    }
}

impl Rotation {
    fn every(pause: Duration) -> Self {
        Self { pause, last: Mutex::default() }
    }

    /// The secret that the file has now, or had less than the pause ago.
    pub(in crate::http) async fn read(&self, path: PathBuf) -> Option<Token> {
        let mut last = self.last.lock().await;
        if let Some((_, found)) = last.as_ref().filter(|(at, _)| at.elapsed() < self.pause) {
            return found.clone();
        }
        let at = Instant::now();
        let read = spawn_blocking(move || Token::read(&path)).await;
        // A reload with such a file reports it to the operator.
        let found = read.ok()?.inspect_err(|error| {
            tracing::debug!(
                event = "secret_unreadable",
                %error,
                "cannot read http.token-file; the previous secret stays"
            );
        });
        *last = Some((at, found.ok().flatten()));
        last.as_ref()?.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[tokio::test]
    async fn token_file_is_read_again_only_after_a_pause() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        let write = |secret: &str| fs::write(file.path(), secret).unwrap();
        let [often, once] = [0, 3_600].map(|seconds| Rotation::every(Duration::from_secs(seconds)));
        let read = async |rotation: &Rotation| rotation.read(file.path().to_owned()).await;
        write("the-first-of-secrets");
        let first = read(&once).await;
        assert!(first.is_some() && read(&often).await == first);
        write("the-second-of-secrets");
        assert!(read(&once).await == first && read(&often).await != first);
        write("short");
        assert_eq!(read(&often).await, None);
    }
}
