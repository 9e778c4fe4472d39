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
//! | connections of known clients | `http.max-connections` | `config/http.rs` |
//! | connections of strangers: what is left of that, and a few more; the oldest one gives way | 64 | `places` |
//! | TLS handshakes; more connections wait in the system's queue | 512; 1,024 | `places`, `listener` |
//! | time for a request's head | 5 s | `server::HEAD` |
//! | time for its body | 10 s | `deadlines::BODY` |
//! | time without a request on a connection | `http.keep-alive` | `config/http.rs` |
//! | time in which a client reads nothing of an answer | 20 s | `server::UNREAD` |
//! | a body | `http.max-body`, or 64 KiB for short requests | `api_request` |
//! | all bodies together; those of one access token | 64 MiB; 32 MiB | `room::BODIES` |
//! | all long answers until they are read; those of one access token | 64 MiB; 32 MiB | `room::ANSWERS` |
//! | time for reading a long answer | 20 s, and 1 s for each 64 KiB | `long_answer` |
//! | operations at the database, except those of the next three rows; those of one access token | 16; 12 | `room::AT_THE_DATABASE` |
//! | pushes of one item, fetches for workers, and looks whether a queue is paused | connections | |
//! | reads of access tokens | 1 | `token_cache` |
//! | changes of leases by workers | 64 | `pull/kept.rs` |
//! | acknowledgements in one transaction | 64 | `pull/acknowledging.rs` |
//! | time at the database of one operation | 5 s, and 1 s until it is given up | `backend` |
//! | time until an answer begins, after its client is known | 36 s | `deadlines::REQUEST` |
//! | the same of `lease` and `acknowledge`: 60 s more, to wait for items | 96 s | `pull` |

mod api_request;
mod app_state;
mod audit;
mod backend;
mod batches;
mod body;
mod database;
#[cfg(test)]
mod documents;
mod error;
mod events;
mod files;
mod guard;
mod handle;
mod headers;
mod health;
mod item_wait;
mod item_wait_bounds;
mod keys;
mod links;
mod listener;
mod long_answer;
mod metrics;
mod open_files;
mod openapi;
mod operation;
#[cfg(feature = "page")]
mod page;
mod pause;
mod peer;
mod places;
mod pull;
mod push;
mod reload;
mod room;
mod route;
mod routes;
mod schedules;
mod scheme;
mod serve;
mod server;
mod shortened;
mod sign_in;
mod sign_in_page;
mod sizes;
mod slow_readers;
mod status;
mod ticker;
pub(crate) mod tls;
mod token_cache;
mod uri;
mod workers;

pub(crate) use files::HttpFiles;
pub(crate) use guard::{OTHERS, Token};
pub(crate) use handle::DaemonHandle;
pub(crate) use server::{HttpError, Server, start};
pub(crate) use tls::Certificate;
