//! What people and programs ask of a queue. Each operation is one type: its arguments, its route, its record in the audit trail, what it does,
//! and its answer. Commands (`cli/operation.rs`) and requests (`http/operation.rs`) are two ways to one of them.

mod all;
pub(crate) mod arguments;
pub(crate) mod audit;
mod batch_object;
pub(crate) mod batches;
pub(crate) mod ended;
pub(crate) mod items;
pub(crate) mod letters;
mod limits;
pub(crate) mod look;
pub(crate) mod names;
mod object;
mod pause;
pub(crate) mod push;
pub(crate) mod queues;
mod refusal;
pub(crate) mod schedules;
mod site;
pub(crate) mod states;
pub(crate) mod target;
pub(crate) mod times;
mod tokens;
mod why;

use std::{num::NonZeroUsize, time::Instant};

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{access::Scope, audit::Action};

pub(crate) use self::{
    all::each,
    limits::{ListHeld, ListRules, RemoveRule, SetRule, Unblock},
    names::QueueName,
    pause::{PauseQueue, ResumeQueue},
    refusal::{Class, Refusal},
    site::{Holders, Note, Site, Unsure},
    tokens::{ListTokens, NewToken, RevokeToken},
};

/// Something that can be asked of a database or of a daemon. The fields are its arguments, for commands and for requests. The comments of the type and of
/// its fields are the help of a command that is no more than the operation, and the descriptions in `docs/openapi.json`.
pub(crate) trait Operation: Serialize + DeserializeOwned + JsonSchema {
    /// How a request asks for it, and who may.
    const ROUTE: Route;

    /// What it answers.
    type Answer: Answer;

    /// Checks its arguments, as far as that needs no database.
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Does it, after [`Self::check`].
    ///
    /// # Errors
    /// A [`Refusal`] says what to do. Any other error is the database's, or the site's.
    async fn run(&self, site: &dyn Site) -> anyhow::Result<Self::Answer>;

    /// What has to be there before.
    fn needs(&self) -> Needs<'_> {
        Needs::Database
    }

    /// Changes the arguments of a list to those for what comes behind an answer. False if nothing does, or no more is wanted.
    fn go_on(&mut self, _so_far: &Self::Answer) -> bool {
        false
    }
}

/// Something that is done with every operation.
pub(crate) trait Visit {
    fn operation<O: Operation + 'static>(&mut self);
}

/// What has to be there before an operation.
pub(crate) enum Needs<'a> {
    /// The database.
    Database,
    /// Nothing: it may be the first to use the database.
    Nothing,
    /// The queue `name`, in the database or the configuration; nothing, if its argument `create` is true.
    Queue { name: &'a QueueName, create: bool },
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// How a request asks for an operation, and who may. The arguments that the path does not name are in the query of a GET or DELETE, and in the
/// body of any other request; `create` is always in the query. An argument in a query is a text, a flag or a whole number of 0 or more.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With the names of arguments in braces, as in `/api/v1/queues/{queue}/limits`.
    pub(crate) path: &'static str,
    pub(crate) scope: Scope,
    /// The action of its record in the audit trail. One that changes something has one, unless it belongs to a push.
    pub(crate) audit: Option<Action>,
    /// Whether its body may be as long as that of a push.
    pub(crate) has_long_body: bool,
    /// Whether it may wait for something, as long as [`LONGEST_WAIT`](crate::base::deadlines::LONGEST_WAIT).
    pub(crate) waits: bool,
    /// What its comment does not say, for `docs/API.md`.
    #[cfg(test)]
    pub(crate) notes: &'static str,
}

impl Route {
    /// A route that reads.
    const fn read(path: &'static str) -> Self {
        Self::new(Method::Get, path, Scope::Read, None)
    }

    /// A route of operators that changes something, with the action of its record.
    const fn change(action: Action, method: Method, path: &'static str) -> Self {
        Self::new(method, path, Scope::Admin, Some(action))
    }

    /// A route of producers, which leaves no record.
    const fn push(path: &'static str) -> Self {
        Self::new(Method::Post, path, Scope::Push, None)
    }

    const fn new(method: Method, path: &'static str, scope: Scope, audit: Option<Action>) -> Self {
        Self {
            method,
            path,
            scope,
            audit,
            has_long_body: false,
            waits: false,
            #[cfg(test)]
            notes: "",
        }
    }

