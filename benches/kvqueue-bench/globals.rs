//! Options that every command of kvqueue has, as far as they mean something here.

use std::path::{PathBuf, absolute};

use clap::{
    ArgAction, Args,
    builder::{PathBufValueParser, TypedValueParser},
};
use kvqueue::{Config, ConfigError, config, telemetry};

/// `kvqueue bench` puts its own options in front of the others: the last one counts.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Globals {
    /// embedded:DIRECTORY, or the path of a FoundationDB cluster file
    #[arg(long, global = true, value_name = "URL", overrides_with = "database")]
    pub(super) database: Option<String>,
    /// The configuration file; without it, the one that KVQUEUE_CONFIG names, or defaults and KVQUEUE_... variables
    #[arg(long, global = true, value_name = "FILE", overrides_with = "config", value_parser = PathBufValueParser::new().try_map(absolute))]
    pub(super) config: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true, overrides_with = "json")]
    pub(super) json: bool,
    /// Tell more on stderr; repeat for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// Tell nothing but errors on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose", overrides_with = "quiet")]
    pub(super) quiet: bool,
}

impl Globals {
    /// The configuration: defaults, file, environment, these options.
    pub(super) fn load(&self) -> Result<Config, ConfigError> {
        let mut config = config::load(self.config.as_deref())?;
        if let Some(database) = &self.database {
            config.database = config::absolute_database(database);
        }
        // What a daemon logs about itself is not wanted here; and the span of an item costs a
        // microsecond or two.
        let off = telemetry::SPAN_TARGET;
        config.log.level = match self.verbose {
            0 if self.quiet => format!("error,{off}=off"),
            0 => format!("warn,{off}=off"),
            1 => "info,kvqueue=debug,kvqueue_queue=debug,fdb_embedded=debug".to_owned(),
            2 => "debug".to_owned(),
            _ => "trace".to_owned(),
        };
        config.validate()?;
        Ok(config)
    }
}
