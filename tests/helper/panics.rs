//! Programs for the tests of `tests/it/panics.rs`.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use kvqueue::{Context, Daemon, Event, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{argument, daemon_with, run_to_the_end};

/// Prints what it handles; panics at an item that says so.
struct Touchy;

impl Touchy {
    fn from_config(_: &Settings) -> Result<Self, SettingsError> {
        Ok(Self)
    }
}

#[kvqueue::async_trait]
impl Handler for Touchy {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        assert_ne!(&item.payload[..], b"panic", "panic on purpose");
        if &item.payload[..] == b"slow" {
            eprintln!("slow begins");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!("handled {}", String::from_utf8_lossy(&item.payload));
        Outcome::Done
    }
}

/// A daemon on queue `q`, with one consumer or with this number of them.
fn run_daemon(with: impl FnOnce(Daemon) -> Daemon) {
    let consumers = argument(0).unwrap_or("1".to_owned());
    let config = format!(
        "[queues.q]
         handler = 'touchy'
         consumers = [ {{ k = 1, count = {consumers} }} ]
         retry = {{ max-attempts = 1 }}"
    );
    let daemon = daemon_with(&config);
    run_to_the_end(with(daemon.handler("touchy", Touchy::from_config).until_empty(true)));
}

pub(crate) fn handler() {
    run_daemon(|daemon| daemon);
}

pub(crate) fn consumer_panics_twice() {
    let takes = AtomicU32::new(0);
    run_daemon(|daemon| {
        daemon.observe(move |_, event| {
            if matches!(event, Event::Dispatched { .. }) {
                assert!(takes.fetch_add(1, Ordering::Relaxed) >= 2, "panic on purpose");
            }
        })
    });
}

/// The fetch for the next batches is under way then, since commits are slow.
pub(crate) fn consumer_panics_during_a_fetch() {
    let batches = AtomicU32::new(0);
    run_daemon(|daemon| {
        daemon.observe(move |_, event| {
            if matches!(event, Event::Dispatched { .. }) {
                assert!(batches.fetch_add(1, Ordering::Relaxed) != 1, "panic on purpose");
            }
        })
    });
}

pub(crate) fn fetcher_panics() {
    let wakenings = AtomicU32::new(0);
    run_daemon(|daemon| {
        daemon.until_empty(false).observe(move |_, event| match event {
            Event::Idle => eprintln!("idle"),
            Event::Woken => assert!(wakenings.fetch_add(1, Ordering::Relaxed) > 0, "panic on purpose"),
            _ => {}
        })
    });
}

pub(crate) fn consumer_keeps_panicking() {
    run_daemon(|daemon| daemon.observe(|_, event| assert!(event != Event::Started, "panic on purpose")));
}

pub(crate) fn consumer_panics_in_drain() {
    run_daemon(|daemon| daemon.observe(|_, event| assert!(event != Event::Drain, "panic on purpose")));
}
