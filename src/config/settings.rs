//! The list of all settings. Their rows are next to the fields, in `model.rs`, `http.rs` and `queue.rs`.
//!
//! The checks of ranges, the plan of a reload and the commands' tolerance of faults read these rows. Tests write from them
//! `config/kvqueue.toml` and the tables of `docs/CONFIG.md`.

#[cfg(test)]
mod documents;

use super::{
    ConfigError, http, model, queue,
    row::{NeededBy, Setting},
};

/// All of them, in the order of the documents.
fn all() -> impl Iterator<Item = &'static Setting> {
    [model::SETTINGS, http::SETTINGS, queue::SETTINGS].into_iter().flatten()
}

/// The setting with this key, or the one with the table that the key is in.
pub(crate) fn setting(key: &[&str]) -> Option<&'static Setting> {
    let is_part =
        |wanted: &str, part: Option<&&str>| part.is_some_and(|part| wanted == "*" || wanted == *part);
    all().find(|setting| {
        let mut parts = key.iter();
        setting.key.split('.').all(|wanted| is_part(wanted, parts.next()))
    })
}

/// The names of a queue's settings that commands about the queue need.
pub(super) fn needed_by_commands_about_a_queue() -> impl Iterator<Item = &'static str> {
    let needed = all().filter(|setting| setting.needed_by == NeededBy::Queue);
    needed.filter_map(|setting| setting.key.strip_prefix(OF_A_QUEUE))
}

/// The beginning of a queue's keys in the table.
const OF_A_QUEUE: &str = "queues.*.";

/// The values out of their ranges, in the daemon's own settings. `config` is the whole of them as TOML.
pub(super) fn out_of_range(config: &toml::Table) -> impl Iterator<Item = ConfigError> {
    let own = all().filter(|setting| !setting.key.starts_with(OF_A_QUEUE));
    own.filter_map(|setting| setting.check(config, setting.key, setting.key.to_owned()).err())
}

/// The values out of their ranges, in the settings of the queue `name`. `queue` is its table.
pub(super) fn out_of_range_in_queue(name: &str, queue: &toml::Table) -> impl Iterator<Item = ConfigError> {
    let of_queues = all().filter_map(|setting| Some((setting, setting.key.strip_prefix(OF_A_QUEUE)?)));
    of_queues
        .filter_map(move |(setting, key)| setting.check(queue, key, format!("queues.{name}.{key}")).err())
}
