//! `kvqueue completions`, and the answers to the scripts that it prints: at each press of Tab these ask the program how the command line may
//! go on.

use std::{collections::BTreeSet, env, ffi::OsStr, sync::OnceLock, time::Duration};

use anyhow::Context;
use clap::FromArgMatches;
use clap_complete::{
    CompleteEnv, Shell,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::Shells,
};
use foundationdb::Database;
use kvqueue_queue::{RetryError, RetryPolicy, queues_page_named, retry};
use tokio::runtime;

use super::{globals::Globals, output};
use crate::{
    base::exit::Exit,
    config::Config,
    database::{Patience, Store, missing},
};

/// The variable by which a script asks.
const VARIABLE: &str = "KVQUEUE_COMPLETE";

/// How long opening the database may take, and its answer: somebody waits at the keyboard.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most names that are offered.
const MOST: usize = 1_000;

/// Print a script that completes kvqueue's command line in a shell
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print a script that completes kvqueue's command line in a shell, names of queues included.\n\n\
    The Debian package has it in place for bash, zsh and fish. By hand, for bash: kvqueue completions bash > \
    ~/.local/share/bash-completion/completions/kvqueue"
)]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (name, mut script) = (super::NAME, Vec::new());
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell.to_string()).context("no completions for this shell")?;
        shell.write_registration(VARIABLE, name, name, name, &mut script)?;
        if self.shell == Shell::Zsh {
            // As an autoloaded file it is the function that has to answer the first time.
            let answer =
                format!("\n[[ $funcstack[1] == _{name} ]] && _clap_dynamic_completer_{name} \"$@\"\n");
            script.extend_from_slice(answer.as_bytes());
        }
        let object = serde_json::json!({
            "shell": self.shell.to_string(),
            "script": String::from_utf8_lossy(&script),
        });
        output::line(globals.json, script.trim_ascii_end(), &object)?;
        Ok(Exit::Done)
    }
}

/// The whole command line, by which what has been typed is read.
static COMMAND: OnceLock<fn() -> clap::Command> = OnceLock::new();

/// Answers a shell, if this process was started for that.
pub(super) fn answer(command: fn() -> clap::Command) -> clap::error::Result<bool> {
    let directory = env::current_dir().ok();
    COMMAND.get_or_init(|| command);
    CompleteEnv::with_factory(|| of_queues(command()))
        .var(VARIABLE)
        .try_complete(env::args_os(), directory.as_deref())
}

/// Completes the name of a queue.
pub(super) fn queue() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some(begins) = current.to_str() else { return Vec::new() };
        let names = config().map(|config| names(&config, begins)).unwrap_or_default();
        names.into_iter().take(MOST).map(CompletionCandidate::new).collect()
    })
}

/// Lets the shell complete each argument that is called `queue`, of operations.
fn of_queues(command: clap::Command) -> clap::Command {
    let with_names = |arg: clap::Arg| match arg.get_id() == "queue" && arg.is_positional() {
        true => arg.add(queue()),
        false => arg,
    };
    command.mut_args(with_names).mut_subcommands(of_queues)
}

/// The configuration by the options that have been typed so far, behind `--`.
fn config() -> Option<Config> {
    let typed = env::args_os().skip_while(|arg| arg != "--").skip(1);
    let matches = COMMAND.get()?().ignore_errors(true).try_get_matches_from(typed).ok()?;
    let (config, _) = Globals::from_arg_matches(&matches).ok()?.load_leniently().ok()?;
    Some(config)
}

/// The queues of the configuration whose names begin so, and those of the database if that answers soon.
fn names(config: &Config, begins: &str) -> BTreeSet<String> {
    let configured = config.queues.keys().filter(|name| name.starts_with(begins) && is_plain(name));
    stored(config, begins).unwrap_or_default().into_iter().chain(configured.cloned()).collect()
}

/// Whether a shell need not quote the name. Other names are not completed.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/@%+,".contains(&byte))
}

/// The same queues of the database. A database that is not there is not made.
fn stored(config: &Config, begins: &str) -> Option<Vec<String>> {
    let url = config.database.as_str();
    if missing(url).is_some() {
        return None;
    }
    let patience = Patience::new(Some(PATIENCE));
    let store = Store::open_within(url, patience).ok()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let names = named(&store.db, config.prefix.as_bytes(), begins.as_bytes());
    runtime.block_on(patience.wait(url, names)).ok()?.ok()
}

/// The first names that begin so: [`MOST`] or some more, if there are as many.
async fn named(db: &Database, prefix: &[u8], begins: &[u8]) -> Result<Vec<String>, RetryError> {
    let (policy, mut names, mut from) = (RetryPolicy::default(), Vec::new(), None);
    loop {
        let begin: &Option<Vec<u8>> = &from;
        let page = retry::run(db, &policy, |tr| async move {
            let page = queues_page_named(&tr, prefix, begins, begin.as_deref()).await;
            (tr, page)
        });
        let page = page.await?.value;
        let found = page.names.into_iter().filter_map(|name| String::from_utf8(name).ok());
        names.extend(found.filter(|name| is_plain(name)));
        from = page.next;
        if names.len() >= MOST || from.is_none() {
            return Ok(names);
        }
    }
}
