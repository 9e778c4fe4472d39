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
    /// embedded:DIRECTORY, the path of a FoundationDB cluster file, or for commands that a daemon can carry out, its URL
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

/// What people call their configuration file. It is read only if it is named.
pub(super) const USUAL_FILE: &str = "kvqueue.toml";

/// The variables that name the database; the second one is systemd's, for services.
const NAMES_DATABASE: [&str; 2] = ["KVQUEUE_DATABASE", "STATE_DIRECTORY"];

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

    /// Whether a file, a variable or an option says where the database is. Otherwise only the working directory does.
    pub(super) fn names_database(&self) -> bool {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.database.is_some() || self.config.is_some() || NAMES_DATABASE.iter().any(is_set)
    }

    /// Whether nothing says where the database is, while the working directory has a file that looks like the configuration.
    pub(super) fn leaves_file_unread(&self) -> bool {
        !self.names_database() && Path::new(USUAL_FILE).is_file()
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
        self.start_with(telemetry::init_command, self.load_leniently())
    }

    /// The same for a command that asks a daemon. If the command line names one, it goes on without a file that cannot be used.
    pub(super) fn start_to_ask(&self, is_named: bool) -> Result<(Config, Vec<Fault>), ConfigError> {
        self.start_with(telemetry::init_command, self.load_to_ask(is_named))
    }

    /// The same for one that goes on as a daemon does.
    pub(super) fn start_worker(&self, is_named: bool) -> Result<(Config, Vec<Fault>), ConfigError> {
        self.start_with(telemetry::init_daemon, self.load_to_ask(is_named))
    }

    fn load_to_ask(&self, is_named: bool) -> Result<(Config, Vec<Fault>), ConfigError> {
        match self.load_leniently() {
            Err(error) if is_named && self.config.is_some() => {
                let (config, mut faults) = Self { config: None, ..self.clone() }.load_leniently()?;
                faults.push(Fault { error, place: Place::Database });
                Ok((config, faults))
            }
            loaded => loaded,
        }
    }

    fn start_with(
        &self,
        log: fn(&Log) -> Result<(), ConfigError>,
        loaded: Result<(Config, Vec<Fault>), ConfigError>,
    ) -> Result<(Config, Vec<Fault>), ConfigError> {
        let (config, faults) = loaded?;
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
            Place::Queues => "run, and commands about the items of queues".to_owned(),
            Place::Database => "run, and commands that open the database".to_owned(),
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
