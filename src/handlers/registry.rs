//! Handlers by name.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{Exec, Handler, Log, Settings, Stdout};
use crate::config::{ConfigError, QueueConfig};

type Build = Box<dyn Fn(&Settings) -> Result<Arc<dyn Handler>, String> + Send + Sync>;

/// The handlers a configuration may name.
pub struct Registry {
    builders: BTreeMap<String, Build>,
}

impl Registry {
    /// The handlers in the tree.
    pub fn builtin() -> Self {
        let mut registry = Self { builders: BTreeMap::new() };
        registry.add("exec", Exec::from_config);
        registry.add("log", Log::from_config);
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
        let build: Build = Box::new(move |settings| match build(settings) {
            Ok(handler) => Ok(Arc::new(handler) as Arc<dyn Handler>),
            Err(error) => Err(error.to_string()),
        });
        self.builders.insert(name.into(), build);
    }

    /// Makes the handler of the queue called `name`.
    pub(crate) fn build(&self, name: &str, queue: &QueueConfig) -> Result<Arc<dyn Handler>, ConfigError> {
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
        build(&Settings::new(queue.handler_config.clone())).map_err(|problem| ConfigError::Handler {
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
    use super::*;

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
        insta::assert_snapshot!(problem("exce", ""), @r#"queues.emails.handler = "exce": there is no such handler; use one of exec, log, stdout"#);
        insta::assert_snapshot!(problem("log", "loud = true"), @r#"queues.emails.handler-config: handler "log": loud: this handler has no settings; remove it"#);
        insta::assert_snapshot!(problem("exec", ""), @r#"queues.emails.handler-config: handler "exec": missing field `command`; write command = ["program", "argument"] in handler-config"#);
        insta::assert_snapshot!(problem("exec", "command = []"), @r#"queues.emails.handler-config: handler "exec": command = []: it names no program; write command = ["program", "argument"] in handler-config"#);
        insta::assert_snapshot!(problem("exec", "command = 'ls'"), @r#"queues.emails.handler-config: handler "exec": command: invalid type: string "ls", expected a sequence; write command = ["program", "argument"] in handler-config"#);
        insta::assert_snapshot!(problem("exec", "command = ['ls']\nshell = true"), @r#"queues.emails.handler-config: handler "exec": shell: unknown field `shell`, expected `command` or `stderr-limit`; write command = ["program", "argument"] in handler-config"#);
    }
}
