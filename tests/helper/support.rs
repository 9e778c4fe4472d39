//! Code that the programs share: opening their database, and running daemons on it.

#[expect(dead_code, reason = "the tests themselves use the rest")]
#[path = "../it/support/random.rs"]
mod random;

use std::{process::exit, time::Duration};

use kvqueue::{
    Config, Daemon, Exit,
    config::Listen,
    database::Store,
    queue::{Pause, Queue, from_millis},
};

pub(crate) use random::Random;

/// Far longer than anything takes; only a failure waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The database that this program was given: URL and prefix.
pub(crate) fn database() -> (String, String) {
    let url = std::env::var("KVQUEUE_TEST_HELPER_DATABASE").expect("a program is given a database");
    (url, std::env::var("KVQUEUE_PREFIX").unwrap_or_default())
}

/// An argument of this program, counted from 0.
pub(crate) fn argument(index: usize) -> Option<String> {
    std::env::args().nth(2 + index)
}

/// A daemon on the database that this program was given, with this configuration.
pub(crate) fn daemon_with(config: &str) -> Daemon {
    let (database, prefix) = database();
    let mut config: Config = toml::from_str(config).unwrap();
    (config.database, config.prefix) = (database, prefix);
    // As the variable says that its command was given, and a configuration that is reloaded.
    if config.http.listen == Listen::Auto {
        let given = std::env::var("KVQUEUE_HTTP__LISTEN");
        config.http.listen = given.map_or(Listen::Off, |given| given.parse().unwrap());
    }
    kvqueue::telemetry::init(&config.log).unwrap();
    Daemon::new(config)
}

/// The daemon, with a file that it reads at a reload.
pub(crate) fn reloadable(daemon: Daemon, path: String) -> Daemon {
    daemon.reload_with(Some((&path).into()), move || {
        let mut config = kvqueue::config::load(Some(path.as_ref()))?;
        (config.database, config.prefix) = database();
        Ok(config)
    })
}

/// Runs a daemon as the program does, and ends the process.
pub(crate) fn run_to_the_end(daemon: Daemon) -> ! {
    let ended = match daemon.run() {
        Ok(()) => Exit::Done,
        Err(error) => {
            eprintln!("ended: {error}");
            error.exit()
        }
    };
    exit(ended as i32);
}

/// Freezes the queue `q`, as a migration does.
pub(crate) fn freeze() {
    let (database, prefix) = database();
    let store = Store::open(&database).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        let pause =
            Pause { at: from_millis(1_800_000_000_000), frozen: true, reason: "migrating".to_owned() };
        queue.pause(&tr, &pause);
        tr.commit().await.unwrap();
    });
}
