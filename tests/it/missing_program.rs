//! A command that cannot be started costs no item and no attempt, however long that lasts.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Database, Ran, Served, events, kvqueue, run, run_with_input, serve_with, wait_until};

/// The queue of a deployment whose program is not there yet.
struct Deployment {
    db: Database,
}

impl Deployment {
    fn new(queue: &str) -> Self {
        let db = Database::new();
        let text = format!(
            "[queues.q]\nhandler = 'exec'\n{queue}\n[queues.q.handler-config]\ncommand = ['./handle']\n"
        );
        fs::write(db.file("kvqueue.toml"), text).unwrap();
        Self { db }
    }

    fn push(&self, items: u32) {
        let lines: String = (0..items).map(|item| format!("{item}\n")).collect();
        run_with_input(&self.db, &["push", "q", "--lines", "-"], lines).ok();
    }

    fn serve(&self) -> Served {
        let config = self.db.file("kvqueue.toml");
        let mut command = kvqueue(&self.db, &["run", "--config", config.to_str().unwrap()]);
        command.current_dir(self.db.directory.path());
        serve_with(command, false)
    }

    /// Puts the program there, in one step. It notes each item with its attempt.
    fn install(&self, script: &str) {
        let new = self.db.file("new");
        fs::write(&new, format!("#!/bin/sh\n{script}")).unwrap();
        executable(&new);
        fs::rename(new, self.db.file("handle")).unwrap();
    }

    /// Runs a daemon that ends when there is nothing to do.
    fn run_until_empty(&self) -> Ran {
        let config = self.db.file("kvqueue.toml");
        let args = ["run", "--until-empty", "--config", config.to_str().unwrap()];
        let mut command = kvqueue(&self.db, &args);
        command.env("KVQUEUE_SHUTDOWN_TIMEOUT", "1s");
        command.current_dir(self.db.directory.path()).output().unwrap().into()
    }

    /// How many files end in this.
    fn files(&self, end: &str) -> usize {
        let entries = fs::read_dir(self.db.directory.path()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(end)).count()
    }

    /// The text about the program.
    fn not_started(&self) -> String {
        format!(
            "the handler of queue \"q\" cannot work: its command cannot be started: {}: No such file or directory",
            self.db.file("handle").display()
        )
    }

    /// The queue's count of items in a state.
    fn count(&self, what: &str) -> u64 {
        let counts: Value = serde_json::from_str(&run(&self.db, &["len", "q", "--json"]).ok()).unwrap();
        counts[what].as_u64().unwrap_or_else(|| panic!("no {what} in {counts}"))
    }

