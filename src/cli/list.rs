//! `kvqueue list`

use std::io::{self, IsTerminal};

use serde_json::{Map, Value};

use super::{globals::Globals, operation::Runner, output};
use crate::base::{exit::Exit, text::visible};

/// Print the names of all queues
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let names = Runner::open_for(None, globals)?.queues()?;
        let is_read = io::stdout().is_terminal();
        let described = names.into_iter().map(|name| {
            let mut object = Map::new();
            output::insert_bytes(&mut object, "queue", &name);
            // One that has a line end must not look like two.
            let shown = if is_read { visible(&String::from_utf8_lossy(&name)).into_bytes() } else { name };
            (shown, Value::Object(object))
        });
        output::lines(globals.json, described)?;
        Ok(Exit::Done)
    }
}
