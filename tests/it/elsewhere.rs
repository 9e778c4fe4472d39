//! Nothing goes silently elsewhere: to a database that nobody meant, because of a path or a typo.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{Database, PATIENCE, Ran, kvqueue, run, run_with_input, serve, serve_with};

/// A command in a directory, with the configuration that it names and no other database.
fn inside(directory: &Path, db: &Database, words: &[&str]) -> Command {
    let mut command = kvqueue(db, &[]);
    let mut bare = Command::new(command.get_program());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bare.env(name, value),
            None => bare.env_remove(name),
        };
    }
    command = bare;
    command.args(words).current_dir(directory);
    command
}

fn ran(mut command: Command) -> Ran {
    command.output().unwrap().into()
}

#[test]
fn commands_that_read_create_no_database() {
    let id = "000000000000000000000000";
    let commands = [
        "len q",
        "list",
        "peek q",
        "pop q",
        "delete q --yes",
        "resume q",
        "requeue q --dead",
        "move q r --all",
        "dead list q",
        "requeue q --dead",
        "dead purge q --all --yes",
        "export q",
        "status",
    ];
    let db = Database::embedded();
    let data = db.file("data");
    let show = format!("dead show q {id}");
    let backup = format!("backup --to {}", db.file("copy").display());
    let migrate = format!("migrate --to embedded:{}", db.file("new").display());
    for command in commands.into_iter().chain([&*show, &*backup, &*migrate]) {
        let words: Vec<_> = command.split(' ').collect();
        let error = run(&db, &words).failed(69);
        let names = error.contains("here is no database ") && error.contains(data.to_str().unwrap());
        assert!(names, "{command}: {error}");
        for made in ["data", "copy", "new"] {
            assert!(!db.file(made).exists(), "{command} makes {made}");
        }
    }
    let told = run(&db, &["len", "q"]).failed(69);
    assert!(
        told.contains("start the daemon or push an item to create it, or check --config and --database"),
        "{told}"
    );
    run(&db, &["push", "q", "a"]).ok();
    let verify = "migrate --verify-only --to embedded:";
    let verify = format!("{verify}{}", db.file("new").display());
    let error = run(&db, &verify.split(' ').collect::<Vec<_>>()).failed(69);
    assert!(error.contains("there is no database at ") && !db.file("new").exists(), "{error}");
}

#[test]
fn a_command_reports_the_database_it_creates() {
    let export = {
        let db = Database::embedded();
        run(&db, &["push", "q", "a"]).ok();
        run(&db, &["export", "q"]).ok()
    };
    for words in [&["push", "q", "a"][..], &["pause", "q", "--create"], &["import", "q"]] {
        let db = Database::embedded();
        let first = run_with_input(&db, words, &*export);
        assert_eq!(first.created.as_deref(), db.file("data").to_str(), "{words:?}: {first:?}");
        first.ok();
        let second = run_with_input(&db, words, &*export);
        assert_eq!(second.created, None, "{words:?}: {second:?}");
        let db = Database::embedded();
        let quiet = run_with_input(&db, &[words, &["-q"]].concat(), &*export);
        assert_eq!(quiet.created, None, "{words:?}: {quiet:?}");
    }
    let db = Database::embedded();
    let words = ["run", "--queue", "q", "--handler", "log", "--until-empty"];
    let events = |ran: Ran| ran.events("database_created");
    assert_eq!(events(run(&db, &words)), 1);
    assert_eq!(events(run(&db, &words)), 0);
    let target = format!("embedded:{}", db.file("new").display());
    run(&db, &["push", "q", "a"]).ok();
    let moved = run(&db, &["migrate", "--to", &target]);
    assert_eq!(moved.created.as_deref(), db.file("new").to_str(), "{moved:?}");
    moved.ok();
}

