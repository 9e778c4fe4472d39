//! Embed the daemon: run it inside a program of your own.
//!
//! If the program is to be the daemon and nothing else, [`cli::main_with`](crate::cli::main_with) is shorter;
//! see [`write_a_handler`](super::write_a_handler). Embedding is for a program that does other things as well,
//! such as a server that pushes items and processes them in one process.
//!
//! ```
//! use std::{thread, time::Duration};
//!
//! use kvqueue::{
//!     Config, Context, Daemon, Handler, Item, Outcome, SettingsError,
//!     config::{Listen, QueueConfig},
//!     database::Store,
//!     queue::{Queue, Session},
//! };
//! use tokio::sync::oneshot;
//!
//! struct Print;
//!
//! #[kvqueue::async_trait]
//! impl Handler for Print {
//!     async fn handle(&self, item: &Item, _: &Context) -> Outcome {
//!         println!("{}", String::from_utf8_lossy(&item.payload));
//!         Outcome::Done
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let url = format!("embedded:{}", directory.path().display());
//! // A process opens one database, and keeps it open until the daemon has ended.
//! let store = Store::open(&url)?;
//!
//! let emails = QueueConfig::new("print").with_consumers(10, 4);
//! let mut config = Config::new(url).with_queue("emails", emails);
//! config.shutdown_timeout = Duration::from_secs(5);
//! let (stop, stopped) = oneshot::channel::<()>();
//! let (ready, is_ready) = oneshot::channel();
//!
//! // The daemon has its own runtime, so it needs a thread of its own.
//! let db = store.db.clone();
//! let daemon = thread::spawn(move || {
//!     Daemon::new(config)
//!         .handler("print", |_| Ok::<_, SettingsError>(Print))
//!         .on_ready(move || drop(ready.send(())))
//!         .run_on(&db, async move { drop(stopped.await) })
//! });
//! is_ready.await?;
//!
//! // The program goes on, and pushes.
//! let mut session = Session::new(Queue::new(b"", b"emails")?);
//! session.push(&store.db, &[b"hello"]).await?;
//!
//! // A stop waits for items in hand, up to `shutdown_timeout`, and gives the others back.
//! drop(stop);
//! daemon.join().expect("the daemon does not panic")?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is different from `kvqueue run`
//!
//! | | [`Daemon::run_on`](crate::Daemon::run_on) | [`Daemon::run`](crate::Daemon::run) |
//! |---|---|---|
//! | database | the one you opened | it opens the one of the configuration |
//! | stop | your future | TERM and INT |
//! | reload, state in the log | no | HUP (with [`reload_with`](crate::Daemon::reload_with)), USR1 |
//! | HTTP: API, metrics, page | no | as `http.listen` says |
//!
//! # Features
//!
//! A program that only embeds the daemon needs no commands, HTTP server and page:
//! `kvqueue = { path = "...", default-features = false }`. The features are `cli`, `http` and `page`, and `cli`
//! includes `http`. Without `http`, a configuration that names an address in `http.listen` is refused.
//!
//! # Logs
//!
//! kvqueue logs with [`tracing`](https://docs.rs/tracing). If your program has installed a subscriber, that
//! one gets the events. [`telemetry::init`](crate::telemetry::init) installs kvqueue's own. Every event has a
//! field `event` with a stable code. A filter that turns the target
//! [`telemetry::SPAN_TARGET`](crate::telemetry::SPAN_TARGET) off saves a microsecond or two per item.
//!
//! # Configuration from a file
//!
//! [`config::load`](crate::config::load) reads a file and the `KVQUEUE_...` variables. A daemon checks its
//! configuration before it starts; [`Daemon::check`](crate::Daemon::check) does so without a database.
