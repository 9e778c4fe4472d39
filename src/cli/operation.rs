//! Operations by commands: on the database itself, or by a request to a daemon if `--database` is a URL of one.

use std::{ffi::OsStr, num::NonZeroUsize, os::unix::ffi::OsStrExt};

use anyhow::{Context, anyhow};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde_json::Value;

use super::{
    api_client::{ApiClient, encoded},
    client::Client,
    globals::Globals,
    output,
};
use crate::{
    exit::Exit,
    operations::{Answer, Needs, Operation, Text, arguments::Request, longest_page},
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

/// Where an operation runs.
enum Place {
    Here(Box<Client>),
    Daemon(Box<ApiClient>),
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

fn run_in<O: Operation>(place: &Place, mut operation: O, globals: &Globals) -> anyhow::Result<Exit> {
    let mut left = operation.page().map(|page| page.limit.get());
    let (mut columns, mut rows): (&[&str], _) = (&[], Vec::new());
    loop {
        if let (Some(left), Some(page)) = (left, operation.page()) {
            page.limit = NonZeroUsize::new(left).unwrap_or(page.limit).min(longest_page());
        }
        let answer = place.ask(&operation)?;
        let object = serde_json::to_value(&answer)?;
        let elements = O::Answer::LIST.map(|list| object[list].as_array().cloned().unwrap_or_default());
        let number = elements.as_ref().map_or(0, Vec::len);
        match (answer.text(), elements) {
            (_, Some(elements)) if globals.json => {
                elements.iter().try_for_each(|it| output::line(true, b"", it))?;
            }
            (Text::Table(header, more), _) => {
                columns = header;
                rows.extend(more);
            }
            (Text::Line(text), _) => {
                // Not an io::Error outside: the reader that closed the pipe does not know what was done. Without the text, which may be a secret.
                output::line(globals.json, text.as_bytes(), &object)
                    .map_err(|error| anyhow!("it is done, and the answer could not be printed: {error}"))?;
            }
        }
        left = left.map(|left| left.saturating_sub(number));
        let next = object["next"].as_str().filter(|_| number > 0);
        let (Some(page), Some(next)) = (operation.page(), next) else { break };
        page.after = Some(next.to_owned());
        if left == Some(0) {
            print_table(columns, rows)?;
            output::note(format_args!("there are more; see them with --after {next}"));
            return Ok(Exit::Done);
        }
    }
    print_table(columns, rows)?;
    Ok(Exit::Done)
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
        if let Some(daemon) = ApiClient::of_database(globals)? {
            return Ok(Self::Daemon(Box::new(daemon)));
        }
        let client = match operation.needs() {
            Needs::Database => Client::open(globals)?,
            Needs::Nothing => Client::open_or_create(globals, None)?,
            Needs::Queue { name, create } => {
                Client::open_to_change(globals, OsStr::from_bytes(&name.0), create)?
            }
        };
        Ok(Self::Here(Box::new(client.with_action(O::ROUTE.audit))))
    }

    fn ask<O: Operation>(&self, operation: &O) -> anyhow::Result<O::Answer> {
        match self {
            Self::Here(client) => {
                let answer = client.wait(operation.run(&**client));
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
