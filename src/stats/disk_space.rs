//! Reads the free space on the disk of an embedded database every few seconds, and sets the
//! configured limit.

use std::{convert::Infallible, future::pending, path::PathBuf, sync::Arc, time::Duration};

use fdb_embedded::space::{self, Space};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{
    config::{Config, MinFreeSpace},
    database::{origin, refusal},
    status::{DaemonStatus, SpaceJson},
};

/// How often it is read.
const LOOK: Duration = Duration::from_secs(2);

/// The longest that a start waits for a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches the disk of one database directory.
pub(crate) struct Watch {
    status: Arc<DaemonStatus>,
    config: watch::Receiver<Arc<Config>>,
    /// None on a cluster.
    directory: Option<PathBuf>,
    /// The limit whose writing failed last.
    failed: Option<MinFreeSpace>,
}

impl Watch {
    pub(crate) fn new(status: Arc<DaemonStatus>, config: watch::Receiver<Arc<Config>>) -> Self {
        let directory = fdb_embedded::embedded_directory(&config.borrow().database);
        Self { status, config, directory, failed: None }
    }

    /// Reads once, and puts the configured limit in force.
    pub(crate) async fn begin(mut self) {
        let _ = timeout(PATIENCE, self.look()).await;
    }

    /// Reads again and again.
    pub(crate) async fn forever(mut self) -> Infallible {
        if self.directory.is_none() {
            return pending().await;
        }
        loop {
            self.look().await;
            tokio::select! {
                () = sleep(LOOK) => {}
                // If the other end is dropped, no more changes come.
                Ok(()) = self.config.changed() => {}
            }
        }
    }

    async fn look(&mut self) {
        let wanted = self.config.borrow_and_update().min_free_space;
        let Some(directory) = self.directory.clone() else { return };
        let looked = spawn_blocking(move || {
            let written = match wanted {
                MinFreeSpace::Auto => Ok(()),
                MinFreeSpace::Bytes(bytes) => space::set_min_free(&directory, Some(bytes)),
            };
            let found = Space::known(&directory);
            (written, found.map(|space| (space, refusal(&directory, &space))))
        });
        let Ok((written, found)) = looked.await else { return };
        match written {
            Ok(()) => self.failed = None,
            Err(error) => {
                // It is tried again with each reading.
                if self.failed.replace(wanted) != Some(wanted) {
                    tracing::warn!(
                        event = "min_free_space_not_written",
                        %error,
                        "cannot write min-free-space to the database's directory; the previous limit stays"
                    );
                }
            }
        }
        match found {
            Ok((space, refused)) => self.found(space, refused),
            Err(error) => {
                tracing::debug!(
                    event = "free_space_unknown",
                    %error,
                    "cannot read the free space of the database's disk"
                );
            }
        }
    }

    fn found(&self, space: Space, pushes_refused: Option<String>) {
        let Space { free, total, min_free, own, .. } = space;
        let was_refused = self.status.refuses_pushes().is_some();
        match &pushes_refused {
            Some(reason) if !was_refused => {
                tracing::warn!(
                    event = "pushes_refused",
                    free,
                    reusable = own,
                    min_free,
                    reason,
                    "the disk is nearly full; pushes are refused"
                );
            }
            None if was_refused => {
                tracing::info!(
                    event = "pushes_accepted",
                    free,
                    reusable = own,
                    min_free,
                    "pushes are accepted again"
                );
            }
            _ => {}
        }
        let limit_from = origin(&space, &self.config.borrow());
        self.status.space(SpaceJson { free, total, min_free, limit_from, reusable: own, pushes_refused });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_of_the_configuration_is_written_and_followed() {
        let directory = tempfile::tempdir().unwrap();
        let database = format!("embedded:{}", directory.path().display());
        let config = |min_free_space| {
            Arc::new(Config { database: database.clone(), min_free_space, ..Config::default() })
        };
        let file = directory.path().join(space::FILE);
        let (sender, receiver) = watch::channel(config(MinFreeSpace::Auto));
        let status = DaemonStatus::new(&database);
        let look = || async {
            Watch::new(status.clone(), receiver.clone()).begin().await;
            status.snapshot().database.space.unwrap()
        };
        look().await;
        assert!(!file.exists(), "a limit was written that nobody set");
        sender.send_replace(config(MinFreeSpace::Bytes(u64::MAX)));
        look().await;
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), u64::MAX.to_string());
        sender.send_replace(config(MinFreeSpace::Bytes(0)));
        let off = look().await;
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "0");
        assert_eq!((off.min_free, off.pushes_refused), (0, None));
        assert!(off.total > 0 && off.free <= off.total, "{}", off.free);
    }

    #[tokio::test]
    async fn a_cluster_has_no_space_statistics() {
        let database = "/etc/foundationdb/fdb.cluster".to_owned();
        let min_free_space = MinFreeSpace::Bytes(1);
        let config = Config { database, min_free_space, ..Config::default() };
        let status = DaemonStatus::new(&config.database);
        Watch::new(status.clone(), watch::Sender::new(Arc::new(config)).subscribe()).begin().await;
        assert!(status.snapshot().database.space.is_none());
    }
}
