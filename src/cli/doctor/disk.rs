//! Free space on the disk of an embedded database, and its limit.

use fdb_embedded::space::Space;

use super::{daemon::LONGEST_TEXT, findings::Findings};
use crate::{
    cli::status::{self, Figures, fitting},
    config::Config,
    database::{limit, limit_beyond_disk, origin, refusal, size},
};

const ABOUT: &str = "disk";

const ADVICE: &str = "kvqueue status shows the figures";

/// Looks at it. A daemon that has answered knows more: what is reusable in the database's file, and whether pushes are refused.
pub(super) fn look(config: &Config, daemon: Option<Figures>, findings: &mut Findings) {
    let Some(directory) = fdb_embedded::embedded_directory(&config.database) else { return };
    if let Some(problem) = limit_beyond_disk(config) {
        findings.problem(ABOUT, problem, "see kvqueue config show");
    }
    let known = Space::known(&directory);
    if let Some(problem) = known.as_ref().ok().and_then(|space| space.origin.problem(&directory)) {
        findings.problem(ABOUT, problem, ADVICE);
    }
    if let Some(space) = daemon.and_then(|figures| figures.database.space) {
        return match &space.pushes_refused {
            Some(why) => {
                findings.problem(
                    ABOUT,
                    format!("pushes are refused: {}", fitting(why, LONGEST_TEXT)),
                    ADVICE,
                );
            }
            None => findings.fine(ABOUT, status::disk_figures(&space)),
        };
    }
    let space = match known {
        Ok(space) => space,
        Err(error) => {
            let text = format!("cannot look at free space of {}: {error}", directory.display());
            return findings.note(ABOUT, text, "check the directory and its disk");
        }
    };
    match refusal(&directory, &space) {
        Some(why) => findings.problem(ABOUT, format!("pushes may be refused: {why}"), ADVICE),
        None => {
            let (free, total) = (size(space.free), size(space.total));
            let from = origin(&space, config);
            findings.fine(ABOUT, format!("{free} free of {total}, {} ({from})", limit(space.min_free)));
        }
    }
}
