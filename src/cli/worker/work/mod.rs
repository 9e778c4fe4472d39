//! `kvqueue work`: a worker that runs a command for each item, on any machine that reaches a daemon
//! over HTTP.
//!
//! `worker` fetches, `held` is what happens to one lease, and `signals` ends it. The command is the
//! handler `exec` of the daemon, called in the same way.

mod held;
mod signals;
mod worker;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use anyhow::bail;
use signal_hook::low_level;

use self::{
    signals::Signals,
    worker::{Limits, Worker},
};
use super::daemons::{Until, Urls};
use crate::{
    base::exit::Exit,
    cli::{UsageError, client::Create, completions, globals::Globals, values},
    config::duration,
    daemon::handler_pool,
    handlers::{Exec, Handler, ScopeName, Settings, SettingsError},
    lifecycle::DRAIN_TAIL,
    telemetry,
};

/// Run a command for each item of a queue, as a worker that leases items over HTTP
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Run a command for each item of a queue, as a worker that leases items over HTTP. It can run on any machine that reaches a \
    daemon, and needs no database.\n\n\
    The command gets the payload on its standard input, and what else is known of the item in environment variables. Exit code 0 means \
    done, 65 that no retry can help, and any other that the item is to be tried again, all as with `handler = \"exec\"` \
    (kvqueue.toml(5)). Leases are extended while commands run. If the daemon does not answer, the worker asks again, and the next one if there are \
    several. A token is read from KVQUEUE_TOKEN.\n\n\
    TERM or INT lets the commands that run finish, for as long as --shutdown-timeout says, and releases other items. A second one ends the \
    commands at once, with TERM and then KILL, and releases their items too.",
    after_help = "Example:\n  kvqueue work emails --concurrency 4 --url http://queues.example:7420 -- ./send-mail"
)]
pub(in crate::cli) struct Args {
    /// The queue
    #[arg(add = completions::queue())]
    queue: String,
    /// How many commands run at the same time
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::items, allow_negative_numbers = true)]
    concurrency: NonZeroUsize,
    /// Items per lease, up to 1000. Those for which no command can start yet wait in this worker
    /// [default: as many as can start]
    #[arg(short, value_parser = values::items, allow_negative_numbers = true)]
    k: Option<NonZeroUsize>,
    /// How long a lease lasts without an extension: longer than a daemon needs to restart [default:
    /// as the queue is configured]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    lease: Option<Duration>,
    /// How long a command may run [default: without a limit]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    handler_timeout: Option<Duration>,
    /// How long a stop waits for commands that run
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    shutdown_timeout: Duration,
    /// Exit codes by which an item is a dead letter at once [default: 65]
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    dead_exit_codes: Option<Vec<i32>>,
    /// Exit codes by which an item goes back to the queue; the attempt does not count
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    release_exit_codes: Option<Vec<i32>>,
    /// Exit codes by which no item of --throttle-scope starts for --throttle-for; the attempt does not count
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    throttle_exit_codes: Option<Vec<i32>>,
    /// How long [default: 30s]
    #[arg(long, value_name = "TIME", requires = "throttle_exit_codes")]
    throttle_for: Option<String>,
    /// What waits [default: key]
    #[arg(long, value_name = "SCOPE", requires = "throttle_exit_codes")]
    throttle_scope: Option<ScopeName>,
    /// The most of a failing command's error output that its reason has [default: 4KiB]
    #[arg(long, value_name = "SIZE")]
    stderr_limit: Option<String>,
    /// Where the result of a finished item comes from: stdout, or none [default: none]. A queue that keeps no history drops it
    #[arg(long, value_name = "FROM")]
    result: Option<String>,
    /// What the progress of a running item is: last-line, the last line that the command has written; stderr, in lines as "kvqueue-progress 50% sending";
    /// or none [default: last-line]
    #[arg(long, value_name = "FROM")]
    progress: Option<String>,
    /// Log each line that a command writes, up to --stderr-limit for each item and stream
    #[arg(long)]
    log_output: bool,
    #[command(flatten)]
    create: Create,
    #[command(flatten)]
    urls: Urls,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Args {
    pub(in crate::cli) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let exec = self.exec()?;
        let daemons =
            self.urls.daemons(globals, globals.start_worker(self.urls.are_given())?, "kvqueue-work")?;
        let limits = Limits {
            concurrency: self.concurrency,
            k: self.k,
            lease: self.lease,
            handler_timeout: self.handler_timeout,
            must_exist: !self.create.create,
        };
        let worker = Arc::new(Worker::new(&self.queue, daemons, exec, limits));
        // This program's `main` knows how to be one.
        #[cfg(target_os = "linux")]
        crate::handlers::exec::reaper::allow();
        let pool = handler_pool()?;
        let first = globals.timeout().map(|limit| tokio::time::Instant::now() + limit);
        let first = first.map_or(Until::Answer, Until::Time);
        let ended = pool.block_on(async {
            let signals = Signals::watch(&worker)?;
            worker.run(first).await;
            let is_drained = worker.drain(self.shutdown_timeout).await;
            anyhow::Ok((is_drained, signals.second()))
        });
        // Nothing is awaited that was not drained.
        pool.shutdown_background();
        #[cfg(target_os = "linux")]
        crate::handlers::exec::reaper::finish();
        telemetry::finish();
        let ended = ended?;
        if let Some(error) = worker.failure() {
            return Err(error.into());
        }
        match ended {
            (_, Some(signal)) => low_level::exit(128 + signal),
            (true, None) => Ok(Exit::Done),
            (false, None) => bail!(
                "not all items could be released within {} s; others get them when their leases expire",
                DRAIN_TAIL.as_secs()
            ),
        }
    }

    /// The handler, as a daemon would have it from a configuration.
    fn exec(&self) -> Result<Exec, UsageError> {
        let mut table = toml::Table::new();
        let codes = |codes: &[i32]| codes.iter().map(|code| i64::from(*code)).collect::<Vec<_>>();
        table.insert("command".to_owned(), self.command.clone().into());
        for (key, set) in [
            ("dead-exit-codes", &self.dead_exit_codes),
            ("release-exit-codes", &self.release_exit_codes),
            ("throttle-exit-codes", &self.throttle_exit_codes),
        ] {
            if let Some(set) = set {
                table.insert(key.to_owned(), codes(set).into());
            }
        }
        table.insert("log-output".to_owned(), self.log_output.into());
        let scope = self.throttle_scope.map(|scope| scope.as_str().to_owned());
        for (key, set) in [
            ("throttle-for", &self.throttle_for),
            ("throttle-scope", &scope),
            ("stderr-limit", &self.stderr_limit),
            ("result", &self.result),
            ("progress", &self.progress),
        ] {
            if let Some(set) = set {
                table.insert(key.to_owned(), set.clone().into());
            }
        }
        let usage = |SettingsError(problem)| UsageError(format!("the command cannot be used: {problem}"));
        let exec = Exec::from_config(&Settings::new(table)).map_err(usage)?;
        match exec.warning() {
            // A daemon's warning begins with the queue whose command it is.
            Some(problem) => Err(UsageError(problem.replacen("its command", "the command", 1))),
            None => Ok(exec),
        }
    }
}
