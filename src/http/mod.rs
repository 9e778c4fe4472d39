//! The HTTP API for operators, their tools, and programs.
//!
//! It has a thread of its own, so that clients never delay the actors. A request goes through
//! `serve`: the guards, the route, the handler, the headers of every answer. `docs/API.md` has the endpoints, and `docs/openapi.json`
//! in every detail; tests hold both to [`routes::ROUTES`].
//!
//! # Bounds
//!
//! Connections: `http.max-connections`; those beyond wait in the system's queue. A head has to come within 5 s and a body within 10, a
//! connection may be silent for 15 s, or leave an answer unread for 20. Bodies have `http.max-body` bytes each and 64 MiB together. At most 16 requests are at the database at
//! a time, for up to 5 s each; an answer takes at most 36 s.

mod api_request;
mod app_state;
mod audit;
mod body;
mod database;
mod dead;
mod error;
mod events;
mod files;
mod frozen;
mod guard;
mod headers;
mod health;
mod items;
mod listener;
mod metrics;
mod open_files;
mod openapi;
#[cfg(feature = "page")]
mod page;
mod pause;
mod peer;
mod pull;
mod push;
mod queue;
mod reload;
mod routes;
mod serve;
mod server;
mod sign_in;
mod slow_readers;
mod status;
mod ticker;
pub(crate) mod tls;
mod token_cache;
mod tokens;
mod uri;
mod workers;

pub(crate) use files::HttpFiles;
pub(crate) use guard::{OTHERS, Token};
pub(crate) use server::{HttpError, Server, start};
pub(crate) use tls::Certificate;