/// A file in one directory, commands in others.
#[test]
fn relative_paths_of_a_file_are_relative_to_its_directory() {
    let db = Database::embedded();
    let (place, away) = (db.file("place"), db.file("away"));
    fs::create_dir(&place).unwrap();
    fs::create_dir(&away).unwrap();
    let text = "database = 'embedded:./data'\nhttp.listen = 'unix:http.sock'\nhttp.token-file = './secret'\n\
        [queues.q]\nhandler = 'exec'\nhandler-config.command = ['./handle', './as-it-is']\n";
    fs::write(place.join("kvqueue.toml"), text).unwrap();
    fs::write(place.join("handle"), "#!/bin/sh\necho \"$1\" > \"$(dirname \"$0\")/handled\"\n").unwrap();
    fs::set_permissions(place.join("handle"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.join("secret"), "0123456789abcdef").unwrap();
    fs::set_permissions(place.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();

    let config = ["--config", "../place/kvqueue.toml"];
    let at_home = |words: &[&str]| {
        let mut command = inside(&away, &db, &[words, &config].concat());
        command.env_remove("KVQUEUE_HTTP__LISTEN");
        command
    };
    let (data, file) = (place.join("data"), away.join("../place/kvqueue.toml"));
    let created = ran(at_home(&["push", "q", "a"]));
    assert_eq!(created.created.as_deref(), away.join("../place/data").to_str(), "{created:?}");
    created.ok();
    assert!(data.is_dir() && !away.join("data").exists());

    let _served = serve_with(at_home(&["run"]), true);
    let until = Instant::now() + PATIENCE;
    let handled = || fs::read_to_string(place.join("handled")).unwrap_or_default();
    while handled().is_empty() && Instant::now() < until {
        sleep(Duration::from_millis(20));
    }
    assert_eq!(handled(), "./as-it-is\n");
    let status: Value = serde_json::from_str(&ran(at_home(&["status", "--json"])).ok()).unwrap();
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    assert_eq!(status["database"]["url"], format!("embedded:{}", shown(&away.join("../place/data"))));
    assert_eq!(status["config"]["path"], shown(&file));

    // What the command line and variables say is relative to the working directory.
    ran(inside(&away, &db, &["push", "q", "b", "--database", "embedded:here"])).ok();
    let mut command = inside(&away, &db, &["push", "q", "b"]);
    ran({
        command.env("KVQUEUE_DATABASE", "embedded:./there");
        command
    })
    .ok();
    assert!(away.join("here").is_dir() && away.join("there").is_dir());
}

/// As in the shell of a cron job, which lacks a variable: its items would be lost.
#[test]
fn a_database_that_nothing_names_is_made_only_on_demand() {
    let db = Database::embedded();
    let here = db.file("here");
    fs::create_dir(&here).unwrap();
    for words in [
        &["push", "q", "a"][..],
        &["pause", "q"],
        &["import", "q"],
        &["token", "new", "shop", "--scope", "push"],
        &["batch", "new", "--then", "q:a"],
        &["schedule", "add", "q", "s", "--every", "1d"],
    ] {
        let error = ran(inside(&here, &db, words)).failed(69);
        assert!(error.contains("there is no database in this directory"), "{words:?}: {error}");
    }
    let error = ran(inside(&here, &db, &["push", "q", "a"])).failed(69);
    assert!(error.contains("--config or KVQUEUE_CONFIG") && error.contains("with --create\n"), "{error}");
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0);
    let made = ran(inside(&here, &db, &["push", "q", "a", "--create"]));
    assert_eq!(made.created.as_deref(), here.join("kvqueue-data").to_str(), "{made:?}");
    made.ok();
    // From then on it is there.
    ran(inside(&here, &db, &["push", "q", "b"])).ok();
    assert_eq!(ran(inside(&here, &db, &["len", "q"])).ok(), "2\n");
    // Whatever names one is enough: a file, also one that leaves the key out, a variable, an option.
    let config = db.file("kvqueue.toml");
    fs::write(&config, "").unwrap();
    ran(inside(&here, &db, &["push", "q", "a", "--config", config.to_str().unwrap()])).ok();
    assert!(db.file("kvqueue-data").is_dir());
    let mut named = inside(&here, &db, &["push", "q", "a"]);
    named.env("KVQUEUE_DATABASE", "embedded:variable");
    ran(named).ok();
    ran(inside(&here, &db, &["push", "q", "a", "--database", "embedded:option"])).ok();
    assert!(here.join("variable").is_dir() && here.join("option").is_dir());
}

#[test]
fn a_directory_behind_two_slashes_is_refused() {
    let db = Database::embedded();
    let words = ["push", "q", "a", "--database", "embedded://./queues"];
    let error = ran(inside(db.directory.path(), &db, &words)).failed(78);
    assert!(error.contains("write embedded:./queues"), "{error}");
    // With an absolute path behind them, the slashes say what they seem to.
    let url = format!("embedded://{}", db.file("there").display());
    ran(inside(db.directory.path(), &db, &["push", "q", "a", "--database", &url])).ok();
    assert!(db.file("there").is_dir());
}

#[test]
fn commands_are_not_sent_to_a_daemon_of_another_database() {
    let db = Database::new();
    let socket = db.file("http.sock");
    let listen = format!("unix:{}", socket.display());
    let config = format!("http.listen = '{listen}'\n[queues.q]\nhandler = 'log'");
    let served = serve(&db, &config);
    let other = Database::embedded();
    let ask = |db: &Database, words: &[&str]| -> Ran {
        let mut command = kvqueue(db, words);
        command.env("KVQUEUE_HTTP__LISTEN", &listen);
        ran(command)
    };
    for words in [&["reload"][..], &["pause", "q", "--local"], &["resume", "q", "--local"]] {
        let error = ask(&other, words).failed(69);
        let expected = format!("uses the database {}, not {}; ", db.url, other.url);
        assert!(error.contains(&expected) && error.contains(&format!("--at {listen}")), "{words:?}: {error}");
        let at = [words, &["--at", &listen]].concat();
        ask(&other, &at).ok();
        ask(&db, words).ok();
    }
    drop(served);
}

/// Shows the database's counts, as if no daemon answers.
#[test]
fn status_does_not_show_another_database() {
    let db = Database::new();
    let listen = format!("unix:{}", db.file("http.sock").display());
    let _served = serve(&db, &format!("http.listen = '{listen}'\n[queues.theirs]\nhandler = 'log'"));
    let other = Database::embedded();
    run(&other, &["push", "ours", "a"]).ok();
    let ask = |db: &Database, words: &[&str]| -> Ran {
        let mut command = kvqueue(db, words);
        command.env("KVQUEUE_HTTP__LISTEN", &listen);
        ran(command)
    };
    let uses = format!("the daemon at {listen} uses the database {}, not {}; ", db.url, other.url);
    let told = ask(&other, &["status"]);
    assert!(told.stderr.starts_with(&format!("kvqueue: {uses}")), "{told:?}");
    assert!(told.stdout.contains("\nours ") && !told.stdout.contains("theirs"), "{told:?}");
    told.failed(69);
    let told = ask(&other, &["status", "--json", "-q"]);
    let json: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!((&json["queues"][0]["queue"], &json["queues"][1]), (&"ours".into(), &Value::Null), "{json}");
    assert!(json["not_ready"][0].as_str().unwrap().starts_with(&uses), "{json}");
    told.failed(69);
    assert!(ask(&other, &["top"]).failed(69).contains(&uses));
    let told = ask(&other, &["doctor"]).ok();
    let noted = format!(
        "daemon    note     the daemon at {listen} uses the database {}, not {}; ",
        db.url, other.url
    );
    assert!(told.contains(&noted) && !told.contains("is ready"), "{told}");
    for words in [["status"], ["top"]] {
        assert!(ask(&db, &words).ok().contains("\ntheirs "));
        let at = [&words[..], &["--at", &listen]].concat();
        assert!(ask(&other, &at).ok().contains("\ntheirs "));
    }
}

/// Two names of one directory are the same database.
#[test]
fn a_database_is_the_same_by_all_its_names() {
    let db = Database::embedded();
    let listen = format!("unix:{}", db.file("http.sock").display());
    let _served = serve(&db, &format!("http.listen = '{listen}'\n[queues.q]\nhandler = 'log'"));
    std::os::unix::fs::symlink("data", db.file("link")).unwrap();
    let link = Database::at(format!("embedded:{}", db.file("link").display()), String::new());
    let mut command = kvqueue(&link, &["reload"]);
    command.env("KVQUEUE_HTTP__LISTEN", &listen);
    assert_eq!(ran(command).ok(), "reloaded; nothing has changed\n");
}

/// A service may get its database from systemd alone. Commands then find it by the configuration
/// file.
#[test]
fn commands_reach_the_daemon_of_the_same_configuration_file() {
    let db = Database::embedded();
    let text =
        format!("http.listen = 'unix:{}'\n[queues.q]\nhandler = 'log'", db.file("http.sock").display());
    fs::write(db.file("kvqueue.toml"), text).unwrap();
    let command = |words: &[&str]| {
        let mut command = inside(db.directory.path(), &db, words);
        command.env_remove("KVQUEUE_HTTP__LISTEN").arg("--config").arg(db.file("kvqueue.toml"));
        command
    };
    let mut run = command(&["run"]);
    run.env("STATE_DIRECTORY", db.file("data"));
    let _served = serve_with(run, true);
    assert_eq!(ran(command(&["reload"])).ok(), "reloaded; nothing has changed\n");
    let told = ran(command(&["status"])).ok();
    assert!(told.contains(" is ready, "), "{told}");
    ran(command(&["reload", "--database", "embedded:elsewhere"])).failed(69);
}

#[test]
fn a_missing_queue_is_noted_with_a_suggestion() {
    let db = Database::new();
    run(&db, &["push", "emails", "a"]).ok();
    run(&db, &["push", "reports", "a"]).ok();
    let id = "000000000000000000000000";
    let meant = "kvqueue: there is no queue \"emial\"; did you mean \"emails\"?\n";
    let looks = [
        "len emial",
        "len emial --json",
        "peek emial",
        "peek emial --state ready",
        "pop emial",
        "dead list emial",
    ];
    for command in looks {
        let words: Vec<_> = command.split(' ').collect();
        let told = run(&db, &words);
        assert!(told.stderr.contains(meant), "{command}: {told:?}");
        told.ok();
        let quiet = run(&db, &[&words[..], &["-q"]].concat());
        assert!(!quiet.stderr.contains("there is no queue"), "{command}: {quiet:?}");
    }
    let acts = [
        "delete emial --yes",
        "recount emial",
        "requeue emial --waiting",
        "move emial reports --all",
        "requeue emial --dead",
        "dead purge emial --all --yes",
        "export emial",
        "resume emial",
        "limits remove emial *",
        "limits unblock emial a",
    ];
    for command in acts {
        let told = run(&db, &command.split(' ').collect::<Vec<_>>()).failed(1);
        assert_eq!(told, meant, "{command}");
    }
    assert!(run(&db, &["dead", "show", "emial", id]).failed(1).contains(meant));
    let other = run(&db, &["len", "nothing-alike"]);
    assert_eq!(
        other.stderr,
        "kvqueue: there is no queue \"nothing-alike\"; `kvqueue list` shows which there are\n"
    );
    // One that is there, or in the configuration, is none of these; nor is one that was emptied.
    run(&db, &["pop", "emails"]).ok();
    assert_eq!(run(&db, &["len", "emails"]).stderr, "");
    let config = db.file("kvqueue.toml");
    fs::write(&config, "[queues.new]\nhandler = 'log'\n").unwrap();
    let config = config.to_str().unwrap();
    assert_eq!(run(&db, &["len", "new", "--config", config]).stderr, "");
    run(&db, &["export", "new", "--config", config]).ok();
    // A push to a name that the configuration does not have makes a queue that no daemon of it processes.
    let pushed = |queue| run(&db, &["push", queue, "x", "--config", config]);
    assert_eq!(
        pushed("newt").stderr,
        "kvqueue: queue \"newt\" is new, and the configuration has no such queue; did you mean \"new\"? \
         'kvqueue move newt new --all' moves the items there\n"
    );
    assert_eq!((pushed("newt").stderr, pushed("new").stderr), (String::new(), String::new()));
    // A daemon would wait for its end.
    let daemon = run(&db, &["run", "--queue", "emial", "--handler", "log", "--until-empty"]);
    assert!(
        daemon.events("queues_absent") > 0 && daemon.stderr.contains("emial (did you mean"),
        "{daemon:?}"
    );
    let daemon = run(&db, &["run", "--queue", "emails", "--handler", "log", "--until-empty"]);
    assert!(daemon.events("queues_absent") == 0, "{daemon:?}");
}

/// It would look as if the order was carried out for the queue that was meant.
#[test]
fn an_order_to_a_queue_that_is_nowhere_is_refused_unless_it_is_to_be_created() {
    let db = Database::new();
    let orders = [
        "pause emial",
        "pause emial -q --json",
        "limits set emial * --running 1",
        "schedule add emial daily x --every 1d",
    ];
    let words = |order: &'static str| order.split(' ').collect::<Vec<_>>();
    if db.prefix.is_empty() {
        // Nor does it make a database.
        for order in orders {
            let told = run(&db, &words(order)).failed(69);
            assert!(told.contains("there is no database in this directory"), "{order}: {told}");
        }
        assert!(!db.file("data").exists());
    }
    run(&db, &["push", "emails", "a"]).ok();
    for order in orders {
        let said = run(&db, &words(order)).failed(1);
        let begins = "kvqueue: there is no queue \"emial\"; did you mean \"emails\"?";
        assert!(
            said.starts_with(begins) && said.contains("--create") && said.contains("before"),
            "{order}: {said}"
        );
    }
    assert_eq!((run(&db, &["list"]).ok(), run(&db, &["audit"]).ok()), ("emails\n".to_owned(), String::new()));
    // In the configuration it is there, and with the option it may come.
    let config = db.file("kvqueue.toml");
    fs::write(&config, "[queues.emial]\nhandler = 'log'\nkind = 'keyed'").unwrap();
    for order in orders {
        let other = Database::new();
        run(&other, &[&words(order)[..], &["--config", config.to_str().unwrap()]].concat()).ok();
        let other = Database::new();
        run(&other, &[&words(order)[..], &["--create"]].concat()).ok();
        // From then on it is there.
        run(&other, &[&words(order)[..]].concat()).ok();
    }
}

#[test]
fn status_names_other_queues_of_the_database() {
    let db = Database::new();
    let listen = format!("unix:{}", db.file("http.sock").display());
    let _served = serve(&db, &format!("http.listen = '{listen}'\n[queues.emails]\nhandler = 'log'"));
    let status = |words: &[&str]| run(&db, &[&["status", "--at", &listen], words].concat()).ok();
    assert!(!status(&[]).contains("other queue"));
    run(&db, &["push", "typo", "a"]).ok();
    run(&db, &["push", "emails", "a"]).ok();
    assert!(status(&[]).ends_with("\n1 other queue in the database: typo 1 ready\n"), "{}", status(&[]));
    let json: Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!(json["other_queues"].as_array().map(Vec::len), Some(1), "{json}");
    assert_eq!(
        (&json["other_queues"][0]["queue"], &json["other_queues"][0]["ready"]),
        (&"typo".into(), &1.into())
    );
}

#[test]
fn status_waits_until_the_daemon_is_ready() {
    let db = Database::new();
    let listen = format!("unix:{}", db.file("http.sock").display());
    let status = |wait| kvqueue(&db, &["status", "--at", &listen, "--wait", wait]);
    let began = Instant::now();
    ran(status("500ms")).failed(69);
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    let waiting = status("1m").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(300));
    let _served = serve(&db, &format!("http.listen = '{listen}'\n[queues.emails]\nhandler = 'log'"));
    let told = Ran::from(waiting.wait_with_output().unwrap()).ok();
    assert!(told.contains(" is ready, "), "{told}");
    // Waiting does not make a missing file appear.
    let began = Instant::now();
    run(&db, &["status", "--config", "/nowhere.toml", "--wait", "1m"]).failed(78);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}
