//! Another configuration for a running daemon: loads it, finds what it changes, and prepares everything that can fail
//! before anything changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    path::PathBuf,
    sync::Arc,
};

use toml::{Table, Value};

use super::configured::Configured;
use crate::{
    base::causes::with_causes,
    config::{Config, ConfigError, Reload, setting},
    control::CommandError,
    handlers::{AnyHandler, Registry},
    telemetry,
};

type Load = dyn Fn() -> Result<Config, ConfigError> + Send + Sync;

/// The source of reloads.
#[derive(Clone)]
pub(super) struct Loader {
    path: Option<PathBuf>,
    load: Arc<Load>,
}

/// A valid configuration, ready to take effect.
pub(super) struct Prepared {
    pub(super) config: Config,
    pub(super) plan: Plan,
    pub(super) configured: Configured,
}

impl Loader {
    pub(super) fn new(
        path: Option<PathBuf>,
        load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self { path, load: Arc::new(load) }
    }

    /// The file's path for messages, if there is a file.
    pub(super) fn path(&self) -> Option<String> {
        Some(self.path.as_ref()?.display().to_string())
    }

    /// Loads and checks the configuration and makes new handlers. Blocks: it reads files, and a handler's `build`
    /// may do anything.
    pub(super) fn prepare(
        &self,
        old: &Config,
        registry: &Registry,
        mut handlers: BTreeMap<Arc<str>, AnyHandler>,
    ) -> Result<Prepared, CommandError> {
        let config = (self.load)().map_err(|error| refused(&error))?;
        config.validate().map_err(|error| refused(&error))?;
        let plan = Plan::new(old, &config).map_err(|error| refused(&error))?;
        handlers.retain(|queue, _| plan.keeps_handler(queue));
        let mut configured =
            Configured::to_run(&config, registry, &handlers).map_err(|error| refused(&error))?;
        configured.files.make_missing(&config, &config.http.listen).map_err(|error| refused(&error))?;
        configured.log_warnings();
        Ok(Prepared { config, plan, configured })
    }
}

/// The error with its causes, on one line.
fn refused(error: &(dyn Error + 'static)) -> CommandError {
    CommandError(with_causes(error))
}

/// The changes from one configuration to another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    changed: Vec<Key>,
}

impl Plan {
    /// From `old` to `new`. The error names all keys that only a restart can change.
    pub(super) fn new(old: &Config, new: &Config) -> Result<Self, NeedsRestart> {
        let changed = diff(old, new);
        check_restart(&changed)?;
        Ok(Self { changed })
    }

    /// The keys that change.
    pub(super) fn changed(&self) -> Vec<String> {
        self.changed.iter().map(Key::to_string).collect()
    }

    /// Whether the queue's consumers can go on with their `QueueRuntime`. If not, new consumers replace them, because
    /// items end under the settings under which they were fetched.
    pub(super) fn keeps_runtime(&self, queue: &str) -> bool {
        !self.changes(queue, |reload| reload != Reload::AtOnce)
    }

    /// Whether the queue keeps its handler.
    pub(super) fn keeps_handler(&self, queue: &str) -> bool {
        !self.changes(queue, |reload| reload == Reload::NewHandler)
    }

    /// Whether the queue is added or removed, or changes in a setting that is taken up so.
    fn changes(&self, queue: &str, is_so: impl Fn(Reload) -> bool) -> bool {
        let of_queue =
            self.changed.iter().filter(|key| key.0.starts_with(&["queues".to_owned(), queue.to_owned()]));
        of_queue.into_iter().any(|key| key.reload().is_none_or(&is_so))
    }
}

/// The path of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key(Vec<String>);

impl Key {
    /// When the setting is taken up; `None` if the key is a queue that only one configuration has.
    fn reload(&self) -> Option<Reload> {
        let parts: Vec<_> = self.0.iter().map(String::as_str).collect();
        setting(&parts).map(|setting| setting.reload)
    }
}

