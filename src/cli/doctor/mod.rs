//! `kvqueue doctor`: everything around a daemon that can be looked at without changing it.

mod access;
mod clock;
mod daemon;
mod database;
mod dead_letters;
mod deadline;
mod disk;
mod findings;
mod queues;
mod schedules;
mod unit;

use std::{path::Path, time::Instant};

use self::{deadline::Deadline, findings::Findings, queues::Pauses};
use super::globals::Globals;
use crate::{
    base::exit::Exit,
    config::{Config, ConfigError},
    daemon::Daemon,
    telemetry,
};

/// Check configuration, database, clock, daemon and unit, and say what was found; nothing is changed
///
/// An embedded directory that no process holds is read through: every page's checksum, its structure, every row. Nobody
/// can open it meanwhile. A directory in use is checked from outside. For a cluster it reports whether it answers, what
/// runs there, and how its clock goes. A daemon is asked over HTTP whether it is ready, and whether its handlers and
/// fetches work; that no daemon answers is not a problem. Of a systemd unit, whether it fits the configuration. Exits with 1 if
/// something has to be done.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The unit to look at, as in kvqueue@mail, instead of kvqueue if that is installed
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
}

impl Args {
    pub(super) fn run(
        &self,
        globals: &Globals,
        register: impl FnOnce(Daemon) -> Daemon,
    ) -> anyhow::Result<Exit> {
        let deadline = Deadline(globals.timeout().map(|limit| Instant::now() + limit));
        let (config, faults) = globals.load_leniently()?;
        let mut findings = Findings::default();
        let checked = match faults.into_iter().next() {
            Some(fault) => Err(fault.error),
            None => register(Daemon::new(config.clone())).warnings(),
        };
        look_at_configuration(globals.config(), &config, checked.as_deref(), &mut findings);
        // A level that is wrong has just been found.
        let _: Result<(), ConfigError> = telemetry::init_command(&config.log);
        let mut pauses = Pauses::default();
        if config.validate_database().is_ok() {
            access::look(globals.config(), &config, &mut findings);
            // Slow checks run after the others have been printed.
            findings.print(globals.json)?;
            pauses = database::look(&config, deadline, &mut findings)?;
        }
        let answer = daemon::look(globals, &config, deadline, &mut findings);
        pauses.add_to(answer.as_ref(), &mut findings);
        if config.validate_database().is_ok() {
            disk::look(&config, answer, &mut findings);
        }
        unit::look(self.unit.as_deref(), globals.config(), config.shutdown_timeout, &mut findings);
        findings.print(globals.json)?;
        Ok(if findings.are_healthy() { Exit::Done } else { Exit::Failed })
    }
}

/// Reports what `kvqueue config check` reports.
fn look_at_configuration(
    file: Option<&Path>,
    config: &Config,
    checked: Result<&[String], &ConfigError>,
    findings: &mut Findings,
) {
    let from = file.map_or_else(
        || "no file, only defaults and the environment".to_owned(),
        |file| file.display().to_string(),
    );
    match checked {
        Ok(warnings) => {
            findings.fine("config", format!("{from}: valid, queues: {}", config.queues.len()));
            for warning in warnings {
                findings.note(
                    "config",
                    warning,
                    "a daemon of another user, directory or PATH may see it differently",
                );
            }
        }
        Err(error) => {
            findings.problem(
                "config",
                format!("{from}: {error}"),
                "no daemon starts with it; kvqueue.toml(5) and `kvqueue config manual` have all keys",
            );
        }
    }
}
