//! Operations by commands: on the database itself, or by a request to a daemon if `--database` is a URL of one.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use anyhow::{Context, anyhow, bail};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::ItemId;
use serde_json::Value;

use super::{
    api_client::{ApiClient, AskError, encoded},
    client::Client,
    globals::Globals,
    item_text,
    output::{self, Named},
};
use crate::{
    audit::Action,
    exit::Exit,
    operations::{
        Answer, Needs, Operation, Refusal, Site, Text, arguments::Request, items::ItemTarget, target::Target,
    },
};

/// Defines a group of commands, each of which is an operation.
macro_rules! group {
    ($(#[$about:meta])* $group:ident { $($name:ident($operation:ident)),* $(,)? }) => {
        #[derive(Debug, clap::Subcommand)]
        $(#[$about])*
        pub(in crate::cli) enum $group {
            $($name($operation)),*
        }

        impl $group {
            pub(in crate::cli) fn run(
                self,
                globals: &crate::cli::globals::Globals,
            ) -> anyhow::Result<crate::exit::Exit> {
                match self {
                    $(Self::$name(operation) => crate::cli::operation::run(operation, globals)),*
                }
            }
        }
    };
}

pub(super) use group;

/// Where operations run.
pub(super) enum Place {
    Here(Box<Client>),
    Daemon(Box<ApiClient>),
}

/// Runs an operation on each of some items, and prints a line for each. If one is refused, the others go on. `done` is the participle, as in
/// "cancelled", and `what` the plural noun.
pub(super) fn run_each<O: Operation>(
    (target, ids, unique): (&Target, &[ItemId], Option<&OsStr>),
    (what, done): (&'static str, &'static str),
    operation: impl Fn(ItemTarget) -> O,
    globals: &Globals,
) -> anyhow::Result<Exit> {
    let place = Place::open_for(O::ROUTE.audit, globals)?;
    let found = unique.map(|key| place.unique_item(target, key)).transpose()?;
    let mut named = Named::new(what, done, globals.json);
    for id in ids.iter().chain(&found) {
        let operation = operation(ItemTarget::new(target.clone(), id.clone()));
        operation.check()?;
        match place.ask(&operation) {
            Ok(answer) => {
                let Text::Line(text) = answer.text() else { continue };
                named.done(&text, &serde_json::to_value(&answer)?);
            }
            Err(error) => match refusal_of(id, &error) {
                Some(why) => named.refused(id, &why),
                None => return Err(error),
            },
        }
    }
    named.exit()
}

/// Why an operation on an item was refused, unless the error is that of every item.
fn refusal_of(id: &ItemId, error: &anyhow::Error) -> Option<String> {
    let why = match (error.downcast_ref::<Refusal>(), error.downcast_ref::<AskError>()) {
        (Some(refusal), _) => refusal.to_string(),
        (None, Some(AskError::Refused { message, fix, .. })) => format!("{message}; {fix}"),
        (None, _) => return None,
    };
    why.starts_with(&id.to_string()).then_some(why)
}

/// The error for a unique key that no item has.
pub(super) fn no_unique(queue: &[u8], key: &OsStr) -> anyhow::Error {
    let (queue, key) = (queue.escape_ascii(), key.display());
    anyhow!(
        "queue \"{queue}\" has no item with the unique key {key:?}: it has ended or is a dead letter, or was never there"
    )
}

/// Runs an operation, and prints its answer.
pub(super) fn run<O: Operation>(operation: O, globals: &Globals) -> anyhow::Result<Exit> {
    operation.check()?;
    run_in(&Place::open(&operation, globals)?, operation, globals)
}

/// Has a daemon run an operation, and prints its answer.
pub(super) fn run_at<O: Operation>(
    daemon: ApiClient,
    operation: O,
    globals: &Globals,
) -> anyhow::Result<Exit> {
    run_in(&Place::Daemon(Box::new(daemon)), operation, globals)
}

pub(super) fn run_in<O: Operation>(
    place: &Place,
    mut operation: O,
    globals: &Globals,
) -> anyhow::Result<Exit> {
    let (mut columns, mut rows): (&[&str], _) = (&[], Vec::new());
    loop {
        let answer = place.ask(&operation)?;
        let goes_on = operation.go_on(&answer);
        let object = serde_json::to_value(&answer)?;
        match (answer.text(), O::Answer::LIST) {
            (_, Some(list)) if globals.json => {
                let elements = object[list].as_array();
                elements.into_iter().flatten().try_for_each(|it| output::line(true, b"", it))?;
            }
            (Text::Table(header, more), _) => {
                columns = if more.is_empty() { columns } else { header };
                rows.extend(more);
            }
            (Text::Item(lines, payload), _) => {
                output::line(globals.json, &item_text::text(lines, payload.as_deref()), &object)?;
            }
            (Text::Line(text), _) => {
                // Not an io::Error outside: the reader that closed the pipe does not know what was done. Without the text, which may be a secret.
                output::line(globals.json, text.as_bytes(), &object)
                    .map_err(|error| anyhow!("it is done, and the answer could not be printed: {error}"))?;
            }
        }
        if let Some(problem) = answer.problem() {
            bail!(problem);
        }
        if !goes_on {
            print_table(columns, rows)?;
            if let Some(next) = object["next"].as_str() {
                output::note(format_args!("there are more; see them with --after {next}"));
            }
            return Ok(Exit::Done);
        }
    }
}

/// Prints a table. One without rows is not printed.
fn print_table(columns: &[&str], rows: Vec<Vec<String>>) -> anyhow::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    table.set_header(columns.iter().copied()).add_rows(rows);
    Ok(output::line(false, table.to_string().as_bytes(), &Value::Null)?)
}

impl Place {
    fn open<O: Operation>(operation: &O, globals: &Globals) -> anyhow::Result<Self> {
        Self::open_with(globals, O::ROUTE.audit, || match operation.needs() {
            Needs::Database => Client::open(globals),
            Needs::Nothing => Client::open_or_create(globals, None),
            Needs::Queue { name, create } => {
                Client::open_to_change(globals, OsStr::from_bytes(&name.0), create)
            }
        })
    }

    /// For operations that need a database, whose records have this action.
    pub(super) fn open_for(action: Option<Action>, globals: &Globals) -> anyhow::Result<Self> {
        Self::open_with(globals, action, || Client::open(globals))
    }

    fn open_with(
        globals: &Globals,
        action: Option<Action>,
        open: impl FnOnce() -> anyhow::Result<Client>,
    ) -> anyhow::Result<Self> {
        match ApiClient::of_database(globals)? {
            Some(daemon) => Ok(Self::Daemon(Box::new(daemon))),
            None => Ok(Self::Here(Box::new(open()?.with_action(action)))),
        }
    }

    /// The id of the item that has a unique key.
    pub(super) fn unique_item(&self, target: &Target, key: &OsStr) -> anyhow::Result<ItemId> {
        let name = &target.queue;
        let found = match self {
            Self::Here(client) => {
                let queue = client.wait((&**client as &dyn Site).used_queue(target))?;
                client.unique_item(&queue, key)?
            }
            Self::Daemon(daemon) => {
                let [queue, key] = [OsStr::from_bytes(&name.0), key].map(OsStr::to_str);
                let (Some(queue), Some(key)) = (queue, key) else {
                    bail!("over HTTP the names of queues and unique keys have to be UTF-8")
                };
                let path = format!("/api/v1/queues/{}/items?unique={}", encoded(queue), encoded(key));
                daemon.get(&path)?["items"][0]["id"].as_str().and_then(|id| id.parse().ok())
            }
        };
        found.ok_or_else(|| no_unique(&name.0, key))
    }

    fn ask<O: Operation>(&self, operation: &O) -> anyhow::Result<O::Answer> {
        match self {
            Self::Here(client) => {
                let answer = client.wait(operation.run(&**client));
                client.finish_progress();
                client.check_record(answer.is_ok());
                answer
            }
            Self::Daemon(daemon) => {
                let Request { path, body } = Request::of(operation, |text| encoded(text).to_string())?;
                let answer = daemon.send(O::ROUTE.method.as_str(), &path, body.as_ref())?;
                serde_json::from_value(answer).context(
                    "the daemon answers in a way that this program does not know; is it of another version?",
                )
            }
        }
    }
}
