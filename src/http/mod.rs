//! The HTTP API for operators, their tools, and programs.
//!
//! It has a thread of its own, so that clients never delay the actors. A request goes through
//! `serve`: the guards, the route, the handler, the headers of every answer. `docs/API.md` has the
//! endpoints, and `docs/openapi.json` in every detail; tests hold both to [`routes::ROUTES`].
//!
//! # Bounds
//!
//! | what | limit | where |
//! |---|---|---|
//! | connections; more wait in the system's queue | `http.max-connections` | `config/http.rs` |
//! | time for a request's head | 5 s | `server::HEAD` |
//! | time for its body | 10 s | `body::PATIENCE` |
//! | time without a request on a connection | 15 s | `server::SILENCE` |
//! | time in which a client reads nothing of an answer | 20 s | `server::UNREAD` |
//! | a body | `http.max-body`, or 64 KiB for short requests | `api_request` |
//! | all bodies together | 64 MiB | `body::HELD` |
//! | operations at the database, except those of the next three rows | 16 | `app_state` |
//! | pushes of one item, fetches for workers, and looks whether a queue is paused | connections | |
//! | reads of access tokens | 1 | `token_cache` |
//! | changes of leases by workers | 64 | `pull/pullers.rs` |
//! | acknowledgements in one transaction | 64 | `pull/acknowledging.rs` |
//! | time at the database of one operation | 5 s, and 1 s until it is given up | `database` |
//! | time until an answer begins, after its client is known | 36 s | `deadlines::REQUEST` |
//! | the same of `lease` and `acknowledge`: 60 s more, to wait for items | 96 s | `pull` |

mod api_request;
mod app_state;
mod audit;
mod batches;
mod body;
mod database;
mod dead;
mod ended;
mod error;
mod events;
mod files;
mod frozen;
mod guard;
mod headers;
mod health;
mod item_changes;
mod item_wait;
mod items;
mod limits;
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
mod schedules;
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
