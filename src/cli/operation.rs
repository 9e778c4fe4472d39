//! Operations by commands: on the database itself, or by a request to a daemon if `--database` is a URL of one.

use std::{collections::BTreeSet, ffi::OsStr, num::NonZeroUsize, os::unix::ffi::OsStrExt};

use anyhow::{Context, anyhow};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{ItemId, ItemState};
use serde::Deserialize;
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
    base::exit::Exit,
    operations::{
        Answer, Method, Needs, Operation, Page, Refusal, Site, Text,
        arguments::Request,
        items::ItemTarget,
        look::{Item, ListItems},
        names::{QueueName, UniqueName},
        target::Target,
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
            ) -> anyhow::Result<crate::base::exit::Exit> {
                match self {
                    $(Self::$name(operation) => crate::cli::operation::run(operation, globals)),*
                }
            }
        }
    };
}

pub(super) use group;

/// What runs operations: this process, on the database, or a daemon.
pub(super) enum Runner {
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
    let runner = Runner::open_for(O::ROUTE.audit, globals)?;
    let found = unique.map(|key| runner.unique_item(target, key)).transpose()?;
    let mut named = Named::new(what, done, globals.json);
    for id in ids.iter().chain(&found) {
        let operation = operation(ItemTarget::new(target.clone(), id.clone()));
        match runner.ask(&operation) {
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

/// Whether an operation has not found the item or the like that it is about, in a queue that is there.
pub(super) fn is_not_found(error: &anyhow::Error) -> bool {
    match (error.downcast_ref::<Refusal>(), error.downcast_ref::<AskError>()) {
        (Some(refusal), _) => refusal.code == "not_found",
        (None, Some(AskError::Refused { code, .. })) => code == "not_found",
        (None, _) => false,
    }
}

/// Whether the same may succeed later, at a daemon.
pub(super) fn is_transient(error: &anyhow::Error) -> bool {
    error.downcast_ref::<AskError>().is_some_and(AskError::is_transient)
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
    // Before a database is made.
    operation.check()?;
    run_in(&Runner::open(&operation, globals)?, operation, globals)
}

/// Has a daemon run an operation, and prints its answer.
pub(super) fn run_at<O: Operation>(
    daemon: ApiClient,
    operation: O,
    globals: &Globals,
) -> anyhow::Result<Exit> {
    run_in(&Runner::Daemon(Box::new(daemon)), operation, globals)
}

pub(super) fn run_in<O: Operation>(
    runner: &Runner,
    mut operation: O,
    globals: &Globals,
) -> anyhow::Result<Exit> {
    let Some(list) = O::Answer::LIST else {
        print::<O>(&runner.ask(&operation)?, globals)?;
        return Ok(Exit::Done);
    };
    let (mut columns, mut rows, mut is_empty, mut problem) = (Vec::new(), Vec::new(), true, None);
    loop {
        let answer = runner.ask(&operation)?;
        let goes_on = operation.go_on(&answer);
        let object = serde_json::to_value(&answer)?;
        is_empty &= object[list].as_array().is_none_or(Vec::is_empty);
        if globals.json {
            let elements = object[list].as_array();
            elements.into_iter().flatten().try_for_each(|it| output::line(true, b"", it))?;
        } else if let Text::Table(header, more) = answer.text()
            && !more.is_empty()
        {
            columns = header;
            rows.extend(more);
        }
        problem = problem.or_else(|| answer.problem().filter(|_| globals.json));
        if let Some(note) = answer.note().filter(|_| !globals.quiet) {
            output::note(format_args!("kvqueue: {note}"));
        }
        if !goes_on {
            print_table(columns, rows)?;
            if is_empty && !globals.quiet {
                runner.note_if_absent(&operation);
            }
            if let Some(next) = object["next"].as_str().filter(|_| !globals.quiet) {
                output::note(format_args!("there are more; see them with --after {next}"));
            }
            return problem.map_or(Ok(Exit::Done), |problem| Err(anyhow!(problem)));
        }
    }
}

/// Prints an answer that is no list.
pub(super) fn print<O: Operation>(answer: &O::Answer, globals: &Globals) -> anyhow::Result<()> {
    let text = match answer.text() {
        Text::Line(text) => text.into_bytes(),
        Text::Fields(lines, payload) => item_text::text(&lines, payload.as_deref()),
        Text::Tables(lines, tables) => {
            let mut text = item_text::text(&lines, None);
            for (title, columns, rows) in tables {
                text.extend_from_slice(format!("\n\n{title}\n{}", table(columns, rows)).as_bytes());
            }
            text
        }
        Text::Table(..) => Vec::new(),
    };
    let printed = output::line(globals.json, &text, &serde_json::to_value(answer)?);
    if O::ROUTE.audit.is_some() {
        // Not an io::Error outside: the reader that closed the pipe does not know what was done. Without the text, which may be a secret.
        printed.map_err(|error| anyhow!("it is done, and the answer could not be printed: {error}"))?;
    } else {
        printed?;
    }
    if let Some(note) = answer.note().filter(|_| !globals.quiet) {
        output::note(format_args!("kvqueue: {note}"));
    }
    answer.problem().map_or(Ok(()), |problem| Err(anyhow!(problem)))
}

/// Prints a table. One without rows is not printed.
pub(super) fn print_table(columns: Vec<&str>, rows: Vec<Vec<String>>) -> anyhow::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    Ok(output::line(false, table(columns, rows).to_string().as_bytes(), &Value::Null)?)
}

/// A table as wide as the terminal.
fn table(columns: Vec<&str>, rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    table.set_header(columns).add_rows(rows);
    table
}

impl Runner {
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

    pub(super) fn open_with(
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
        let (page, unique) = (Page::new(NonZeroUsize::MIN, None), UniqueName(key.as_bytes().to_vec()));
        let (state, bytes) = (ItemState::default(), Some(0));
        let operation = ListItems { target: target.clone(), state, page, bytes, unique: Some(unique) };
        if let Some(id) = self.ask(&operation)?.items.first().and_then(Item::id) {
            return Ok(id);
        }
        if let Self::Here(client) = self {
            client.wait((&**client as &dyn Site).existing_queue(target))?;
        }
        Err(no_unique(&target.queue.0, key))
    }

    /// Says that a list is empty since there is no such queue. In a database the operation has said so.
    fn note_if_absent<O: Operation>(&self, operation: &O) {
        if let Self::Daemon(daemon) = self
            && let Ok(operation) = serde_json::to_value(operation)
            && let Some(queue) = operation["queue"].as_str()
            && let Err(AskError::Refused { code, message, fix, .. }) =
                daemon.get(&format!("/api/v1/queues/{}", encoded(queue)))
            && code == "no_queue"
        {
            output::note(format_args!("kvqueue: {message}; {fix}"));
        }
    }

    /// The names of all queues, in their order.
    pub(super) fn queues(&self) -> anyhow::Result<BTreeSet<Vec<u8>>> {
        let daemon = match self {
            Self::Here(client) => return Ok(client.queues()?.into_iter().collect()),
            Self::Daemon(daemon) => daemon,
        };
        let (mut names, mut after) = (BTreeSet::new(), String::new());
        loop {
            let page = daemon.get(&format!("/api/v1/queues?all=true{after}"))?;
            for queue in page["queues"].as_array().into_iter().flatten() {
                names.insert(QueueName::deserialize(queue)?.0);
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", encoded(next)),
                None => return Ok(names),
            }
        }
    }

    /// The most bytes of each payload in a list.
    pub(super) fn most_of_payloads(&self) -> usize {
        match self {
            Self::Here(_) => usize::MAX,
            Self::Daemon(_) => 65_536,
        }
    }

    pub(super) fn ask<O: Operation>(&self, operation: &O) -> anyhow::Result<O::Answer> {
        operation.check()?;
        match self {
            Self::Here(client) => {
                let answer = client.wait(operation.run(&**client));
                client.finish_progress();
                client.check_record(O::ROUTE.audit.is_some() && answer.is_ok());
                answer
            }
            Self::Daemon(daemon) => {
                let Request { path, body } = Request::of(operation, |text| encoded(text).to_string())?;
                let answer = match O::ROUTE.method {
                    Method::Get => daemon.get(&path)?,
                    method => daemon.send(method.as_str(), &path, body.as_ref())?,
                };
                serde_json::from_value(answer).context(
                    "the daemon answers in a way that this program does not know; is it of another version?",
                )
            }
        }
    }
}
