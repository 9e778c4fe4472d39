//! The form in which events are logged.

use std::{
    env, fs,
    io::{self, IsTerminal},
    os::{fd::AsFd, linux::fs::MetadataExt},
};

use super::journal;
use crate::config::{ConfigError, LogFormat};

/// Where events go.
pub(super) enum Output {
    Human,
    Json,
    Journal,
}

impl Output {
    /// The output of a setting. `auto` is the journal if stderr goes there anyway, and otherwise
    /// lines for people.
    pub(super) fn of(format: LogFormat) -> Result<Self, ConfigError> {
        match format {
            LogFormat::Human => Ok(Self::Human),
            LogFormat::Json => Ok(Self::Json),
            LogFormat::Journald => journal::probe().map(|()| Self::Journal).map_err(|error| {
                ConfigError::value(
                    "log.format",
                    "\"journald\"",
                    format!("there is no journal to write to: {error}"),
                    "use \"auto\", \"human\" or \"json\", or run it where systemd-journald runs",
                )
            }),
            // A journal that takes lines and no messages is one of another kind.
            LogFormat::Auto if is_journal() => Ok(journal::probe().map_or(Self::Human, |()| Self::Journal)),
            LogFormat::Auto => Ok(Self::Human),
        }
    }
}

/// Whether stderr is the journal's: systemd names it in the environment, which may have been handed on to something that writes
/// elsewhere.
fn is_journal() -> bool {
    let Some(named) = env::var("JOURNAL_STREAM").ok().and_then(|text| device_and_inode(&text)) else {
        return false;
    };
    if io::stderr().is_terminal() {
        return false;
    }
    let stderr = io::stderr().as_fd().try_clone_to_owned();
    let there = stderr.and_then(|stderr| fs::File::from(stderr).metadata());
    there.is_ok_and(|there| named == (there.st_dev(), there.st_ino()))
}

/// `8:1234`, in decimal.
fn device_and_inode(text: &str) -> Option<(u64, u64)> {
    let (device, inode) = text.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journals_stream_is_named_by_device_and_inode() {
        assert_eq!(device_and_inode("8:1234"), Some((8, 1_234)));
        for wrong in ["", "8", "8:", "a:b", "8:1:2", "-8:1"] {
            assert_eq!(device_and_inode(wrong), None, "{wrong}");
        }
    }
}
