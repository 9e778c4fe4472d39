//! `kvqueue init`: a configuration and a handler to begin with.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::json;

use super::{
    globals::{Globals, USUAL_FILE},
    output,
};
use crate::base::exit::Exit;

/// The configuration, with a place for the handler's file.
const TEXT: &str = r#"# kvqueue config check    is it right?
# kvqueue config manual   every setting

database = "embedded:./queues"    # a directory next to this file; or the path of a FoundationDB cluster file

[queues.mails]
handler = "exec"                  # run a command for each item
consumers = 4                     # so many commands at a time
history = "24h"                   # what became of items: kvqueue history mails

[queues.mails.handler-config]
command = ["./HANDLER"]        # next to this file; it gets the item on its standard input

[queues.mails.retry]
max-attempts = 5                  # then the item is a dead letter: kvqueue dead list mails
base = "1s"                       # the first pause between two attempts; the next ones grow
"#;

/// The language of the handler.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    Python,
    Node,
    Shell,
}

impl Language {
    /// The handler: its file and its text.
    fn handler(self) -> (&'static str, &'static str) {
        match self {
            Self::Python => (
                "handler.py",
                r#"#!/usr/bin/env python3
# Exit code 0: the item is done. 65: no retry can help. Any other: try it again.
import json, sys

mail = json.load(sys.stdin)
if "to" not in mail:
    print("no address", file=sys.stderr)    # the reason of the dead letter
    sys.exit(65)
print("to", mail["to"], file=open("sent", "a"))
"#,
            ),
            Self::Node => (
                "handler.js",
                r#"#!/usr/bin/env node
// Exit code 0: the item is done. 65: no retry can help. Any other: try it again.
const fs = require("node:fs");

const mail = JSON.parse(fs.readFileSync(0, "utf8"));
if (mail.to === undefined) {
  console.error("no address"); // the reason of the dead letter
  process.exit(65);
}
fs.appendFileSync("sent", `to ${mail.to}\n`);
"#,
            ),
            Self::Shell => (
                "handler.sh",
                r#"#!/bin/sh
# Exit code 0: the item is done. 65: no retry can help. Any other: try it again.
mail=$(cat)
case $mail in
  *to*) echo "$mail" >> sent ;;
  *) echo "no address" >&2; exit 65 ;;    # the reason of the dead letter
esac
"#,
            ),
        }
    }
}

/// Write a configuration and a handler to begin with
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Write a configuration, kvqueue.toml, and a handler to begin with, and print what to run next. \
    No file is overwritten."
)]
pub(super) struct Args {
    /// Where; it is made if it is not there
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// The language of the handler
    #[arg(long, value_enum, default_value = "python")]
    handler: Language,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (name, text) = self.handler.handler();
        let files = [(USUAL_FILE, TEXT.replace("HANDLER", name), 0o644), (name, text.to_owned(), 0o755)];
        for (name, ..) in &files {
            let path = self.directory.join(name);
            if fs::symlink_metadata(&path).is_ok() {
                bail!("{} is there already, and nothing was written; name another directory", path.display());
            }
        }
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot make the directory {}", self.directory.display()))?;
        for (name, text, mode) in &files {
            let path = self.directory.join(name);
            write(&path, text, *mode).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let path = |name| self.directory.join(name).display().to_string();
        let object = json!({ "configuration": path(USUAL_FILE), "handler": path(name) });
        output::line(globals.json, self.next(name).as_bytes(), &object)?;
        Ok(Exit::Done)
    }

    /// What to run next.
    fn next(&self, handler: &str) -> String {
        let directory = self.directory.display();
        let change =
            if self.directory == Path::new(".") { String::new() } else { format!("  cd '{directory}'\n") };
        format!(
            "wrote {USUAL_FILE} and {handler}; next:\n\n\
            {change}  export KVQUEUE_CONFIG=$PWD/{USUAL_FILE}\n  kvqueue push mails '{{\"to\": \"ann\"}}'\n  kvqueue run\n\n\
            It stays until Ctrl-C. Each item that is done adds a line to the file sent; in another terminal, with the same KVQUEUE_CONFIG, kvqueue page prints a link that shows it."
        )
    }
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    File::options().write(true).create_new(true).mode(mode).open(path)?.write_all(text.as_bytes())
}
