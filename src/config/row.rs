//! What there is to know about a setting besides its type and its default, which are those of its field: what it means, how small and how large its
//! value may be, which commands need it, and when a reload takes it up.

pub(super) mod range;

use range::{Bound, Range};

use super::ConfigError;

/// A setting. `*` in a key stands for the name of a queue.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) needed_by: NeededBy,
    pub(crate) reload: Reload,
    pub(super) range: Range,
    /// What it means, in Markdown. Links are relative to `docs/`.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documents, which tests write"))]
    pub(super) about: &'static str,
    /// Text for the reference in place of the field's default.
    pub(super) default: Option<&'static str>,
    /// A value in TOML, for a key without a default.
    pub(super) example: Option<&'static str>,
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
    pub(super) fn check(&self, settings: &toml::Table, path: &str, key: String) -> Result<(), ConfigError> {
        let mut parts = path.split('.');
        let first = parts.next().and_then(|part| settings.get(part));
        let Some(value) = parts.fold(first, |value, part| value?.get(part)) else { return Ok(()) };
        let or_none = if self.default.is_some() { ", or leave the key out" } else { "" };
        let wrong = self.range.check(value);
        wrong.map_err(|wrong| ConfigError::value(key, value, wrong.problem, wrong.fix + or_none))
    }
}
