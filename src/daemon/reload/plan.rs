//! The changes of a reload to each queue.

use super::{
    diff::{Key, diff},
    restart::{self, NeedsRestart},
};
use crate::config::Config;

/// Keys that running consumers do not depend on.
const HOT_KEYS: [&str; 3] = ["consumers", "max-payload", "idempotency-window"];

/// Keys that need another handler.
const HANDLER: [&str; 2] = ["handler", "handler-config"];

/// The changes from one configuration to another.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Plan {
    changed: Vec<Key>,
}

impl Plan {
    /// From `old` to `new`. The error names all keys that only a restart can change.
    pub(in crate::daemon) fn new(old: &Config, new: &Config) -> Result<Self, NeedsRestart> {
        let changed = diff(old, new);
        restart::check(&changed)?;
        Ok(Self { changed })
    }

    /// The keys that change.
    pub(in crate::daemon) fn changed(&self) -> Vec<String> {
        self.changed.iter().map(Key::to_string).collect()
    }

    /// Whether the queue's consumers can go on with their `QueueRuntime`. If not, new consumers replace them, because
    /// items end under the settings under which they were fetched.
    pub(in crate::daemon) fn keeps_runtime(&self, queue: &str) -> bool {
        !self.changes(queue, |key| !HOT_KEYS.contains(&key))
    }

    /// Whether the queue keeps its handler.
    pub(in crate::daemon) fn keeps_handler(&self, queue: &str) -> bool {
        !self.changes(queue, |key| HANDLER.contains(&key))
    }

    /// Whether the queue is added or removed, or changes in such a key.
    fn changes(&self, queue: &str, is_such: impl Fn(&str) -> bool) -> bool {
        let of_queues = self.changed.iter().filter_map(Key::of_queue);
        of_queues.filter(|(name, _)| *name == queue).any(|(_, key)| key.is_none_or(&is_such))
    }
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