    /// The same. `notes` are for `docs/API.md`, which a test writes: what a request has to know that the comment of its operation does not say.
    #[cfg_attr(not(test), expect(unused_variables, reason = "a test writes the document"))]
    const fn with_notes(self, notes: &'static str) -> Self {
        Self {
            #[cfg(test)]
            notes,
            ..self
        }
    }

    /// The same, with a body that may be as long as that of a push.
    const fn with_long_body(self) -> Self {
        Self { has_long_body: true, ..self }
    }

    /// The same, for operators alone.
    const fn of_operators(self) -> Self {
        Self { scope: Scope::Admin, ..self }
    }

    /// The same, which may wait for something.
    const fn that_waits(self) -> Self {
        Self { waits: true, ..self }
    }

    /// Whether its arguments are in the query.
    fn has_query(&self) -> bool {
        matches!(self.method, Method::Get | Method::Delete)
    }

    /// The arguments in its path.
    pub(crate) fn in_path(&self) -> impl Iterator<Item = &'static str> + use<> {
        in_path(self.path)
    }

    /// Where a request has the argument of this name.
    fn part_of(&self, name: &str) -> Part {
        let is_same = |it: &str| name.strip_prefix(it).is_some_and(|rest| ["", "_base64"].contains(&rest));
        if self.in_path().any(is_same) {
            Part::Path
        } else if self.has_query() || name == CREATE {
            Part::Query
        } else {
            Part::Body
        }
    }
}

/// The argument that lets an operation come before the first push to its queue.
const CREATE: &str = "create";

/// The names in braces of a path.
fn in_path(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Where a request has an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Path,
    Query,
    Body,
}

impl Part {
    /// What an argument is called there.
    fn word(self) -> &'static str {
        match self {
            Self::Path => "part of the path",
            Self::Query => "parameter",
            Self::Body => "field",
        }
    }
}

/// What an operation answers. Over HTTP, and with `--json`, it is an object.
pub(crate) trait Answer: Serialize + DeserializeOwned + JsonSchema {
    /// The field with the elements of a list. With `--json` each of them is a line.
    const LIST: Option<&'static str> = None;

    /// The same for people.
    fn text(&self) -> Text;

    /// What was not done, though the operation is over. A command prints it after its answer, and fails.
    fn problem(&self) -> Option<String> {
        None
    }

    /// What a person should know, too.
    fn note(&self) -> Option<String> {
        None
    }
}

/// A table with its title and its columns.
pub(crate) type Titled = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

/// An answer for people.
pub(crate) enum Text {
    Line(String),
    /// The columns, and the rows of an answer that has a [`Answer::LIST`]. Nothing is printed if there is no row.
    Table(Vec<&'static str>, Vec<Vec<String>>),
    /// Names and values, a line for each; and behind an empty line what a producer or a handler wrote.
    Fields(Vec<(&'static str, String)>, Option<Vec<u8>>),
    /// Names and values, a line for each; and behind them tables with their titles.
    Tables(Vec<(&'static str, String)>, Vec<Titled>),
}

/// Which part of a list is to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Args)]
pub(crate) struct Page {
    /// The most to list
    #[arg(short = 'n', default_value = "100", value_parser = number, allow_negative_numbers = true)]
    #[serde(default = "longest_page")]
    #[schemars(range(min = 1), description = "The most to list. An answer has 100 at most.")]
    limit: NonZeroUsize,
    /// Those behind this one, as an earlier list printed it
    #[arg(long, value_name = "ID")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

impl Page {
    pub(crate) fn new(limit: NonZeroUsize, after: Option<String>) -> Self {
        Self { limit, after }
    }

    /// How many elements an answer has at most.
    fn most(&self) -> NonZeroUsize {
        self.limit.min(longest_page())
    }

    /// Goes on behind an answer that has so many elements. False if there are no more, or enough.
    fn go_on(&mut self, listed: usize, next: Option<&str>) -> bool {
        let left = NonZeroUsize::new(self.limit.get().saturating_sub(listed));
        let next = next.filter(|next| self.after.as_deref() != Some(next));
        let (Some(left), Some(next)) = (left, next) else { return false };
        (self.limit, self.after) = (left, Some(next.to_owned()));
        true
    }
}

/// Whether this time has passed; one that is not limited does not.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// Whether a field of JSON is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The most elements of a list in one answer.
fn longest_page() -> NonZeroUsize {
    const LONGEST: NonZeroUsize = NonZeroUsize::new(100).expect("it is not 0");
    LONGEST
}

/// Reads how many elements a list may have.
fn number(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "write a whole number of 1 or more".to_owned())
}
