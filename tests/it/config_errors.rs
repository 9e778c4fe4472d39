//! A wrong configuration: the key, the value and the fix, and exit code 78.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};

use crate::support::{Database, Ran, kvqueue, run, serve};

/// Runs the daemon with this configuration file.
fn with_file(text: &str) -> Ran {
    let db = Database::embedded();
    let config = db.file("kvqueue.toml");
    fs::write(&config, text).unwrap();
    let mut ran = run(&db, &["run", "--config", config.to_str().unwrap()]);
    ran.stderr = ran.stderr.replace(&db.directory.path().display().to_string(), "DIR");
    ran
}

fn problem(text: &str) -> String {
    with_file(text).failed(78)
}

#[test]
fn unknown_keys_are_reported_with_suggestions() {
    insta::assert_snapshot!(problem("databse = 'embedded:x'"), @"kvqueue: databse: unknown field `databse`; did you mean `database`? (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'log'\nhandlers = 2"), @"kvqueue: queues.emails.handlers: unknown field `handlers`; did you mean `handler`? (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'log'\nconsumers = [ { kk = 1 } ]"), @"kvqueue: queues.emails.consumers[0].kk: unknown field `kk`, expected `k` or `count` (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
}

#[test]
fn a_config_path_that_is_not_utf_8_is_accepted() {
    let db = Database::embedded();
    let mut command = kvqueue(&db, &[]);
    command.env_remove("KVQUEUE_CONFIG").arg(OsStr::from_bytes(b"--config=/nowhere/\xff.toml")).arg("run");
    let ran: Ran = command.output().unwrap().into();
    let said = ran.failed(78);
    assert!(said.contains("cannot read"), "{said}");
}

#[test]
fn wrong_handlers_and_handler_settings_are_reported() {
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'pull'\nhandler-timeout = '5s'"), @r#"kvqueue: queues.emails.handler-timeout = "5s": handler "pull" leaves the items to workers of other programs; remove it: an item's time ends with its lease, which its worker extends"#);
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'exce'"), @r#"kvqueue: queues.emails.handler = "exce": there is no such handler; use one of exec, http, log, pull, stdout"#);
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'exec'"), @r#"kvqueue: queues.emails.handler-config: handler "exec": missing field `command`; write command = ["program", "argument"] in handler-config"#);
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'stdout'\nhandler-config = { colour = 'red' }"), @r#"kvqueue: queues.emails.handler-config: handler "stdout": colour: this handler has no settings; remove it"#);
}

