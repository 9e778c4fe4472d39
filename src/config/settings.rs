//! What there is to know about a setting besides its type and its default, which are those of its field: what it means, how small and how large its
//! value may be, which commands need it, and when a reload takes it up. The rows are next to the fields, in `model.rs`, `http.rs` and `queue.rs`.
//!
//! The checks of ranges, the plan of a reload and the commands' tolerance of faults read these rows. Tests write from them
//! `config/kvqueue.toml` and the tables of `docs/CONFIG.md`.

#[cfg(test)]
mod documents;
pub(super) mod range;

use range::{Bound, Range};

use super::{ConfigError, http, model, queue};

/// A setting. `*` in a key stands for the name of a queue.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) needed_by: NeededBy,
    pub(crate) reload: Reload,
    range: Range,
    /// What it means, in Markdown. Links are relative to `docs/`.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documents, which tests write"))]
    about: &'static str,
    /// Text for the reference in place of the field's default.
    default: Option<&'static str>,
    /// A value in TOML, for a key without a default.
    example: Option<&'static str>,
}

/// Which commands cannot do without a setting. `run`, `config`, `bench` and `migrate` need all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeededBy {
    /// Every command: it determines where the queues are.
    All,
    /// Commands that ask a daemon.
    Http,
    /// Commands about this queue.
    Queue,
    /// Only the commands that need all.
    Daemon,
}

/// When a reload takes up another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reload {
    /// It takes effect at once; running consumers stay.
    AtOnce,
    /// It takes effect as running consumers finish their items and new ones replace them.
    NewConsumers,
    /// As [`Reload::NewConsumers`], and the handler is built again.
    NewHandler,
    /// The reload is refused: the daemon has to be started again.
    AtStart,
}

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

impl Setting {
    pub(super) const fn new(key: &'static str, about: &'static str) -> Self {
        Self {
            key,
            about,
            default: None,
            example: None,
            needed_by: NeededBy::Daemon,
            reload: Reload::AtStart,
            range: Range::ALL,
        }
    }

    /// With words in place of the default, and a value that could be set.
    pub(super) const fn without_default(mut self, words: &'static str, example: &'static str) -> Self {
        (self.default, self.example) = (Some(words), Some(example));
        self
    }

    /// With the least value, and the reason.
    pub(super) const fn at_least(mut self, least: Bound, reason: &'static str) -> Self {
        self.range.least = Some((least, reason));
        self
    }

    /// With the largest value, and the reason.
    pub(super) const fn at_most(mut self, most: Bound, reason: &'static str) -> Self {
        self.range.most = Some((most, reason));
        self
    }

    /// With a meaning of zero, although that is less than the least value.
    pub(super) const fn zero_is(mut self, meaning: &'static str) -> Self {
        self.range.zero = Some(meaning);
        self
    }

    pub(super) const fn needed_by(mut self, needed_by: NeededBy) -> Self {
        self.needed_by = needed_by;
        self
    }

    pub(super) const fn reload(mut self, reload: Reload) -> Self {
        self.reload = reload;
        self
    }

    /// Checks the value at `path` of `settings`, if there is one. Messages call it `key`.
    fn check(&self, settings: &toml::Table, path: &str, key: String) -> Result<(), ConfigError> {
        let mut parts = path.split('.');
        let first = parts.next().and_then(|part| settings.get(part));
        let Some(value) = parts.fold(first, |value, part| value?.get(part)) else { return Ok(()) };
        let or_none = if self.default.is_some() { ", or leave the key out" } else { "" };
        let wrong = self.range.check(value);
        wrong.map_err(|wrong| ConfigError::value(key, value, wrong.problem, wrong.fix + or_none))
    }
}
