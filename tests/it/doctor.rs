//! `kvqueue doctor` and its checks of a database.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    time::Instant,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Background, Database, PATIENCE, Ran, fake_program, kvqueue, run, serve_with};

/// Without what differs from run to run: each number is an N.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            other => plain.push(other),
        }
    }
    plain
}

/// The findings about the directory itself.
fn directory(text: &str) -> String {
    let around = ["config", "access", "clock", "disk", "daemon", "unit"];
    let about =
        |line: &str| line.trim_start_matches("{\"about\":\"").split(['"', ' ']).next().map(str::to_owned);
    let lines = text.lines().filter(|line| about(line).is_some_and(|about| !around.contains(&&*about)));
    plain(&lines.collect::<Vec<_>>().join("\n"))
}

/// The finding about something, as JSON.
fn finding(ran: &Ran, about: &str) -> Value {
    let findings = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    findings.into_iter().find(|finding| finding["about"] == about).unwrap_or_else(|| panic!("{ran:?}"))
}

fn pushed() -> Database {
    let db = Database::embedded();
    run(&db, &["push", "q", "one", "two"]).ok();
    db
}

/// An empty directory that others may look into.
fn make_readable(db: &Database) {
    let directory = db.directory.path().join("data");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn doctor_finds_a_sound_directory_fine() {
    insta::assert_snapshot!(directory(&run(&pushed(), &["doctor"]).ok()), @r#"
    directory fine     mode N, for its user alone
    lock      fine     nobody holds it
    file      fine     data.redb, N bytes, format N
    pages     fine     N match their checksums, N were never written
    log       fine     nothing in it is needed
    structure fine     sound, and opens at once
    rows      fine     N can be read, N bytes of keys and values
    versions  fine     none above N has been handed out
    space     fine     N of N pages are free
    counters  fine     right, queues: N
    "#);
}

#[test]
fn doctor_prints_findings_as_json() {
    let db = Database::embedded();
    make_readable(&db);
    insta::assert_snapshot!(directory(&run(&db, &["doctor", "--json"]).ok()), @r#"
    {"about":"directory","advice":"chmod N the directory: other users who can write in it can change the database","text":"mode N: other users may look into it","verdict":"note"}
    {"about":"lock","text":"nobody holds it","verdict":"fine"}
    {"about":"file","text":"there is no data.redb: nothing has been stored here yet","verdict":"note"}
    "#);
}

#[test]
fn doctor_checks_a_held_directory_and_one_left_by_a_kill() {
    let db = pushed();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    daemon.wait_for_event("ready");
    let held = run(&db, &["doctor"]).ok();
    assert!(held.contains(&daemon.pid().to_string()), "{held}");
    insta::assert_snapshot!(directory(&held), @r#"
    directory fine     mode N, for its user alone
    lock      fine     held by the process with pid N
    file      fine     data.redb, N bytes, format N
    pages     note     not read: the file changes while it is held; stop the process that holds it to have everything checked
    counters  fine     right, queues: N
    "#);
    daemon.signal(Signal::KILL);
    daemon.end();
    let left = plain(&run(&db, &["doctor"]).ok());
    assert!(left.contains("structure fine     sound, and opens at once"), "{left}");
    assert_eq!(run(&db, &["len", "q"]).ok(), "2\n");
}

#[test]
fn doctor_checks_a_directory_named_by_a_cluster_file() {
    let db = pushed();
    let data = db.file("data/data.redb");
    let before = fs::read(&data).unwrap();
    let file = db.file("fdb.cluster");
    fs::write(&file, "embedded:data\n").unwrap();
    let by_file = Database::at(file.display().to_string(), String::new());
    let told = run(&by_file, &["doctor"]).ok();
    assert_eq!(directory(&told), directory(&run(&db, &["doctor"]).ok()));
    assert_eq!(fs::read(&data).unwrap(), before);
    fs::remove_dir_all(db.file("data")).unwrap();
    let told = run(&by_file, &["doctor"]).ok();
    assert!(told.contains("is not there yet"), "{told}");
    assert!(!db.file("data").exists());
}

#[test]
fn doctor_reports_a_dangling_link() {
    let db = Database::embedded();
    make_readable(&db);
    let link = db.directory.path().join("data/data.redb");
    std::os::unix::fs::symlink("/not/mounted", &link).unwrap();
    let ran = run(&db, &["doctor"]);
    assert_eq!(ran.code, Some(1));
    insta::assert_snapshot!(directory(&ran.stdout).lines().last().unwrap(), @"file      PROBLEM  data.redb: No such file or directory (os error N); check whether this user may read it, and where it leads if it is a link");
    run(&db, &["push", "q", "lost"]).failed(69);
    assert!(link.is_symlink(), "no empty database has taken its place");
}

#[test]
fn doctor_reports_damaged_pages() {
    let db = pushed();
    let data = db.directory.path().join("data/data.redb");
    let mut bytes = fs::read(&data).unwrap();
    for page in bytes.chunks_exact_mut(4096).skip(2).filter(|page| page.iter().any(|byte| *byte != 0)) {
        page[100] ^= 4;
    }
    fs::write(&data, &bytes).unwrap();
    let ran = run(&db, &["doctor"]);
    assert_eq!(ran.code, Some(1));
    let told = directory(&ran.stdout).replace(&*plain(&data.display().to_string()), "DATA");
    insta::assert_snapshot!(told, @r#"
    directory fine     mode N, for its user alone
    lock      fine     nobody holds it
    file      fine     data.redb, N bytes, format N
    pages     fine     N match their checksums, N were never written
    pages     PROBLEM  N do not match, first N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N); restore the directory from a copy: what is damaged cannot be read
    structure PROBLEM  DATA is damaged: page N (bytes N..N) does not match its checksum; restore the directory from a copy: what is damaged cannot be read
    "#);
    let refused = run(&db, &["len", "q"]).failed(69);
    assert!(refused.contains("does not match its checksum"), "{refused}");
}

#[test]
fn doctor_reports_an_old_format_and_a_missing_directory() {
    let db = Database::embedded();
    let told = |db: &Database| directory(&run(db, &["doctor"]).stdout);
    // A configuration is written before its first daemon makes the directory.
    let missing = told(&db);
    assert!(
        missing.starts_with("directory note ") && missing.contains("data is not there yet; "),
        "{missing}"
    );
    assert_eq!(missing.lines().count(), 1, "{missing}");
    make_readable(&db);
    fs::write(db.directory.path().join("data/data.redb"), [b"redb".as_slice(), &[0; 9000]].concat()).unwrap();
    insta::assert_snapshot!(told(&db), @r#"
    directory note     mode N: other users may look into it; chmod N the directory: other users who can write in it can change the database
    lock      fine     nobody holds it
    file      PROBLEM  data.redb: it has format N, and this version reads N to N; open it with the version that wrote it, or move it away to begin an empty database
    "#);
}

#[test]
fn doctor_reports_an_answering_cluster_as_fine() {
    let db = Database::new();
    if !db.url.starts_with("embedded:") {
        let told = run(&db, &["doctor"]).ok();
        assert!(told.contains("it answers: read version") && told.contains("FoundationDB 7."), "{told}");
        assert!(told.contains("library   fine     libfdb_c.so at /"), "{told}");
    }
}

#[test]
fn doctor_finds_configuration_access_clock_and_unit_fine() {
    let db = pushed();
    let mut command = kvqueue(&db, &["doctor", "--json"]);
    fake_program(&db, &mut command, "systemctl", "echo no systemd here >&2; exit 1");
    let ran: Ran = command.output().unwrap().into();
    for about in ["config", "access", "clock"] {
        assert_eq!(finding(&ran, about)["verdict"], "fine", "{about}");
    }
    let unit = finding(&ran, "unit");
    assert_eq!(unit["text"], "kvqueue.service is not checked: systemctl show: no systemd here");
    assert_eq!(unit["verdict"], "fine");
    assert_eq!(ran.code, Some(0));
}

#[test]
fn doctor_reports_an_invalid_configuration() {
    let db = pushed();
    let config = db.file("kvqueue.toml");
    let args = ["doctor", "--json", "--config", config.to_str().unwrap()];
    fs::write(&config, "[queues.q]\nhandler = 'lgo'").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();
    let ran = run(&db, &args);
    assert_eq!(ran.code, Some(1));
    let text = |ran: &Ran, about| {
        let finding = finding(ran, about);
        assert_eq!(finding["verdict"], "problem");
        finding["text"].as_str().unwrap().replace(config.to_str().unwrap(), "FILE")
    };
    insta::assert_snapshot!(text(&ran, "config"), @r#"FILE: queues.q.handler = "lgo": there is no such handler; use one of exec, http, log, pull, stdout"#);
    insta::assert_snapshot!(text(&ran, "access"), @"FILE has mode 0666: others may write in it, and so choose what the daemon runs");
    // The database is looked at all the same.
    assert_eq!(finding(&ran, "structure")["verdict"], "fine");
    fs::write(&config, "[queues").unwrap();
    let ran = run(&db, &args);
    assert!(text(&ran, "config").contains("is not valid TOML"));
    assert_eq!((ran.code, &finding(&ran, "structure")["verdict"]), (Some(1), &"fine".into()));
    // Here the name of the database may be lost.
    fs::write(&config, "database = 'x").unwrap();
    assert!(run(&db, &args).failed(78).contains("is not valid TOML"));
}

#[test]
fn doctor_reports_data_from_the_future() {
    let db = pushed();
    let file = fs::File::options().append(true).open(db.file("data/data.redb")).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(3600)).unwrap();
    let ran = run(&db, &["doctor", "--json"]);
    assert_eq!((ran.code, &finding(&ran, "clock")["verdict"]), (Some(1), &"problem".into()));
}

#[test]
fn doctor_reports_a_missing_unit() {
    let db = pushed();
    let mut command = kvqueue(&db, &["doctor", "--json", "--unit", "kvqueue@mail"]);
    fake_program(&db, &mut command, "systemctl", "echo LoadState=not-found");
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, Some(1));
    let unit = finding(&ran, "unit");
    assert_eq!(unit["text"], "kvqueue@mail.service is not installed");
    assert_eq!(unit["verdict"], "problem");
}

#[test]
fn doctor_reports_a_unit_with_a_short_stop_timeout() {
    let db = pushed();
    let mut command = kvqueue(&db, &["doctor", "--json"]);
    let shown = "LoadState=loaded\nType=notify-reload\nTimeoutStopUSec=20s\n\
                 ExecStart={ path=/bin/sh ; argv[]=/bin/sh run ; ignore_errors=no }";
    fake_program(
        &db,
        &mut command,
        "systemctl",
        &format!("[ \"$1 $6\" = 'show kvqueue.service' ] && cat << END\n{shown}\nEND"),
    );
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, Some(1));
    let unit = finding(&ran, "unit");
    assert_eq!(unit["text"], "kvqueue.service kills a stop after 20s, and shutdown-timeout is 30s");
    assert_eq!(unit["verdict"], "problem");
}

#[test]
fn doctor_asks_the_running_daemon() {
    let db = pushed();
    let config = db.file("asked.toml");
    fs::write(&config, "http.listen = 'unix:http.sock'\n[queues.q]\nhandler = 'log'\n").unwrap();
    let command = |words: &[&str]| {
        let mut command = kvqueue(&db, &[words, &["--config", config.to_str().unwrap()]].concat());
        command.current_dir(db.directory.path()).env_remove("KVQUEUE_HTTP__LISTEN");
        command
    };
    let looked = || {
        let ran = Ran::from(command(&["doctor", "--json"]).output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let findings = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let told = findings.filter(|finding| finding["about"] == "daemon");
        told.map(|it| (it["verdict"].as_str().unwrap().to_owned(), it["text"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let alone = looked();
    assert!(alone.len() == 1 && alone[0].0 == "note", "{alone:?}");
    assert!(
        alone[0].1.starts_with(&format!("no daemon answers at unix:{}: ", db.file("http.sock").display())),
        "{alone:?}"
    );

    let mut served = serve_with(command(&["run"]), true);
    let well = looked();
    assert!(well.len() == 1 && well[0].0 == "fine", "{well:?}");
    let process = format!(
        "the daemon at unix:{}, process {}, version ",
        db.file("http.sock").display(),
        served.daemon.pid()
    );
    assert!(well[0].1.starts_with(&process) && well[0].1.ends_with(", is ready"), "{well:?}");

    run(&db, &["pause", "q", "--create"]).ok();
    fs::write(
        &config,
        "http.listen = 'unix:http.sock'\nshutdown-timeout = '1s'\n[queues.q]\nhandler = 'lgo'\n",
    )
    .unwrap();
    served.daemon.signal(Signal::HUP);
    served.daemon.wait_for("lgo");
    // Doctor itself is to find nothing wrong with it.
    fs::write(&config, "http.listen = 'unix:http.sock'\n[queues.q]\nhandler = 'log'\n").unwrap();
    let start = Instant::now();
    let told = loop {
        let told = looked();
        if told.len() == 3 || start.elapsed() > PATIENCE {
            break told;
        }
    };
    assert_eq!(told[0], well[0]);
    let notes: Vec<_> = told[1..].iter().map(|(verdict, text)| (verdict.as_str(), text.as_str())).collect();
    let [("note", refused), ("note", "paused: q")] = notes[..] else { panic!("{told:?}") };
    assert!(refused.starts_with("it has not taken up its configuration: "), "{refused}");
}

#[test]
fn doctor_reports_a_stopped_host_with_the_command_to_continue_it() {
    let db = pushed();
    let mut host = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for_event("ready");
    host.suspend();
    let began = Instant::now();
    let ran = run(&db, &["doctor", "--json", "--timeout", "1s"]);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let host_finding = finding(&ran, "host");
    assert_eq!(host_finding["verdict"], "problem");
    let advice = host_finding["advice"].as_str().unwrap();
    assert!(advice.contains(&format!("kill -CONT {}", host.pid())), "{advice}");
    host.signal(Signal::CONT);
    host.signal(Signal::TERM);
    host.end();
    assert_eq!(run(&db, &["doctor"]).code, Some(0));
}

#[test]
fn files_made_by_root_belong_to_the_directorys_owner() {
    let db = Database::embedded();
    let data = db.file("data");
    fs::create_dir(&data).unwrap();
    // Only root can give files away.
    if chown(&data, Some(12_345), Some(12_345)).is_err() {
        return;
    }
    let owners = || {
        let files = fs::read_dir(&data).unwrap().map(|file| file.unwrap());
        let mut owners: Vec<_> = files
            .map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().uid()))
            .collect();
        owners.sort();
        owners
    };
    run(&db, &["push", "q", "one"]).ok();
    let files = ["data.redb", "lock", "log", "reserve"].map(|file| (file.to_owned(), 12_345));
    assert_eq!(owners(), files);
    assert_eq!(finding(&run(&db, &["doctor", "--json"]), "access")["verdict"], "note");
    chown(data.join("lock"), Some(54_321), None).unwrap();
    let ran = run(&db, &["doctor", "--json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let access = finding(&ran, "access");
    assert_eq!(access["verdict"], "problem");
    let text = access["text"].as_str().unwrap();
    assert!(text.contains("lock belongs to 54321, and its directory to 12345"), "{text}");
    assert!(access["advice"].as_str().unwrap().contains("chown -R 12345:"), "{access}");
}
