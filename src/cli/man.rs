//! `kvqueue man`: a manual page for each command, made from what its `--help` is made from.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, italic, roman},
};
use jiff::{Timestamp, tz::TimeZone};

use super::{globals::Globals, markdown, output};
use crate::base::exit::{self, Exit};

/// The date in the pages, in seconds since 1970, for builds that are to come out the same again.
const DATE: &str = "SOURCE_DATE_EPOCH";

const MANUAL: &str = "kvqueue manual";

/// Files that a user may look for, and what they are.
const FILES: &[(&str, &str)] = &[
    ("/etc/kvqueue/kvqueue.toml", "The configuration of the service kvqueue."),
    ("/etc/kvqueue/NAME.toml", "The configuration of the service kvqueue@NAME."),
    ("/var/lib/kvqueue, /var/lib/kvqueue-NAME", "Their databases, if they are not told of others."),
];

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Args {
    /// Writes the pages of a command line.
    pub(super) fn run(&self, globals: &Globals, command: Command) -> anyhow::Result<Exit> {
        let date = date()?;
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the directory {}", self.out.display()))?;
        let mut root = command.disable_help_subcommand(true);
        root.build();
        let written = pages(&root).into_iter().map(|page| write(page, &date, &self.out));
        let settings = std::iter::once_with(|| settings(&date, &self.out));
        let written: Vec<_> = written
            .chain(settings)
            .collect::<io::Result<_>>()
            .map_err(|error| anyhow!("cannot write a page into {}: {error}", self.out.display()))?;
        for path in written {
            let path = path.display().to_string();
            output::line(globals.json, path.as_bytes(), &serde_json::json!({ "page": path }))?;
        }
        Ok(Exit::Done)
    }
}

/// The day that the pages carry.
fn date() -> anyhow::Result<String> {
    let seconds = match std::env::var(DATE) {
        Ok(seconds) => {
            Some(seconds.parse().with_context(|| format!("{DATE} = {seconds:?} is not a number"))?)
        }
        Err(_) => None,
    };
    let time = seconds.map_or_else(|| Ok(Timestamp::now()), Timestamp::from_second);
    Ok(time
        .with_context(|| format!("{DATE} is beyond the calendar"))?
        .to_zoned(TimeZone::UTC)
        .date()
        .to_string())
}

/// The command and all below it that are not hidden.
fn pages(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    std::iter::once(command).chain(below.flat_map(pages)).collect()
}

fn write(command: &Command, date: &str, directory: &Path) -> io::Result<PathBuf> {
    let name = command.get_display_name().unwrap_or(super::NAME);
    let source = format!("{} {}", super::NAME, env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name.to_uppercase()).date(date).source(source).manual(MANUAL);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let root = name == super::NAME;
    if root {
        exit_status().to_writer(&mut page)?;
        files().to_writer(&mut page)?;
    }
    see_also(root).to_writer(&mut page)?;
    let path = directory.join(man.get_filename());
    fs::write(&path, tidy(&String::from_utf8_lossy(&page)))?;
    Ok(path)
}

/// The page of the configuration file, from the same text as `kvqueue config manual`.
fn settings(date: &str, directory: &Path) -> io::Result<PathBuf> {
    let title =
        format!(".TH KVQUEUE.TOML 5 {date} \"{} {}\" \"{MANUAL}\"\n", super::NAME, env!("CARGO_PKG_VERSION"));
    let name = ".SH NAME\nkvqueue.toml \\- the configuration of kvqueue\n";
    let path = directory.join("kvqueue.toml.5");
    fs::write(&path, format!("{title}{name}{}", markdown::to_roff(super::config::MANUAL)))?;
    Ok(path)
}

/// Without what formatters pass over: breaks next to empty lines, blanks at the ends of lines.
fn tidy(page: &str) -> String {
    let lines: Vec<_> = page.lines().map(str::trim_end).collect();
    lines.join("\n").replace("\n.br\n\n.br\n", "\n.sp\n") + "\n"
}

fn exit_status() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::TABLE {
        roff.control("TP", []).text([bold(*code)]).text([roman(meaning.replace('`', ""))]);
    }
    roff
}

fn files() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["FILES"]);
    for (path, what) in FILES {
        roff.control("TP", []).text([italic(*path)]).text([roman(*what)]);
    }
    roff
}

fn see_also(root: bool) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    if root {
        roff.text([
            bold("kvqueue.toml"),
            roman("(5), "),
            bold("systemctl"),
            roman("(1), "),
            bold("journalctl"),
            roman("(1)"),
        ]);
    } else {
        roff.text([bold(super::NAME), roman("(1)")]);
    }
    roff
}
