//! A secret that changes while the daemon runs: its file is read again when a client sends another secret than the active one.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, task::spawn_blocking, time::sleep_until};

use super::Token;

/// New secrets and tokens are not looked for more often, however many clients send wrong ones.
pub(in crate::http) const LOOK: Duration = Duration::from_millis(100);

/// The file's content when it was last read, and when that read began. No secret if it could not be used.
#[derive(Debug, Default)]
pub(in crate::http) struct Rotation(Mutex<Option<(Instant, Option<Token>)>>);

impl Rotation {
    /// The secret that the file has had at this time or later. A call waits until the file may be read again.
    pub(in crate::http) async fn read_since(&self, time: Instant, path: PathBuf) -> Option<Token> {
        let mut last = self.0.lock().await;
        if let Some((at, found)) = &*last {
            if *at >= time {
                return found.clone();
            }
            sleep_until((*at + LOOK).into()).await;
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
    async fn a_look_that_began_after_the_call_answers_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        let write = |secret: &str| fs::write(file.path(), secret).unwrap();
        let (rotation, began) = (Rotation::default(), Instant::now());
        let read = async |time: Instant| rotation.read_since(time, file.path().to_owned()).await;
        write("the-first-of-secrets");
        let first = read(began).await;
        write("the-second-of-secrets");
        assert!(first.is_some() && read(began).await == first, "it is not read again for an earlier call");
        let second = read(Instant::now()).await;
        assert!(second.is_some() && second != first && began.elapsed() >= LOOK);
        write("short");
        assert_eq!(read(Instant::now()).await, None);
    }
}
