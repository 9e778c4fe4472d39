//! Handlers by name.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{AnyHandler, BatchHandler, Exec, Handler, Log, Settings, Stdout, pull::Pull};
use crate::config::{ConfigError, PULL, QueueConfig};

type Build = Box<dyn Fn(&Settings) -> Result<AnyHandler, String> + Send + Sync>;

/// The handlers a configuration may name.
pub struct Registry {
    builders: BTreeMap<String, Build>,
}

impl Registry {
    /// The handlers in the tree.
    pub fn builtin() -> Self {
        let mut registry = Self { builders: BTreeMap::new() };
        registry.add("exec", Exec::from_config);
        #[cfg(feature = "webhook")]
        registry.insert("http".to_owned(), super::http::build, |handler| handler);
        registry.add("log", Log::from_config);
        registry.add(PULL, Pull::from_config);
        registry.add("stdout", Stdout::from_config);
        registry
    }

    /// Adds a handler, or replaces the one of that name.
    pub fn add<H, E>(
        &mut self,
        name: impl Into<String>,
        build: impl Fn(&Settings) -> Result<H, E> + Send + Sync + 'static,
    ) where
        H: Handler,
        E: fmt::Display,
    {
        self.insert(name.into(), build, |handler| AnyHandler::Each(Arc::new(handler)));
    }

    /// As [`Registry::add`], for a handler of all items of one fetch.
    pub fn add_batch<H, E>(
        &mut self,
        name: impl Into<String>,
        build: impl Fn(&Settings) -> Result<H, E> + Send + Sync + 'static,
    ) where
        H: BatchHandler,
        E: fmt::Display,
    {
        self.insert(name.into(), build, |handler| AnyHandler::Batch(Arc::new(handler)));
    }

    fn insert<H: 'static, E: fmt::Display>(
        &mut self,
        name: String,
        build: impl Fn(&Settings) -> Result<H, E> + Send + Sync + 'static,
        handling: fn(H) -> AnyHandler,
    ) {
        let build: Build =
            Box::new(move |settings| build(settings).map(handling).map_err(|error| error.to_string()));
        self.builders.insert(name, build);
    }

    /// Makes the handler of the queue called `name`.
    pub(crate) fn build(&self, name: &str, queue: &QueueConfig) -> Result<AnyHandler, ConfigError> {
        let Some(build) = self.builders.get(&queue.handler) else {
            let key = format!("queues.{name}.handler");
            let names: Vec<_> = self.builders.keys().map(String::as_str).collect();
            let fix = format!("use one of {}", names.join(", "));
            return Err(ConfigError::value(
                key,
                format_args!("{:?}", queue.handler),
                "there is no such handler",
                fix,
            ));
        };
        let settings =
            Settings::new(queue.handler_config.clone()).with_handler_timeout(queue.handler_timeout);
        build(&settings).map_err(|problem| ConfigError::Handler {
            key: format!("queues.{name}.handler-config"),
            handler: queue.handler.clone(),
            problem,
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.builders.keys()).finish()
    }
}

/// Not the derive's empty one: a registry starts with the handlers in the tree.
impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::Item;

    use super::*;
    use crate::handlers::{Context, Outcome, SettingsError};

    fn problem(handler: &str, settings: &str) -> String {
        let mut queue = QueueConfig::new(handler);
        queue.handler_config = toml::from_str(settings).unwrap();
        match Registry::builtin().build("emails", &queue) {
            Ok(_) => panic!("{handler} accepts {settings:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn messages_name_key_value_and_fix() {
        insta::assert_snapshot!(problem("exce", ""), @r#"queues.emails.handler = "exce": there is no such handler; use one of exec, http, log, pull, stdout"#);
        insta::assert_snapshot!(problem("log", "loud = true"), @r#"queues.emails.handler-config: handler "log": loud: this handler has no settings; remove it"#);
        insta::assert_snapshot!(problem("exec", ""), @r#"queues.emails.handler-config: handler "exec": missing field `command`; write command = ["program", "argument"] in handler-config"#);
        insta::assert_snapshot!(problem("exec", "command = []"), @r#"queues.emails.handler-config: handler "exec": command = []: it names no program; write command = ["program", "argument"] in handler-config"#);
        insta::assert_snapshot!(problem("exec", "command = 'ls'"), @r#"queues.emails.handler-config: handler "exec": command: invalid type: string "ls", expected a sequence; write command = ["program", "argument"] in handler-config"#);
        insta::assert_snapshot!(problem("exec", "command = ['ls']\nshell = true"), @r#"queues.emails.handler-config: handler "exec": shell: unknown field `shell`, expected one of `command`, `mode`, `stderr-limit`, `dead-exit-codes`, `release-exit-codes`, `throttle-exit-codes`, `throttle-for`, `throttle-scope`, `result`, `progress`, `log-output`, `max-items`, `max-memory`, `start-timeout`, `idle-timeout`, `heartbeat-timeout`"#);
    }

    #[test]
    fn a_handler_is_called_per_item_or_per_batch_as_registered() {
        struct Whole;

        #[async_trait::async_trait]
        impl BatchHandler for Whole {
            async fn handle(&self, items: &[Item], _: &Context) -> Vec<Outcome> {
                vec![Outcome::Done; items.len()]
            }
        }

        let mut registry = Registry::builtin();
        registry.add_batch("whole", |_| Ok::<_, SettingsError>(Whole));
        let built = |name| registry.build("q", &QueueConfig::new(name)).unwrap();
        assert!(matches!(built("log"), AnyHandler::Each(_)));
        assert!(matches!(built("whole"), AnyHandler::Batch(_)));
    }
}
