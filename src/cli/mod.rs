//! The commands, one file or directory each. Data goes to stdout, everything else to stderr; [`Exit`] defines the exit codes.

mod actions;
mod api_client;
mod audit;
mod audited;
mod backup;
mod base;
mod batch;
mod bench;
mod client;
mod completions;
mod config;
mod dead;
mod delete;
mod demo;
mod doctor;
mod export;
mod failure;
#[cfg(target_os = "linux")]
mod first_process;
mod globals;
mod history;
mod import;
mod init;
mod item;
mod item_text;
mod len;
mod limits;
mod line_reader;
mod list;
mod man;
mod markdown;
mod migrate;
mod move_items;
mod ndjson;
mod operation;
mod output;
mod page;
mod pause;
mod peek;
mod pop;
mod progress;
mod push;
mod recount;
mod reload;
mod requeue;
mod run;
mod schedule;
mod status;
mod synonyms;
mod target;
mod tasks;
mod token;
mod top;
mod values;
mod why;
mod worker;

use std::{panic::AssertUnwindSafe, sync::Arc};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;

use crate::{
    base::exit::{self, Exit},
    daemon::Daemon,
    operations::{PauseQueue, ResumeQueue},
    telemetry,
};
use base::{DataError, NAME, UsageError};
use failure::report;
use globals::Globals;

/// A durable queue on FoundationDB, or in a local directory, and the daemon that processes it.
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = exit::help())]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Push(push::Args),
    Pop(pop::Args),
    Peek(peek::Args),
    Why(why::Args),
    Len(len::Args),
    List(list::Args),
    Delete(delete::Args),
    Pause(pause::Local<PauseQueue>),
    Resume(pause::Local<ResumeQueue>),
    #[command(subcommand)]
    Limits(limits::Command),
    #[command(subcommand)]
    Schedule(schedule::Command),
    #[command(subcommand)]
    Batch(batch::Command),
    Recount(recount::Args),
    Requeue(requeue::Args),
    #[command(subcommand)]
    Item(item::Command),
    Move(move_items::Args),
    Export(export::Args),
    Import(import::Args),
    #[command(subcommand)]
    Dead(dead::Command),
    #[command(subcommand)]
    Config(config::Command),
    Status(status::Args),
    Top(top::Args),
    Page(page::Args),
    Reload(reload::Args),
    Work(worker::Work),
    Lease(worker::Lease),
    Extend(worker::Extend),
    Ack(worker::Ack),
    #[command(subcommand)]
    Token(token::Command),
    History(history::Args),
    Audit(audit::Args),
    Doctor(doctor::Args),
    Backup(backup::Args),
    Migrate(migrate::Args),
    Init(init::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

/// Parses this process's command line, runs the command, reports an error and returns the exit code.
pub fn main() -> Exit {
    main_with(|daemon| daemon)
}

/// As [`main`], for a program with handlers of its own: `register` adds them to the daemon that is to run, or whose configuration is to
/// be checked.
///
/// ```no_run
/// use kvqueue::{Context, Handler, Item, Outcome, SettingsError};
/// # struct Email;
/// # #[kvqueue::async_trait]
/// # impl Handler for Email {
/// #     async fn handle(&self, _: &Item, _: &Context) -> Outcome {
/// #         Outcome::Done
/// #     }
/// # }
///
/// fn main() -> std::process::ExitCode {
///     kvqueue::cli::main_with(|daemon| daemon.handler("email", |_| Ok::<_, SettingsError>(Email))).into()
/// }
/// ```
pub fn main_with(register: impl FnOnce(Daemon) -> Daemon) -> Exit {
    main_as(NAME, env!("CARGO_PKG_VERSION"), register)
}

/// As [`main_with`], for a program with a name and a version of its own: `--help` and `--version` print those.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     kvqueue::cli::main_as("mailer", env!("CARGO_PKG_VERSION"), |daemon| daemon).into()
/// }
/// ```
pub fn main_as(name: &'static str, version: &'static str, register: impl FnOnce(Daemon) -> Daemon) -> Exit {
    #[cfg(target_os = "linux")]
    if let Some(exit) = crate::handlers::exec::reaper::main() {
        return exit;
    }
    // A write beyond the limit of a file's size then fails with an error that names the file. By default the signal ends the process without a word.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    match completions::answer(command) {
        Ok(true) => return Exit::Done,
        Ok(false) => {}
        Err(error) => {
            // Without a stderr to print to, the code has to do.
            let _ = error.print();
            return Exit::Usage;
        }
    }
    let parsed = command().name(name).version(version).try_get_matches();
    let mut cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let error = synonyms::suggest(error);
            // Without a stderr to print to, the code has to do.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    #[cfg(target_os = "linux")]
    if matches!(cli.command, Command::Run(_) | Command::Work(_)) {
        first_process::stand_by();
    }
    cli.globals.read_environment();
    cli.command.note_action(&mut cli.globals);
    let audited = cli.globals.audited.clone();
    let leaves_file_unread = cli.globals.leaves_file_unread();
    let exit = match std::panic::catch_unwind(AssertUnwindSafe(|| cli.run(register))) {
        Ok(ran) => {
            audited.check(matches!(ran, Ok(Exit::Done)));
            ran.unwrap_or_else(|error| report(&error))
        }
        // The panic has been printed, or logged.
        Err(_) => Exit::Internal,
    };
    if leaves_file_unread && matches!(exit, Exit::Config | Exit::Unavailable) {
        output::note(format_args!(
            "kvqueue: {0} in this directory was not read; name it with --config {0}, or with KVQUEUE_CONFIG",
            globals::USUAL_FILE
        ));
    }
    telemetry::flush();
    exit
}