/// As a configuration's messages name it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// The keys that differ, in their order. A table that only one configuration has is one key.
fn diff(old: &Config, new: &Config) -> Vec<Key> {
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

/// A configuration that takes effect only after a restart.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: changed, and read only when the daemon starts; restart it, or change that back")]
pub(super) struct NeedsRestart(String);

/// Refuses changes that need a restart.
fn check_restart(changed: &[Key]) -> Result<(), NeedsRestart> {
    let keys = changed.iter().filter(|key| key.reload() == Some(Reload::AtStart));
    let keys: Vec<_> = keys.map(Key::to_string).collect();
    if keys.is_empty() { Ok(()) } else { Err(NeedsRestart(telemetry::listed(&keys))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "shutdown-timeout = '10s'\n\
        [queues.a]\nhandler = 'log'\n\
        [queues.'b.c']\nhandler = 'exec'\nhandler-config = { command = ['x'] }";

    fn plan(new: &str) -> Result<Plan, NeedsRestart> {
        let [old, new] = [OLD, new].map(|text| toml::from_str::<Config>(text).unwrap());
        Plan::new(&old, &new)
    }

    /// The changed keys, whether `a` keeps its runtime, and whether it keeps its handler.
    fn of_a(lines: &str) -> (Vec<String>, bool, bool) {
        let plan = plan(&OLD.replace("'log'", lines)).unwrap();
        assert!(plan.keeps_runtime("b.c") && plan.keeps_handler("b.c"));
        (plan.changed(), plan.keeps_runtime("a"), plan.keeps_handler("a"))
    }

    #[test]
    fn an_equal_configuration_changes_nothing() {
        let plan = plan(OLD).unwrap();
        assert!(plan.changed().is_empty() && plan.keeps_runtime("a") && plan.keeps_handler("b.c"));
    }

    #[test]
    fn changed_settings_replace_the_queue_runtime_and_consumer_counts_do_not() {
        assert_eq!(
            of_a("'log'\nconsumers = [ { k = 3 } ]"),
            (vec!["queues.a.consumers".to_owned()], true, true)
        );
        assert_eq!(of_a("'log'\nlease = '5s'"), (vec!["queues.a.lease".to_owned()], false, true));
        assert_eq!(of_a("'log'\nretry.base = '5s'"), (vec!["queues.a.retry.base".to_owned()], false, true));
        assert_eq!(
            of_a("'log'\nhandler-timeout = '5s'"),
            (vec!["queues.a.handler-timeout".to_owned()], false, true)
        );
        assert_eq!(of_a("'stdout'"), (vec!["queues.a.handler".to_owned()], false, false));
        assert_eq!(
            of_a("'log'\nhandler-config = { x = 1 }\nidempotency-window = '1h'"),
            (
                vec!["queues.a.handler-config".to_owned(), "queues.a.idempotency-window".to_owned()],
                false,
                false
            )
        );
    }

    #[test]
    fn added_and_removed_queues_are_named_as_a_whole() {
        let plan = plan("shutdown-timeout = '10s'\n[queues.n]\nhandler = 'log'\n[queues.a]\nhandler = 'log'")
            .unwrap();
        assert_eq!(plan.changed(), ["queues.b.c", "queues.n"]);
        assert!(!plan.keeps_runtime("n") && !plan.keeps_handler("n"));
    }

    #[test]
    fn a_changed_handler_setting_is_named() {
        let plan = plan(&OLD.replace("['x']", "['y']")).unwrap();
        assert_eq!(plan.changed(), ["queues.b.c.handler-config.command"]);
        assert!(!plan.keeps_handler("b.c") && plan.keeps_runtime("a"));
    }

    #[test]
    fn the_error_names_all_keys_that_need_a_restart() {
        let new = "database = 'x'\nprefix = 'y'\nshutdown-timeout = '1s'\nlog = { format = 'json', level = 'debug' }\n\
            [queues.a]\nhandler = 'stdout'\nkind = 'recipe'\nvalues = 'tuple'";
        let problem = plan(new).unwrap_err().to_string();
        insta::assert_snapshot!(problem, @"database, log.format, prefix, queues.a.kind, queues.a.values: changed, and read only when the daemon starts; restart it, or change that back");
    }
}
