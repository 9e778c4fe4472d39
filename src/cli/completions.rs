//! `kvqueue completions`, and the answers to the scripts that it prints: at each press of Tab these ask the program how the command line may
//! go on.

use std::{collections::BTreeSet, env, ffi::OsStr, time::Duration};

use anyhow::Context;
use clap::FromArgMatches;
use clap_complete::{
    CompleteEnv, Shell,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::Shells,
};
use kvqueue_queue::{RetryPolicy, all_queues};
use tokio::runtime;

use super::{globals::Globals, output};
use crate::{
    config::Config,
    database::{Patience, Store, missing},
    exit::Exit,
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

/// Answers a shell, if this process was started for that.
pub(super) fn answer() -> clap::error::Result<bool> {
    let directory = env::current_dir().ok();
    CompleteEnv::with_factory(super::command).var(VARIABLE).try_complete(env::args_os(), directory.as_deref())
}

/// Completes the name of a queue.
pub(super) fn queue() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let begins = |name: &String| current.to_str().is_some_and(|current| name.starts_with(current));
        let names = config().map(|config| names(&config)).unwrap_or_default();
        names.into_iter().filter(begins).take(MOST).map(CompletionCandidate::new).collect::<Vec<_>>()
    })
}

/// The configuration by the options that have been typed so far, behind `--`.
fn config() -> Option<Config> {
    let typed = env::args_os().skip_while(|arg| arg != "--").skip(1);
    let matches = super::command().ignore_errors(true).try_get_matches_from(typed).ok()?;
    let (config, _) = Globals::from_arg_matches(&matches).ok()?.load_leniently().ok()?;
    Some(config)
}

/// The queues of the configuration, and those of the database if that answers soon.
fn names(config: &Config) -> BTreeSet<String> {
    let stored = stored(config).unwrap_or_default();
    let stored = stored.into_iter().filter_map(|name| String::from_utf8(name).ok());
    // Names that a shell would have to quote are not completed.
    let plain =
        |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/@%+,".contains(&byte));
    stored.chain(config.queues.keys().cloned()).filter(plain).collect()
}

/// The queues of the database. One that is not there is not made.
fn stored(config: &Config) -> Option<Vec<Vec<u8>>> {
    let url = config.database.as_str();
    if missing(url).is_some() {
        return None;
    }
    let patience = Patience::new(Some(PATIENCE));
    let store = Store::open_within(url, patience).ok()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let policy = RetryPolicy::default();
    let names = all_queues(&store.db, config.prefix.as_bytes(), &policy);
    runtime.block_on(patience.wait(url, names)).ok()?.ok()
}
