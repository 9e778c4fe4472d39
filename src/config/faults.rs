//! Faults of a configuration that a command can ignore, because it does not need the settings at fault.

use serde_path_to_error::{Path, Segment};

use super::{
    Config, ConfigError, Log, nearest,
    row::NeededBy,
    settings::{needed_by_commands_about_a_queue, setting},
};

/// A fault in a setting that only some commands need.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: ConfigError,
    pub(crate) place: Place,
}

/// Which commands need the setting at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Only the daemon.
    Daemon,
    /// Commands that ask a daemon.
    Http,
    /// Commands about this queue.
    Queue(String),
    /// Commands about any queue: the settings of one may be lost.
    Queues,
    /// Commands that open the database.
    Database,
}

impl Place {
    /// The place of a key. `None` if the key, or one that it resembles, determines where items are.
    pub(super) fn of(keys: &[&str]) -> Option<Self> {
        let needed_by = setting(keys).map(|setting| setting.needed_by);
        match (keys, needed_by) {
            (_, Some(NeededBy::Daemon)) => Some(Self::Daemon),
            (_, Some(NeededBy::Http)) | (["http", ..], _) => Some(Self::Http),
            (["log", ..], _) => Some(Self::Daemon),
            // An unknown key may be a misspelt one.
            (["queues", _, key, ..], _) if nearest(key, needed_by_commands_about_a_queue()).is_none() => {
                Some(Self::Daemon)
            }
            (["queues", name, ..], _) => Some(Self::Queue((*name).to_owned())),
            _ => None,
        }
    }
}

/// Removes the setting at `path` from a configuration, so that the rest can be read. Does nothing if every command needs
/// the setting.
pub(super) fn pass_over(merged: &mut toml::Table, path: &Path) -> Option<Place> {
    let key = |segment: &'_ Segment| match segment {
        Segment::Map { key } => Some(key.clone()),
        _ => None,
    };
    let keys: Vec<String> = path.iter().map_while(key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let place = Place::of(&keys)?;
    let (last, parents) = keys.split_last()?;
    let table = parents.iter().try_fold(merged, |table, key| table.get_mut(*key)?.as_table_mut())?;
    if let (["queues", _], Some(queue)) =
        (&keys[..], table.get_mut(*last).and_then(toml::Value::as_table_mut))
        && !queue.contains_key("handler")
    {
        queue.insert("handler".to_owned(), toml::Value::String(String::new()));
        return Some(Place::Daemon);
    }
    table.remove(*last)?;
    Some(place)
}

impl Config {
    /// As [`Self::validate`], but returns the faults that some commands can ignore.
    pub(crate) fn validate_leniently(&mut self) -> Result<Vec<Fault>, ConfigError> {
        self.validate_database()?;
        let mut faults = Vec::new();
        let mut add = |error, place| faults.push(Fault { error, place });
        if let Err(error) = super::log_levels(&self.log.level) {
            self.log = Log::default();
            add(error, Place::Daemon);
        }
        for error in self.out_of_range() {
            let key: Vec<_> = error.key().split('.').collect();
            let place = Place::of(&key).unwrap_or(Place::Daemon);
            add(error, place);
        }
        if let Err(error) = self.validate_schedule_owner() {
            add(error, Place::Daemon);
        }
        if let Err(error) = self.http.validate() {
            add(error, Place::Http);
        }
        for (name, queue) in &self.queues {
            if let Err(error) = queue.validate(name, self.shutdown_timeout) {
                let key = error.key().strip_prefix(&format!("queues.{name}.")).unwrap_or_default();
                let first = key.split(['.', '[']).next().unwrap_or_default();
                let place = Place::of(&["queues", name, first]).unwrap_or(Place::Daemon);
                add(error, place);
            }
        }
        Ok(faults)
    }
}
