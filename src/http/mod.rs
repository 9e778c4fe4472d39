//! HTTP: what operators, their tools and programs ask the daemon, and tell it.
//!
//! A thread of its own serves it, so that whatever clients do never keeps the actors from their work. A request goes through
//! `serve`: the guards, the route, the handler, the headers of every answer. `docs/API.md` has the endpoints, and `docs/openapi.json`
//! in every detail; tests hold both to [`routes::ROUTES`].
//!
//! | file | role |
//! |---|---|
//! | `server`, `listener` | from the configuration to a thread that listens, and its end |
//! | `slow_readers` | clients of a Unix socket that do not read their answers |
//! | `site` | what all requests share |
//! | `serve`, `headers` | one request from its head to its answer |
//! | `routes` | the list of all there is |
//! | `uri`, `body`, `call` | what a request says |
//! | `guard` | who may ask for what |
//! | `error` | what is said instead of an answer |
//! | `health`, `status`, `metrics`, `openapi` | endpoints that only look |
//! | `items`, `push`, `dead`, `pause`, `database`, `frozen` | endpoints that ask the database |
//! | `reload` | an order to the daemon |
//! | `page` | the page's files |
//! | `events`, `ticker` | what the page follows |
//!
//! # Bounds
//!
//! Connections: `http.max-connections`; those beyond wait in the system's queue. A head has to come within 5 s and a body within 10, a
//! connection may be silent for 15 s, or leave an answer unread for 20. Bodies have `http.max-body` bytes each and 64 MiB together. At most 16 requests are at the database at
//! a time, for up to 5 s each; an answer takes at most 30 s.

mod body;
mod call;
mod database;
mod dead;
mod error;
mod events;
mod frozen;
mod guard;
mod headers;
mod health;
mod items;
mod listener;
mod metrics;
mod openapi;
#[cfg(feature = "page")]
mod page;
mod pause;
mod push;
mod queue;
mod reload;
mod routes;
mod serve;
mod server;
mod site;
mod slow_readers;
mod status;
mod ticker;
mod uri;

pub(crate) use guard::{OTHERS, Token};
pub(crate) use server::{HttpError, start};