#[test]
fn wrong_values_are_reported_with_their_keys() {
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'log'\nconsumers = [ { k = 0 } ]"), @"kvqueue: queues.emails.consumers[0].k = 0: a consumer has to take at least one item at a time; set it to 1 or more");
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'log'\nconsumers = [ { count = 0 } ]"), @"kvqueue: queues.emails.consumers[0].count = 0: the group has no consumers; set it to 1 or more, or remove the group");
    insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'log'\ndelivery = 'at-most-once'\nhandler-timeout = '10m'"), @r#"kvqueue: queues.emails.handler-timeout = "10m": an item may take longer than a stop waits (shutdown-timeout = "30s"), so with at-most-once delivery a stop would lose it; raise shutdown-timeout or lower the timeout"#);
    insta::assert_snapshot!(problem("log.level = 'loud'"), @r#"kvqueue: log.level = "loud": "loud" is not a level; use error, warn, info, debug or trace, alone or by target as in "info,kvqueue::actors=debug""#);
    insta::assert_snapshot!(problem("shutdown-timeout = 'long'"), @r#"kvqueue: shutdown-timeout: "long" is not a duration; write it as in "30s" or "500ms" (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual"#);
}

#[test]
fn wrong_schedules_are_reported_with_their_keys() {
    let schedule = |lines: &str| {
        problem(&format!("[queues.emails]\nhandler = 'log'\n[queues.emails.schedules.daily]\n{lines}"))
    };
    insta::assert_snapshot!(schedule("cron = '0 7 * *'"), @r#"kvqueue: queues.emails.schedules.daily.cron: the cron expression "0 7 * *" has 4 fields; write 5 (minute hour day month weekday), such as "0 3 * * *", or 6 (second minute hour day month weekday), such as "30 0 3 * * *""#);
    insta::assert_snapshot!(schedule("cron = '0 7 * * *'\nzone = 'CEST'"), @r#"kvqueue: queues.emails.schedules.daily.zone: unknown time zone "CEST"; did you mean one of Australia/West, Brazil/West, CET?"#);
    insta::assert_snapshot!(schedule("every = '5m'\ncron = '0 7 * * *'"), @"kvqueue: queues.emails.schedules.daily.every: the schedule has cron, too; leave one of the two out");
    insta::assert_snapshot!(schedule("every = '5 minuts'"), @r#"kvqueue: queues.emails.schedules.daily.every: "5 minuts" is not a duration; write it as in "30s" or "500ms" (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual"#);
    insta::assert_snapshot!(schedule("every = '5m'\nmissed_max = 3"), @"kvqueue: queues.emails.schedules.daily.missed_max: unknown field `missed_max`; did you mean `missed-max`? (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
    insta::assert_snapshot!(schedule("every = '5m'\nmissed = 'al'"), @"kvqueue: queues.emails.schedules.daily.missed: unknown variant `al`; did you mean `all`? (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
    insta::assert_snapshot!(schedule("every = '5m'\npriority = 3"), @"kvqueue: queues.emails.schedules.daily.priority: priority 3 is for priority queues, this queue has none; leave it at 0");
}

#[test]
fn a_configuration_without_queues_is_refused() {
    insta::assert_snapshot!(problem(""), @"kvqueue: queues = {}: there is no queue to process; add a [queues.NAME] table to the configuration, which --config or KVQUEUE_CONFIG names; or name a queue with --queue and --handler");
}

#[test]
fn an_unreadable_configuration_file_is_reported() {
    let db = Database::embedded();
    insta::assert_snapshot!(run(&db, &["len", "q", "--config", "/nowhere/kvqueue.toml"]).failed(78), @"kvqueue: cannot read configuration /nowhere/kvqueue.toml (name a readable file with --config): No such file or directory (os error 2)");
}

#[test]
fn an_unknown_setting_variable_is_reported() {
    let db = Database::embedded();
    let ran: Ran = kvqueue(&db, &["config", "check"]).env("KVQUEUE_LOG__LEVL", "x").output().unwrap().into();
    insta::assert_snapshot!(ran.failed(78), @"kvqueue: log.levl: unknown field `levl`; did you mean `level`? (set by KVQUEUE_LOG__LEVL); see kvqueue.toml(5), or run: kvqueue config manual");
}

/// Kubernetes sets such variables for a Service named `kvqueue`.
#[test]
fn variables_of_other_software_are_ignored_with_one_warning() {
    let db = Database::embedded();
    let kubernetes = |arguments: &[&str]| -> Ran {
        let mut command = kvqueue(&db, arguments);
        command.env("KVQUEUE_SERVICE_HOST", "10.0.0.1").env("KVQUEUE_SERVICE_PORT", "7420");
        command.env("KVQUEUE_PORT", "tcp://10.0.0.1:7420").env("KVQUEUE_PORT_7420_TCP_ADDR", "10.0.0.1");
        command.output().unwrap().into()
    };
    let pushed = kubernetes(&["push", "q", "a"]);
    let warnings = pushed.stderr.lines().filter(|line| line.contains("variables_ignored")).count();
    assert_eq!(warnings, 1, "{}", pushed.stderr);
    let names = "KVQUEUE_PORT KVQUEUE_PORT_7420_TCP_ADDR KVQUEUE_SERVICE_HOST KVQUEUE_SERVICE_PORT";
    assert!(pushed.stderr.contains(names), "{}", pushed.stderr);
    pushed.ok();
    assert_eq!(kubernetes(&["-q", "len", "q"]).ok().trim(), "1");
    let ran = kubernetes(&["run", "--queue", "q", "--handler", "stdout", "--until-empty"]);
    assert!(ran.stderr.contains(names), "{}", ran.stderr);
    assert_eq!(ran.ok().trim(), "a");
}

#[test]
fn config_check_notes_that_min_free_space_has_no_effect_on_a_cluster() {
    let note = "min-free-space has no effect on a cluster";
    let check = |url: &str, limit: Option<&str>, more: &[&str]| -> Ran {
        let db = Database::at(url.to_owned(), String::new());
        let mut command = kvqueue(&db, &[&["config", "check"], more].concat());
        command.env("KVQUEUE_QUEUES__Q__HANDLER", "log");
        if let Some(limit) = limit {
            command.env("KVQUEUE_MIN_FREE_SPACE", limit);
        }
        command.output().unwrap().into()
    };
    let directory = tempfile::tempdir().unwrap();
    let cluster = directory.path().join("fdb.cluster");
    fs::write(&cluster, "name:id@127.0.0.1:4500").unwrap();
    let cluster = cluster.to_str().unwrap();
    for limit in ["2GiB", "0"] {
        let ran = check(cluster, Some(limit), &[]);
        assert!(ran.code == Some(0) && ran.stderr.contains(note), "{ran:?}");
        assert!(check(cluster, Some(limit), &["--json"]).ok().contains(note));
        assert_eq!(check("embedded:/data", Some(limit), &[]).stderr, "");
    }
    assert_eq!(check(cluster, None, &[]).stderr, "");
    let missing = check("embeded:/data", None, &[]);
    assert!(
        missing.code == Some(0) && missing.stderr.contains("did you mean embedded:/data?"),
        "{missing:?}"
    );
    check("/nowhere/fdb.cluster", None, &["--strict"]).failed(78);
    let wrong = check("embedded:/data", Some("much"), &[]).failed(78);
    assert!(wrong.contains("KVQUEUE_MIN_FREE_SPACE") && wrong.contains("is not a size"), "{wrong}");
}

#[test]
fn a_queue_given_only_by_options_needs_a_complete_handler() {
    let db = Database::embedded();
    insta::assert_snapshot!(run(&db, &["run", "--queue", "q"]).failed(78), @r#"kvqueue: queues = "q": the queue is not in the configuration; say what to do with its items, as in --handler stdout"#);
    insta::assert_snapshot!(run(&db, &["run", "--queue", "q", "--handler", "exec"]).failed(78), @r#"kvqueue: queues.q.handler-config: handler "exec": missing field `command`; write command = ["program", "argument"] in handler-config"#);
}

#[test]
fn config_show_prints_the_merged_layers() {
    let db = Database::embedded();
    let config = db.file("kvqueue.toml");
    fs::write(&config, "shutdown-timeout = '1s'\n[log]\nlevel = 'warn'\n[queues.q]\nhandler = 'log'\n")
        .unwrap();
    let mut command = kvqueue(&db, &["config", "show", "--config", config.to_str().unwrap()]);
    let ran: Ran = command.env("KVQUEUE_LOG__LEVEL", "debug").output().unwrap().into();
    let shown = ran.ok().replace(&db.url, "URL").replace(config.to_str().unwrap(), "FILE");
    insta::assert_snapshot!(shown, @r#"
        database = "URL"
        min-free-space = "auto"
        prefix = ""
        shutdown-timeout = "1s"
        audit-retention = "90d"
        schedule-owner = "FILE"

        [log]
        format = "auto"
        level = "debug"

        [http]
        listen = "off"
        allow-plaintext = false
        read-only = false
        max-body = "9MiB"
        max-connections = 256
        keep-alive = "2m"
        origins = []

        [queues.q]
        handler = "log"
        kind = "fifo"
        values = "raw"
        end = "min"
        delivery = "at-least-once"
        lease = "30s"
        fetch-strategy = "spread"
        poll-interval = "30s"
        max-payload = "8MiB"
        idempotency-window = "24h"
        on-expiry = "drop"
        dead-retention = "30d"

        [[queues.q.consumers]]
        k = 10
        count = 1

        [queues.q.retry]
        max-attempts = 20
        base = "1s"
        max = "1h"
        jitter = true
        "#);
}

/// A daemon keeps its active configuration when its file gets a typo, and commands can still read
/// from it.
#[test]
fn a_configuration_error_stops_only_commands_that_need_that_part() {
    let db = Database::embedded();
    let served = serve(&db, "[queues.q]\nhandler = 'log'\nconsumers = [{ k = 1, count = 1 }]");
    let at = served.at.tcp().to_owned();
    let config = db.file("kvqueue.toml");
    let write = |text: &str| fs::write(&config, text).unwrap();
    let ask = |words: &[&str]| run(&db, &[words, &["--config", config.to_str().unwrap()]].concat());
    let queues =
        "[queues.q]\nhandler = 'log'\nretry.max-atempts = 3\n[queues.odd]\nhandler = 'log'\nknd = 'recipe'\n";
    write(&format!("shutdown-timeout = 'long'\n{queues}"));
    let commands: [&[&str]; 11] = [
        &["push", "other", "one"],
        &["len", "other"],
        &["list"],
        &["peek", "other"],
        &["pause", "other"],
        &["resume", "other"],
        &["dead", "list", "q"],
        // Its misspelt key is one that only the daemon needs.
        &["push", "q", "one"],
        &["len", "q"],
        &["status", "--at", &at],
        &["delete", "other", "--yes"],
    ];
    for words in commands {
        let ran = ask(words);
        for key in ["shutdown-timeout:", "queues.q.retry.max-atempts:", "queues.odd.knd:"] {
            assert_eq!(ran.stderr.matches(key).count(), 1, "{words:?}: {ran:?}");
        }
        ran.ok();
    }
    // How its items are laid out is not known.
    assert!(ask(&["push", "odd", "one"]).failed(78).contains("queues.odd.knd: unknown field"));
    assert!(ask(&["config", "check"]).failed(78).contains("queues."));
    assert!(ask(&["run"]).failed(78).contains("queues."));
    assert!(ask(&["doctor"]).stdout.contains("config    PROBLEM"));
    // A file that says where the daemon listens, and has a typo elsewhere.
    let listening = |line: &str| {
        let mut command = kvqueue(&db, &["status", "--config", config.to_str().unwrap()]);
        write(&format!("{queues}[http]\nlisten = '{at}'\n{line}"));
        let ran: Ran = command.env_remove("KVQUEUE_HTTP__LISTEN").output().unwrap().into();
        ran
    };
    listening("").ok();
    assert!(listening("tokenfile = 'x'").failed(69).contains("http.tokenfile: unknown field"));
    // Where the items are has to be known.
    write("databse = 'embedded:elsewhere'");
    assert!(ask(&["len", "q"]).failed(78).contains("databse: unknown field"));
}

/// Somebody edits the file of a running daemon when its queue has to be paused.
#[test]
fn a_file_that_is_not_toml_takes_away_only_what_its_broken_lines_are_needed_for() {
    let db = Database::embedded();
    let served = serve(&db, "[queues.q]\nhandler = 'log'");
    let at = served.at.tcp().to_owned();
    for queue in ["q", "other"] {
        run(&db, &["push", queue, "one"]).ok();
    }
    let config = db.file("kvqueue.toml");
    let ask = |words: &[&str]| -> Ran {
        let mut command = kvqueue(&db, &[words, &["--config", config.to_str().unwrap()]].concat());
        command.env_remove("KVQUEUE_HTTP__LISTEN").output().unwrap().into()
    };
    let write = |text: String| fs::write(&config, text).unwrap();
    let told_once = |ran: &Ran| assert_eq!(ran.stderr.matches("is not valid TOML").count(), 1, "{ran:?}");
    write(format!("http.listen = '{at}'\n[queues.q]\nhandler = 'log\n[queues.other]\nhandler = 'log'\n"));
    for words in [
        &["status"][..],
        &["status", "--at", &at],
        &["pause", "q"],
        &["resume", "q"],
        &["pause", "other"],
        &["len", "other"],
        &["push", "other", "two"],
        &["list"],
    ] {
        let ran = ask(words);
        told_once(&ran);
        ran.ok();
    }
    for words in [&["push", "q", "x"][..], &["len", "q"], &["config", "check"], &["run"]] {
        let ran = ask(words);
        assert!(ran.stderr.contains("is not valid TOML"), "{ran:?}");
        assert!(ran.failed(78).contains("handler = 'log") || words[1] == "q", "{words:?}");
    }
    // Which queues it has is not known.
    write(format!("http.listen = '{at}'\n[queues.q\nhandler = 'log'\n"));
    ask(&["pause", "q"]).ok();
    ask(&["resume", "q"]).ok();
    ask(&["push", "other", "x"]).failed(78);
    // Nor which database it has.
    write(format!("http.listen = '{at}'\ndatabase = 'embedded:here\n[queues.q]\nhandler = 'log'\n"));
    for words in [&["status"][..], &["pause", "q"], &["len", "other"]] {
        let ran = ask(words);
        told_once(&ran);
        ran.failed(78);
    }
    for words in [&["status"][..], &["pause", "q", "--local"], &["resume", "q", "--local"], &["reload"]] {
        let ran = ask(&[words, &["--at", &at]].concat());
        told_once(&ran);
        ran.ok();
    }
    ask(&["lease", "none", "--url", &format!("http://{at}"), "--create"]).failed(75);
}

#[test]
fn a_check_names_the_file_and_warns_if_there_is_no_queue() {
    let db = Database::embedded();
    let config = db.file("kvqueue.toml");
    let path = config.to_str().unwrap();
    let check = |words: &[&str]| run(&db, &[&["config", "check"], words].concat());
    fs::write(&config, "").unwrap();
    let empty = check(&["--config", path]);
    assert!(empty.stderr.contains("warning: the configuration has no queues"), "{empty:?}");
    assert_eq!(empty.ok(), format!("{path}: valid, queues: 0\n"));
    check(&["--config", path, "--strict"]).failed(78);
    let none = check(&[]);
    assert!(none.stderr.contains("warning: the configuration has no queues"), "{none:?}");
    assert!(none.ok().starts_with("no file (--config or KVQUEUE_CONFIG names one)"));
    fs::write(&config, "[queues.q]\nhandler = 'log'").unwrap();
    let one = check(&["--config", path, "--strict"]);
    assert_eq!((&*one.stderr, &*one.stdout), ("", &*format!("{path}: valid, queues: 1\n")));
    one.ok();
}

#[test]
fn an_empty_variable_names_no_configuration_and_usage_does_not_ask_for_one() {
    let db = Database::new();
    let empty = kvqueue(&db, &["config", "check"]).env("KVQUEUE_CONFIG", "").output().unwrap();
    assert!(empty.status.success(), "{empty:?}");
    let file = db.file("named.toml");
    fs::write(&file, "graze = 1").unwrap();
    let named = |args: &[&str]| kvqueue(&db, args).env("KVQUEUE_CONFIG", &file).output().unwrap();
    assert_eq!(named(&["config", "check"]).status.code(), Some(78));
    let usage = String::from_utf8(named(&["len", "--no-such-flag"]).stderr).unwrap();
    assert!(usage.contains("Usage: kvqueue len [OPTIONS] <QUEUE>"), "{usage}");
}

#[test]
fn foreign_command_names_get_suggestions() {
    let db = Database::new();
    for (name, meant) in [
        ("purge", "'delete', 'dead purge'"),
        ("clear", "'delete', 'dead purge'"),
        ("stats", "'status', 'len'"),
        ("enqueue", "'push'"),
        ("add", "'push'"),
        ("ls", "'list'"),
        ("rm", "'delete'"),
    ] {
        let error = run(&db, &[name, "q"]).failed(2);
        assert!(error.contains(meant), "{name}: {error}");
    }
}

#[test]
fn an_option_for_a_file_without_one_says_how_to_read_standard_input() {
    for option in ["--lines", "--file"] {
        let error = run(&Database::new(), &["push", "q", option]).failed(2);
        assert!(error.contains(&format!("tip: to read standard input, write '{option} -'")), "{error}");
    }
}
