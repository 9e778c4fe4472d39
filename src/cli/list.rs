//! `kvqueue list`

use serde_json::{Map, Value};

use super::{client::Client, globals::Globals, output};
use crate::exit::Exit;

/// Print the names of all queues
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let names = client.queues()?;
        let described = names.into_iter().map(|name| {
            let mut object = Map::new();
            output::insert_bytes(&mut object, "queue", &name);
            (name, Value::Object(object))
        });
        output::lines(globals.json, described)?;
        Ok(Exit::Done)
    }
}