impl Cli {
    fn run(self, register: impl FnOnce(Daemon) -> Daemon) -> anyhow::Result<Exit> {
        let globals = &self.globals;
        match self.command {
            Command::Run(args) => args.run(globals, register),
            Command::Push(args) => args.run(globals),
            Command::Pop(args) => args.run(globals),
            Command::Peek(args) => args.run(globals),
            Command::Why(args) => args.run(globals),
            Command::Len(args) => args.run(globals),
            Command::List(args) => args.run(globals),
            Command::Delete(args) => args.run(globals),
            Command::Pause(args) => args.run(globals),
            Command::Resume(args) => args.run(globals),
            Command::Limits(command) => command.run(globals),
            Command::Schedule(command) => command.run(globals),
            Command::Batch(command) => command.run(globals),
            Command::Recount(args) => args.run(globals),
            Command::Requeue(args) => args.run(globals),
            Command::Item(command) => command.run(globals),
            Command::Move(args) => args.run(globals),
            Command::Export(args) => args.run(globals),
            Command::Import(args) => args.run(globals),
            Command::Dead(command) => command.run(globals),
            Command::Config(command) => command.run(globals, register),
            Command::Status(args) => args.run(globals),
            Command::Top(args) => args.run(globals),
            Command::Page(args) => args.run(globals),
            Command::Reload(args) => args.run(globals),
            Command::Work(args) => args.run(globals),
            Command::Lease(args) => args.run(globals),
            Command::Extend(args) => args.run(globals),
            Command::Ack(args) => args.run(globals),
            Command::Token(command) => command.run(globals),
            Command::History(args) => args.run(globals),
            Command::Audit(args) => args.run(globals),
            Command::Doctor(args) => args.run(globals, register),
            Command::Backup(args) => args.run(globals),
            Command::Migrate(args) => args.run(globals),
            Command::Init(args) => args.run(globals),
            Command::Demo(args) => args.run(globals),
            Command::Bench(args) => args.run(globals),
            Command::Completions(args) => args.run(globals),
            Command::Man(args) => args.run(globals, command()),
        }
    }
}

/// The whole command line.
fn command() -> clap::Command {
    tasks::usage_first(tasks::by_task(Cli::command()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
