//! `kvqueue run`

use std::{
    io::{self, IsTerminal},
    num::NonZeroUsize,
    path::Path,
};

use super::{
    globals::{Globals, warn_of_ignored_variables},
    output, values,
};
use crate::{
    base::exit::Exit,
    config::{Config, ConfigError, LogFormat, QueueConfig},
    daemon::{Daemon, DaemonError},
    telemetry,
};

/// Run the daemon: process the configured queues, or the one that options describe
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Run the daemon: process the configured queues, or the one that options describe.\n\n\
    With --queue only that queue is processed; other options override what the configuration says about it. TERM or \
    INT lets the running handlers finish, for as long as `shutdown-timeout` says, and gives other items back; a second one ends the \
    daemon at once. HUP makes it reload its configuration, USR1 makes it log its state.\n\n\
    With --until-empty it ends when nothing is left to be done: nothing is ready, nothing is running, in this daemon or \
    another, and nothing waits for its time, such as items that are to be tried again. It waits for a paused queue."
)]
pub(super) struct Args {
    /// Only this queue
    #[arg(long, add = super::completions::queue())]
    queue: Option<String>,
    /// The handler of the items: log, stdout, exec, http, pull, or one that this program adds
    #[arg(long, requires = "queue")]
    handler: Option<String>,
    /// The number of consumers
    #[arg(long, value_name = "N", requires = "queue", value_parser = values::items, allow_negative_numbers = true)]
    consumers: Option<NonZeroUsize>,
    /// The most items of one fetch
    #[arg(short, requires = "queue", value_parser = values::items, allow_negative_numbers = true)]
    k: Option<NonZeroUsize>,
    /// Stop when nothing is left to be done
    #[arg(long)]
    until_empty: bool,
    /// With --until-empty: exit with 65 if items became dead letters
    #[arg(long, requires = "until_empty")]
    fail_on_dead: bool,
}

impl Args {
    pub(super) fn run(
        self,
        globals: &Globals,
        register: impl FnOnce(Daemon) -> Daemon,
    ) -> anyhow::Result<Exit> {
        let config = self.load(globals)?;
        telemetry::init_daemon(&config.log)?;
        warn_of_ignored_variables();
        let (format, until_empty) = (config.log.format, self.until_empty);
        let directory = fdb_embedded::embedded_directory(&config.database);
        let path = globals.config().map(Path::to_owned);
        let daemon = register(Daemon::new(config))
            .until_empty(until_empty)
            .fail_on_dead(self.fail_on_dead)
            .first_answer_within(globals.timeout());
        // A log that is kept must not have the link.
        let daemon = if matches!(format, LogFormat::Auto | LogFormat::Human)
            && !globals.quiet
            && io::stderr().is_terminal()
        {
            daemon.on_listening(|link| output::note(format_args!("kvqueue: the page is at {link}")))
        } else {
            daemon
        };
        // This program's `main` knows how to be one.
        #[cfg(target_os = "linux")]
        crate::handlers::exec::reaper::allow();
        let globals = globals.clone();
        let daemon = daemon.reload_with(path, move || self.load(&globals));
        let ended = daemon.run().inspect_err(|error| {
            // People read the message on stderr; programs that collect JSON need it there.
            if let (LogFormat::Json, DaemonError::Run(error)) = (format, error) {
                tracing::error!(
                    event = "daemon_failed",
                    %error,
                    "the daemon stopped with an error"
                );
            }
        });
        #[cfg(target_os = "linux")]
        crate::handlers::exec::reaper::finish();
        telemetry::finish();
        let is_gone = directory.is_some_and(|directory| !fdb_embedded::is_database(&directory));
        ended.map_err(|error| match error {
            DaemonError::Run(error) if is_gone => DaemonError::Gone(error),
            error => error,
        })?;
        Ok(Exit::Done)
    }

    /// The daemon's configuration, from the file, the environment and the options.
    fn load(&self, globals: &Globals) -> Result<Config, ConfigError> {
        let mut config = globals.load()?;
        self.apply(&mut config)?;
        config.validate()?;
        Ok(config)
    }

    /// Lays the options over the configuration.
    fn apply(&self, config: &mut Config) -> Result<(), ConfigError> {
        let Some(name) = self.queue.clone() else { return Ok(()) };
        let mut queue = match (config.queues.remove(&name), self.handler.clone()) {
            (Some(queue), None) => queue,
            // Settings of one handler mean nothing to another.
            (Some(queue), Some(handler)) if queue.handler != handler => {
                QueueConfig { handler, handler_config: toml::Table::new(), ..queue }
            }
            (Some(queue), Some(_)) => queue,
            (None, Some(handler)) => {
                // The file says nothing about the queue, so the queue's schedules stay as they are.
                config.schedule_owner = None;
                QueueConfig::new(handler)
            }
            (None, None) => {
                let problem = "the queue is not in the configuration";
                let fix = "say what to do with its items, as in --handler stdout";
                return Err(ConfigError::value("queues", format_args!("{name:?}"), problem, fix));
            }
        };
        if self.consumers.is_some() || self.k.is_some() {
            let mut group = queue.consumers.first().copied().unwrap_or_default();
            group.k = self.k.map(NonZeroUsize::get).or(group.k);
            group.count = self.consumers.map_or(group.count, NonZeroUsize::get);
            queue.consumers = vec![group];
        }
        config.queues = [(name, queue)].into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConsumerGroup;

    const NONE: Args = Args {
        queue: None,
        handler: None,
        consumers: None,
        k: None,
        until_empty: false,
        fail_on_dead: false,
    };

    fn config() -> Config {
        toml::from_str(
            "[queues.a]\nhandler = 'exec'\nconsumers = [ { k = 5, count = 2 } ]\nhandler-config = { command = ['x'] }\n\
             [queues.b]\nhandler = 'log'",
        )
        .unwrap()
    }

    fn applied(args: &Args) -> Config {
        let mut config = config();
        args.apply(&mut config).unwrap();
        config
    }

    #[test]
    fn without_options_the_configuration_stays() {
        assert_eq!(applied(&NONE), config());
    }

    #[test]
    fn queue_option_selects_one_queue_with_its_settings() {
        let config = applied(&Args { queue: Some("a".into()), k: NonZeroUsize::new(7), ..NONE });
        assert_eq!(config.queues.len(), 1);
        assert_eq!(config.queues["a"].consumers, [ConsumerGroup { k: Some(7), count: 2 }]);
        assert!(config.queues["a"].handler_config.contains_key("command"));
    }

    #[test]
    fn handler_option_discards_settings_of_the_configured_handler() {
        let config = applied(&Args { queue: Some("a".into()), handler: Some("log".into()), ..NONE });
        assert!(config.queues["a"].handler_config.is_empty());
    }

    #[test]
    fn an_unknown_queue_needs_a_handler() {
        let error = Args { queue: Some("new".into()), ..NONE }.apply(&mut config()).unwrap_err();
        insta::assert_snapshot!(error, @r#"queues = "new": the queue is not in the configuration; say what to do with its items, as in --handler stdout"#);
    }
}
