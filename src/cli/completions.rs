//! `kvqueue completions`

use clap_complete::{Shell, generate};

use super::{globals::Globals, output};
use crate::exit::Exit;

/// Print a script that completes kvqueue's command line in a shell
#[derive(Debug, clap::Args)]
#[command(long_about = "Print a script that completes kvqueue's command line in a shell.\n\n\
    The Debian package has it in place for bash, zsh and fish. By hand, for bash: kvqueue completions bash > \
    ~/.local/share/bash-completion/completions/kvqueue")]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        generate(self.shell, &mut super::command(), super::NAME, &mut script);
        let object = serde_json::json!({
            "shell": self.shell.to_string(),
            "script": String::from_utf8_lossy(&script),
        });
        output::line(globals.json, script.trim_ascii_end(), &object)?;
        Ok(Exit::Done)
    }
}
