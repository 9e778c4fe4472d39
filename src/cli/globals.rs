//! Options that every command has.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clap::builder::{PathBufValueParser, TypedValueParser};

use super::audited::Audited;
use crate::{
    config::{self, Config, ConfigError, Fault, Log, Place, duration},
    database::Patience,
    telemetry,
};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Globals {
    /// embedded:DIRECTORY, or the path of a FoundationDB cluster file
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
    /// The configuration file; without it, the one that KVQUEUE_CONFIG names, or defaults and KVQUEUE_... variables
    #[arg(long, global = true, value_name = "FILE", value_parser = absolute())]
    config: Option<PathBuf>,
    /// How long to wait for an answer, as in 5s; then end with 69. Without it: until there is one
    #[arg(long, global = true, value_name = "TIME", value_parser = limit)]
    timeout: Option<Duration>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Tell more on stderr; repeat for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// Tell nothing but errors on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    #[arg(skip)]
    pub(super) audited: Audited,
}

/// Names the configuration file where `--config` does not. Empty is as good as unset.
const CONFIG: &str = "KVQUEUE_CONFIG";

/// The log events that `--quiet` keeps: errors, and that the default address is not free. Commands such as `status` ask the daemon that
/// has it, which may be another database's.
const QUIET: &str = "error,kvqueue::http::listener=warn";

impl Globals {
    /// Takes the file from the environment, if no option names it. `clap` would show the option in every usage line then.
    pub(super) fn read_environment(&mut self) {
        let named = || std::env::var_os(CONFIG).filter(|file| !file.is_empty()).map(PathBuf::from);
        // Only a process without a working directory has no absolute paths.
        self.config =
            self.config.take().or_else(|| named().map(|file| std::path::absolute(&file).unwrap_or(file)));
    }

    /// The value of `--database`, which wins over the file and the environment.
    pub(super) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// How long `--timeout` lets a command wait for an answer.
    pub(super) fn patience(&self) -> Patience {
        Patience::new(self.timeout)
    }

    /// The value of `--timeout`.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The value of `--config`.
    pub(super) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Defaults, file, environment, these options. Not validated: a command's own options may follow.
    pub(super) fn load(&self) -> Result<Config, ConfigError> {
        let mut config = config::load(self.config.as_deref())?;
        self.lay_over(&mut config);
        Ok(config)
    }

    /// The same, without the settings at fault that only some commands need.
    pub(super) fn load_leniently(&self) -> Result<(Config, Vec<Fault>), ConfigError> {
        let (mut config, mut faults) = config::load_leniently(self.config.as_deref())?;
        self.lay_over(&mut config);
        faults.append(&mut config.validate_leniently()?);
        Ok((config, faults))
    }

    fn lay_over(&self, config: &mut Config) {
        if let Some(database) = &self.database {
            config.database = config::absolute_database(database);
        }
        let level = match (self.quiet, self.verbose) {
            (true, _) => QUIET,
            (false, 0) => return,
            (false, 1) => "info,kvqueue=debug,kvqueue_queue=debug,fdb_embedded=debug",
            (false, 2) => "debug",
            (false, _) => "trace",
        };
        level.clone_into(&mut config.log.level);
    }

    /// The configuration of a command that adds nothing to it; logging starts.
    pub(super) fn start(&self) -> Result<Config, ConfigError> {
        let config = self.load()?;
        config.validate()?;
        telemetry::init_command(&config.log)?;
        warn_of_ignored_variables();
        Ok(config)
    }

    /// The same for a command that does not need all settings. Logging starts, and the faults are logged.
    pub(super) fn start_leniently(&self) -> Result<(Config, Vec<Fault>), ConfigError> {
        self.start_with(telemetry::init_command)
    }

    /// The same for a command that goes on as a daemon does.
    pub(super) fn start_worker(&self) -> Result<(Config, Vec<Fault>), ConfigError> {
        self.start_with(telemetry::init_daemon)
    }

    fn start_with(
        &self,
        log: fn(&Log) -> Result<(), ConfigError>,
    ) -> Result<(Config, Vec<Fault>), ConfigError> {
        let (config, faults) = self.load_leniently()?;
        log(&config.log)?;
        warn_of_ignored_variables();
        warn_of_faults(&faults);
        Ok((config, faults))
    }
}

/// Logs the faults that a command ignores, once.
fn warn_of_faults(faults: &[Fault]) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if WARNED.swap(true, Ordering::Relaxed) {
        return;
    }
    for Fault { error, place } in faults {
        let needed_by = match place {
            Place::Daemon => "run".to_owned(),
            Place::Http => "run, and commands that ask a daemon".to_owned(),
            Place::Queue(name) => format!("run, and commands about queue {name}"),
        };
        tracing::warn!(
            event = "configuration_invalid",
            reason = %error,
            needed_by,
            "ignoring a fault in the configuration; the commands that need the setting refuse it"
        );
    }
}

/// Reads a path and makes it absolute, so that messages name the same file for every reader.
fn absolute() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}

/// Reads the value of `--timeout`.
fn limit(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("nothing is answered in no time; give a time such as 5s".to_owned()),
        limit => Ok(limit),
    }
}

/// Logs, in one line, which variables look like settings and are none. Call it once logging has started.
pub(super) fn warn_of_ignored_variables() {
    let ignored = config::ignored_variables();
    if !ignored.is_empty() {
        tracing::warn!(
            event = "variables_ignored",
            variables = ignored.join(" "),
            "ignoring environment variables that name no setting; see kvqueue.toml(5), or run: kvqueue config manual"
        );
    }
}