    /// The program's notes.
    fn noted(&self) -> Vec<String> {
        let text = fs::read_to_string(self.db.file("noted")).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The queue, as the daemon shows it.
fn shown(served: &Served) -> Value {
    served.at.get("/api/v1/status").is(200)["queues"][0].clone()
}

fn tries(served: &Served) -> u64 {
    shown(served)["unavailable"]["tries"].as_u64().unwrap_or(0)
}

#[test]
fn a_missing_program_costs_no_attempt_and_the_queue_goes_on_when_it_is_there() {
    let deployment = Deployment::new(
        "lease = '2s'\nconsumers = [{ k = 10, count = 4 }]\nretry = { max-attempts = 3, base = '10ms' }",
    );
    deployment.push(200);
    let served = deployment.serve();
    wait_until("the command has been tried a few times", || tries(&served) >= 3);
    // All that the consumers had when it was first tried is given back; one trial may be under way.
    wait_until("what was taken is given back", || deployment.count("running") <= 1);
    let ready = served.at.get("/readyz").is(200);
    let warning = ready["warnings"][0].as_str().unwrap();
    assert!(warning.contains(&deployment.not_started()), "{ready}");
    let metrics = String::from_utf8(served.at.get("/metrics").body).unwrap();
    assert!(metrics.contains("kvqueue_handler_unavailable{queue=\"q\"} 1\n"), "{metrics}");
    let config = deployment.db.file("kvqueue.toml");
    let mut doctor = kvqueue(&deployment.db, &["doctor", "--config", config.to_str().unwrap()]);
    let doctor: Ran = doctor.env("KVQUEUE_HTTP__LISTEN", served.at.tcp()).output().unwrap().into();
    let problem = format!("daemon    PROBLEM  {}", deployment.not_started());
    assert!(doctor.stdout.contains(&problem), "{doctor:?}");
    doctor.failed(1);
    assert_eq!(deployment.count("dead"), 0);

    served.daemon.signal(Signal::KILL);
    let said = served.daemon.end().stderr;
    assert_eq!(events(&said, "handler_unavailable"), 1, "{said}");

    let mut served = deployment.serve();
    wait_until("the command has been tried again", || tries(&served) >= 2);
    deployment.install("echo $KVQUEUE_ATTEMPT >> noted");
    wait_until("all items are done", || deployment.count("done") == 200);
    served.daemon.wait_for_event("handler_available");
    assert!(shown(&served)["unavailable"].is_null());
    assert_eq!(served.at.get("/readyz").is(200)["warnings"], Value::Array(Vec::new()));
    assert_eq!(deployment.count("dead"), 0);
    let noted = deployment.noted();
    assert_eq!(noted.len(), 200);
    // The daemon that was killed may have died of the item of its trial, and of one that it was giving back.
    let later: Vec<_> = noted.iter().filter(|attempt| *attempt != "1").collect();
    assert!(later.len() <= 2 && later.iter().all(|attempt| *attempt == "2"), "{later:?}");
    served.daemon.signal(Signal::TERM);
    let said = served.daemon.end().stderr;
    assert_eq!(events(&said, "handler_unavailable"), 1, "{said}");
    assert_eq!(events(&said, "handler_available"), 1, "{said}");
}

#[test]
fn no_delivery_loses_items_to_a_program_that_is_not_executable() {
    for delivery in ["at-most-once", "exactly-once"] {
        let deployment =
            Deployment::new(&format!("delivery = '{delivery}'\nconsumers = [{{ k = 3, count = 2 }}]"));
        deployment.push(20);
        let handle = deployment.db.file("handle");
        fs::write(&handle, "#!/bin/sh\necho $(cat) >> noted\n").unwrap();
        let served = deployment.serve();
        wait_until("the command has been tried a few times", || tries(&served) >= 2);
        assert!(
            shown(&served)["unavailable"]["reason"]
                .as_str()
                .unwrap()
                .contains("is not executable for this user")
        );
        executable(&handle);
        wait_until("all items are done", || shown(&served)["finished"] == 20);
        let mut noted: Vec<u32> = deployment.noted().iter().map(|item| item.parse().unwrap()).collect();
        noted.sort_unstable();
        assert!(noted.into_iter().eq(0..20), "{delivery}");
    }
}

#[test]
fn all_consumers_continue_once_a_command_has_started() {
    let deployment = Deployment::new("consumers = [{ k = 1, count = 2 }]");
    deployment.push(2);
    let served = deployment.serve();
    wait_until("the command has been tried a few times", || tries(&served) >= 2);
    deployment.install("echo 1 >> noted; until [ $(wc -l < noted) -ge 2 ]; do sleep 0.05; done");
    wait_until("both items are done", || deployment.count("done") == 2);
}

#[test]
fn a_reload_with_a_working_command_ends_the_unavailability() {
    for delivery in ["at-least-once", "at-most-once"] {
        let deployment =
            Deployment::new(&format!("delivery = '{delivery}'\nconsumers = [{{ k = 2, count = 1 }}]"));
        deployment.push(3);
        let served = deployment.serve();
        wait_until("the command has been tried a few times", || tries(&served) >= 2);
        // Also a consumer that holds items until its handler works is seen to wait: the watchdog leaves it alone.
        wait_until("its consumer waits", || {
            served.at.get("/api/v1/consumers").is(200)["consumers"][0]["state"] == "unavailable"
        });
        let config = deployment.db.file("kvqueue.toml");
        let text = fs::read_to_string(&config).unwrap();
        let other = "'sh', '-c', 'cat > $KVQUEUE_ITEM.done'";
        fs::write(&config, text.replace("'./handle'", other)).unwrap();
        served.daemon.signal(Signal::HUP);
        wait_until("all items are done", || deployment.files(".done") == 3);
        wait_until("the daemon knows", || shown(&served)["unavailable"].is_null());
        assert_eq!(deployment.count("ready"), 0, "{delivery}");
    }
}

#[test]
fn a_run_until_empty_ends_with_an_error_and_keeps_the_items() {
    let deployment = Deployment::new("retry.max-attempts = 1");
    deployment.push(5);
    let said = deployment.run_until_empty().failed(1);
    assert!(said.contains(&deployment.not_started()), "{said}");
    assert!(said.contains("the queue keeps its items"), "{said}");
    assert_eq!((deployment.count("ready"), deployment.count("dead")), (5, 0));
}

#[test]
fn a_run_until_empty_at_most_once_says_that_taken_items_are_lost() {
    let deployment = Deployment::new("delivery = 'at-most-once'\nconsumers = [{ k = 2, count = 1 }]");
    deployment.push(5);
    let said = deployment.run_until_empty();
    assert!(said.code.is_some_and(|code| code != 0), "{said:?}");
    assert!(
        said.stderr.contains("items that were taken are lost at the end of the shutdown timeout"),
        "{said:?}"
    );
    assert_eq!(deployment.count("ready"), 3);
}

#[test]
fn config_check_doctor_and_start_warn_of_a_missing_program() {
    let deployment = Deployment::new("delivery = 'exactly-once'");
    let config = deployment.db.file("kvqueue.toml");
    let asked = |words: &[&str]| -> Ran {
        let mut command = kvqueue(&deployment.db, &[words, &["--config", config.to_str().unwrap()]].concat());
        command.current_dir(deployment.db.directory.path()).output().unwrap().into()
    };
    let directory = fs::canonicalize(deployment.db.directory.path()).unwrap();
    let missing = format!(
        "queues.q: handler \"exec\": its command cannot be started: {}: No such file or directory",
        directory.join("handle").display()
    );
    let twice = "queues.q: delivery = \"exactly-once\" is at-least-once with handler \"exec\"";
    let checked = asked(&["config", "check"]);
    assert!(checked.stderr.contains(&missing) && checked.stderr.contains(twice), "{checked:?}");
    checked.ok();
    let strict = asked(&["config", "check", "--strict", "-q"]);
    assert_eq!(strict.stdout, "--strict refuses the configuration, warnings: 2\n");
    assert!(strict.stderr.contains(&missing), "{strict:?}");
    strict.failed(78);
    let doctor = asked(&["doctor"]).stdout;
    assert!(doctor.contains(&missing) && doctor.contains(twice), "{doctor}");
    let served = deployment.serve();
    served.daemon.signal(Signal::TERM);
    let said = served.daemon.end().stderr;
    assert!(said.contains("its command cannot be started"), "{said}");
    deployment.install("true");
    let checked = asked(&["config", "check"]);
    assert!(!checked.stderr.contains("cannot be started"), "{checked:?}");
    // The delivery is remarked on still.
    asked(&["config", "check", "--strict"]).failed(78);
}

#[test]
fn the_daemon_gives_the_reasons_that_config_check_gives() {
    let db = Database::new();
    let files = [
        ("bare", "echo hello\n"),
        ("windows", "#!/bin/sh\r\necho hello\r\n"),
        ("orphan", "#!/nowhere/sh\n"),
        ("spaces", ""),
    ];
    let mut config = String::new();
    for (name, text) in files {
        fs::write(db.file(name), text).unwrap();
        executable(&db.file(name));
        let command = if name == "spaces" { "sh -c true".to_owned() } else { format!("./{name}") };
        config +=
            &format!("[queues.{name}]\nhandler = 'exec'\nhandler-config = {{ command = ['{command}'] }}\n");
        run(&db, &["push", name, "x"]).ok();
    }
    let path = db.file("kvqueue.toml");
    fs::write(&path, config).unwrap();
    let path = path.to_str().unwrap();
    let checked = run(&db, &["config", "check", "--config", path]);
    let served = serve_with(kvqueue(&db, &["run", "--config", path]), false);
    for (name, _) in files {
        let reason = || {
            let queue = served.at.get(&format!("/api/v1/queues/{name}")).is(200);
            queue["unavailable"]["reason"].as_str().map(str::to_owned)
        };
        wait_until("the command has been tried", || reason().is_some());
        let said = format!("queues.{name}: handler \"exec\": {}\n", reason().unwrap());
        assert!(checked.stderr.contains(&said), "{said}: {checked:?}");
    }
}
