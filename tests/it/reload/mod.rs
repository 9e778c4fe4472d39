//! Another configuration takes effect while the daemon runs: nothing is lost or repeated, and a wrong one changes nothing.

mod basics;
mod hands;
mod load;
mod partitions;
mod races;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::PathBuf,
};

use rustix::process::Signal;

use crate::support::{Background, Database, kvqueue, pipe, run, wait_until};

const RELOADED: &str = "configuration_reloaded";
const REFUSED: &str = "configuration_refused";

/// A queue whose handler reports when it begins, and waits for permission to end. It uses pipes, and a file of what it did. Its items are `one` and
/// `two`, each with a pipe of its own to wait on: of one pipe that two wait on, both are let go.
const IN_HAND: &str = "handler = 'exec'\nhandler-config = { command = ['sh', '-c', '''\
    read item; echo begin $item >> log; echo $item > begun; read word < go-$item; echo end $item >> log'''] }\n\
    consumers = [ { k = 1 } ]\n";

/// A daemon and its file.
struct Reloading {
    daemon: Background,
    config: PathBuf,
    db: Database,
}

impl Reloading {
    /// With pipes for [`IN_HAND`].
    fn start(db: Database, text: &str, options: &[&str]) -> Self {
        let config = db.file("kvqueue.toml");
        fs::write(&config, text).unwrap();
        for name in ["begun", "go-one", "go-two"] {
            pipe(&db, name);
        }
        let mut command = kvqueue(&db, &["run", "--config", config.to_str().unwrap()]);
        command.args(options).current_dir(db.directory.path());
        let mut daemon = Background::start(command);
        daemon.wait_for_event("ready");
        Self { daemon, config, db }
    }

    fn hang_up(&self, text: &str) {
        fs::write(&self.config, text).unwrap();
        self.daemon.signal(Signal::HUP);
    }

    /// Waits until it is in force, and returns what the daemon says then.
    fn reload(&mut self, text: &str) -> String {
        self.hang_up(text);
        self.daemon.wait_for_event(RELOADED)
    }

    /// The same for one that is refused.
    fn refused(&mut self, text: &str) -> String {
        self.hang_up(text);
        self.daemon.wait_for_event(REFUSED)
    }

    /// Waits until a handler has begun, and returns with what.
    fn begun(&self) -> String {
        fs::read_to_string(self.db.file("begun")).unwrap().trim().to_owned()
    }

    fn let_go(&self, item: &str) {
        let pipe = OpenOptions::new().write(true).open(self.db.file(&format!("go-{item}")));
        pipe.unwrap().write_all(b"go\n").unwrap();
    }

    fn stop(self) -> String {
        self.daemon.signal(Signal::TERM);
        let ran = self.daemon.end();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stderr
    }

    /// The records of the handlers, once all have ended.
    fn did(db: &Database) -> String {
        fs::read_to_string(db.file("log")).unwrap_or_default()
    }
}

/// Waits until this number of items of a queue is done.
#[track_caller]
fn wait_until_done(db: &Database, queue: &str, items: usize) {
    let done = format!("\"done\":{items},");
    wait_until(&format!("{items} done"), || run(db, &["len", queue, "--json"]).ok().contains(&done));
}

/// Queues, each with these lines.
fn queues(queues: &[(&str, &str)]) -> String {
    queues.iter().map(|(name, lines)| format!("[queues.{name}]\n{lines}\n")).collect()
}
