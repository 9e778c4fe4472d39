//! `kvqueue backup`

use std::{
    io::IsTerminal,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fdb_embedded::{BackupError, BackupStats, BackupStep};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{UsageError, globals::Globals, output};
use crate::{
    base::exit::Exit,
    database::{NoAnswer, SILENCE, still_waiting},
};

/// A copy that takes less long shows nothing while it is made.
const PATIENCE: Duration = Duration::from_secs(1);

/// Copy an embedded directory while it is used
///
/// The copy is of one moment: it has everything that was acknowledged before it began. It is a directory like any other, was read
/// through when this ends, and is used by opening it, or by moving it where the other one was. Programs that use the directory go on
/// meanwhile; its file grows by about what they write.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to: a directory that does not exist yet, or is empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (config, _) = globals.start_leniently()?;
        let Some(from) = fdb_embedded::embedded_directory(&config.database) else {
            let url = &config.database;
            return Err(UsageError(format!(
                "only an embedded directory is copied, and {url:?} names a cluster: use FoundationDB's fdbbackup"
            ))
            .into());
        };
        let started = Instant::now();
        let copied = self.copy(&from, &config.database, globals)?;
        let Some(BackupStats { version, rows, bytes }) = copied else {
            output::note(format_args!("kvqueue: broken off; there is no copy"));
            return Ok(Exit::Failed);
        };
        if globals.json {
            let to = self.to.display().to_string();
            let object = json!({"to": to, "rows": rows, "bytes": bytes, "version": version});
            output::line(true, b"", &object)?;
        } else if !globals.quiet {
            output::note(format_args!(
                "copied {} rows, {}, to {} in {:.1} s, and read the copy through",
                HumanCount(rows),
                HumanBytes(bytes),
                self.to.display(),
                started.elapsed().as_secs_f64(),
            ));
        }
        Ok(Exit::Done)
    }

    fn copy(&self, from: &Path, url: &str, globals: &Globals) -> anyhow::Result<Option<BackupStats>> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // A second one ends the process at once.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut progress = Progress::new(!globals.quiet && std::io::stderr().is_terminal());
        let mut silence = Silence { url, limit: globals.timeout(), since: None, noted: Duration::ZERO };
        let mut is_over = false;
        let copied = fdb_embedded::backup(from, &self.to, &mut |step| {
            if let BackupStep::Copying(copied) = step {
                progress.show(copied);
            }
            is_over |= silence.is_over(step);
            if is_over || stop.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        progress.finish();
        match (copied?, globals.timeout()) {
            (None, Some(limit)) if is_over => Err(NoAnswer::new(url, limit).into()),
            (copied, _) => Ok(copied),
        }
    }
}

/// The exit code of the process after such an error.
pub(super) fn exit(error: &BackupError) -> Exit {
    match error {
        BackupError::Exists(_) | BackupError::Inside(_) | BackupError::NoName(_) => Exit::Usage,
        BackupError::NoDatabase(_) | BackupError::Open(_) => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

/// How long the database has not answered.
struct Silence<'u> {
    url: &'u str,
    limit: Option<Duration>,
    since: Option<Instant>,
    noted: Duration,
}

impl Silence<'_> {
    /// Whether it has lasted for as long as `--timeout` allows. Without a limit, the log tells of it every few seconds.
    fn is_over(&mut self, step: BackupStep) -> bool {
        if step != BackupStep::Waiting {
            self.since = None;
            return false;
        }
        // The first call comes when the wait has begun.
        let lasted = self.since.get_or_insert_with(Instant::now).elapsed();
        if lasted < self.noted {
            self.noted = Duration::ZERO;
        }
        if lasted >= self.noted + SILENCE {
            self.noted = lasted;
            still_waiting(self.url);
        }
        self.limit.is_some_and(|limit| lasted >= limit)
    }
}

/// A line at a terminal, once it takes a while.
struct Progress {
    started: Instant,
    is_wanted: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(is_wanted: bool) -> Self {
        Self { started: Instant::now(), is_wanted, bar: None }
    }

    fn show(&mut self, copied: BackupStats) {
        if self.is_wanted && self.bar.is_none() && self.started.elapsed() >= PATIENCE {
            let style =
                ProgressStyle::with_template("{msg} rows copied {spinner} {binary_bytes_per_sec}, {elapsed}");
            let bar = ProgressBar::new_spinner().with_style(style.expect("the template is correct"));
            self.bar = Some(bar.with_elapsed(self.started.elapsed()));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(HumanCount(copied.rows).to_string());
            bar.set_position(copied.bytes);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
