//! The keys in which two configurations differ.

use std::{collections::BTreeSet, fmt};

use toml::{Table, Value};

use crate::config::Config;

/// The path of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Key(Vec<String>);

impl Key {
    /// Its parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The queue that it is of, and the key in the queue's table; none of the latter where the whole queue is only in one of the two.
    pub(super) fn of_queue(&self) -> Option<(&str, Option<&str>)> {
        let mut parts = self.parts();
        (parts.next() == Some("queues")).then_some(())?;
        Some((parts.next()?, parts.next()))
    }
}

/// As a configuration's messages name it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// The keys that differ, in their order. Of a table that only one of them has, the table's key.
pub(super) fn diff(old: &Config, new: &Config) -> Vec<Key> {
    let table = |config| Table::try_from(config).expect("a configuration serialises");
    let mut keys = Vec::new();
    tables(&table(old), &table(new), &mut Vec::new(), &mut keys);
    keys
}

fn tables(old: &Table, new: &Table, path: &mut Vec<String>, keys: &mut Vec<Key>) {
    for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        path.push(key.clone());
        match (old.get(key), new.get(key)) {
            (Some(Value::Table(old)), Some(Value::Table(new))) => tables(old, new, path, keys),
            (old, new) if old == new => {}
            _ => keys.push(Key(path.clone())),
        }
        path.pop();
    }
}
