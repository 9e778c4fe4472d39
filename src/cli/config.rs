//! `kvqueue config`

use anyhow::Context;

use super::{globals::Globals, output};
use crate::{
    base::exit::Exit,
    config::{Config, MinFreeSpace},
    daemon::Daemon,
    database::{limit_beyond_disk, no_cluster_file},
};

/// Check the configuration, or show it
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Tell whether the configuration is right; exit code 78 if not
    Check {
        /// Exit code 78 also for what is valid and likely not meant, such as a command that is not there
        #[arg(long)]
        strict: bool,
    },
    /// Print the configuration in effect, from defaults, file, environment and options, as TOML
    Show,
    /// Print the manual of the configuration: every key, its default and what it means. As kvqueue.toml(5)
    Manual,
}

/// The text that the manual page is made from, too.
pub(super) const MANUAL: &str = concat!(
    include_str!("../../docs/CONFIG.md"),
    include_str!("../../docs/config/disk.md"),
    include_str!("../../docs/config/queues.md"),
    include_str!("../../docs/config/handlers.md"),
    include_str!("../../docs/config/process.md"),
);

impl Command {
    pub(super) fn run(
        &self,
        globals: &Globals,
        register: impl FnOnce(Daemon) -> Daemon,
    ) -> anyhow::Result<Exit> {
        if matches!(self, Self::Manual) {
            output::line(
                globals.json,
                MANUAL.trim_end().as_bytes(),
                &serde_json::json!({ "manual": MANUAL }),
            )?;
            return Ok(Exit::Done);
        }
        let config = globals.load()?;
        let warnings = register(Daemon::new(config.clone())).warnings()?;
        match self {
            Self::Check { strict } => {
                let file = globals.config().map(|file| file.display().to_string());
                let mut object =
                    serde_json::json!({ "valid": true, "queues": config.queues.len(), "file": file });
                let limit = unused_limit(&config).map(str::to_owned).or_else(|| limit_beyond_disk(&config));
                let none = config.queues.is_empty().then(|| NO_QUEUES.to_owned());
                let absent = no_cluster_file(&config.database);
                let absent = absent.map(|why| format!("database = {:?}: {why}", config.database));
                let notes: Vec<_> = absent.into_iter().chain(none).chain(limit).chain(warnings).collect();
                let is_refused = *strict && !notes.is_empty();
                if globals.quiet && !is_refused {
                    return Ok(Exit::Done);
                }
                notes.iter().for_each(|note| output::note(format_args!("kvqueue: warning: {note}")));
                if !notes.is_empty() {
                    object["notes"] = serde_json::json!(notes);
                }
                if is_refused {
                    object["valid"] = serde_json::json!(false);
                    let text = format!("--strict refuses the configuration, warnings: {}", notes.len());
                    output::line(globals.json, text.as_bytes(), &object)?;
                    return Ok(Exit::Config);
                }
                let what = file.unwrap_or_else(|| NO_FILE.to_owned());
                let text = format!("{what}: valid, queues: {}", config.queues.len());
                output::line(globals.json, text.as_bytes(), &object)?;
            }
            Self::Manual => {}
            Self::Show => {
                let config = config.spelled_out();
                let text = toml::to_string(&config).context("the configuration cannot be shown")?;
                let object = serde_json::to_value(&config).context("the configuration cannot be shown")?;
                output::line(globals.json, text.trim_end().as_bytes(), &object)?;
            }
        }
        Ok(Exit::Done)
    }
}

/// What was checked if no file is named.
const NO_FILE: &str = "no file (--config or KVQUEUE_CONFIG names one), only defaults and the environment";

/// The warning about a configuration with which no daemon starts.
const NO_QUEUES: &str =
    "the configuration has no queues, so `run` has none to process; add one as in [queues.emails]";

/// The warning about a limit of free space that has no effect.
fn unused_limit(config: &Config) -> Option<&'static str> {
    let is_cluster = fdb_embedded::embedded_directory(&config.database).is_none();
    let is_set = config.min_free_space != MinFreeSpace::Auto;
    (is_cluster && is_set).then_some(
        "min-free-space has no effect on a cluster, which limits free space by itself; leave the key out, or use an embedded database",
    )
}
