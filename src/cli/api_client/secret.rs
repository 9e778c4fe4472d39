//! The token that a command sends.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use rustix::process::geteuid;

use crate::{base::users, config::Config, http::Token};

/// The permission of a file's group to read it.
const GROUP_READS: u32 = 0o040;

/// A token that a command sends.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Secret {
    pub(super) token: Token,
    /// The users who may read the file that the token comes from. `None` if it is from
    /// `KVQUEUE_TOKEN`.
    pub(super) readers: Option<Readers>,
}

impl Secret {
    /// Whether it is the token in `KVQUEUE_TOKEN`.
    pub(super) fn is_of_environment(&self) -> bool {
        self.readers.is_none()
    }

    /// The token in `KVQUEUE_TOKEN`.
    pub(in crate::cli) fn of_environment() -> anyhow::Result<Option<Self>> {
        Ok(Token::of_environment()?.map(|token| Self { token, readers: None }))
    }
}

/// The token that a command sends to its own daemon.
pub(in crate::cli) fn secret(config: &Config) -> anyhow::Result<Option<Secret>> {
    if let Some(secret) = Secret::of_environment()? {
        return Ok(Some(secret));
    }
    let Some(path) = config.http.token_path(&config.database) else { return Ok(None) };
    let Some(token) = Token::read(&path)? else { return Ok(None) };
    Ok(Some(Secret { token, readers: Some(Readers::of(&path)?) }))
}

/// The users who may read the operator's secret, and so may get it from a command: root, the owner
/// of its file, and the file's group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readers {
    pub(super) owner: u32,
    group: Option<u32>,
}

impl Readers {
    pub(super) fn of(file: &Path) -> io::Result<Self> {
        let found = fs::metadata(file)?;
        Ok(Self { owner: found.uid(), group: (found.mode() & GROUP_READS != 0).then(|| found.gid()) })
    }

    /// Whether a user may read it. The user of this command has read it.
    pub(super) fn contain(self, uid: u32) -> bool {
        [0, geteuid().as_raw(), self.owner].contains(&uid)
            || self.group.is_some_and(|gid| users::is_in_group(uid, gid))
    }
}
