//! Counters that another program has made wrong are found and corrected, and queues that it has named by a text are found.

use serde_json::Value;

use crate::support::{Background, Database, Ran, helper, kvqueue, run};

/// As a program does that is not careful: counts two items more than it pushes, and gives a queue's name as a text.
fn miscount(db: &Database) {
    assert!(helper(db, "recount::miscount").output().unwrap().status.success());
}

/// The doctor's finding about a topic.
fn findings(ran: &Ran, about: &str) -> Vec<(String, String)> {
    let findings = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    findings.filter(|it| it["about"] == about).map(|it| (text(&it, "verdict"), text(&it, "text"))).collect()
}

#[test]
fn doctor_reports_counters_that_recount_corrects() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    run(&db, &["push", "r", "one"]).ok();
    let well = run(&db, &["doctor", "--json"]);
    assert_eq!(findings(&well, "counters"), [("fine".to_owned(), "right, queues: 2".to_owned())]);
    assert_eq!(findings(&well, "names"), []);
    miscount(&db);
    let wrong =
        "queue \"q\": 3 ready by its counters, 1 by its items; -1 dead by its counters, 0 by its items";
    let text = "no kvqueue finds what was pushed to \"emails\": a program gives the name as text";
    let problem = |text: &str| vec![("problem".to_owned(), text.to_owned())];
    let is_found = || {
        let found = run(&db, &["doctor", "--json"]);
        assert_eq!(found.code, Some(1), "{found:?}");
        assert_eq!(
            (findings(&found, "counters"), findings(&found, "names")),
            (problem(wrong), problem(text))
        );
    };
    is_found();
    // And while it is used.
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    daemon.wait_for_event("ready");
    is_found();

    assert_eq!(run(&db, &["len", "q"]).ok(), "3\n");
    let dry = run(&db, &["recount", "q", "--dry-run"]);
    let differences = wrong.trim_start_matches("queue \"q\": ");
    assert_eq!((dry.code, dry.stdout), (Some(1), format!("the counters of q are wrong: {differences}\n")));
    assert_eq!(run(&db, &["len", "q"]).ok(), "3\n");
    assert_eq!(run(&db, &["recount", "q"]).ok(), format!("corrected the counters of q: {differences}\n"));
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
    assert_eq!(run(&db, &["recount", "q"]).ok(), "the counters of q are right\n");
    let mended = run(&db, &["doctor", "--json"]);
    assert_eq!(findings(&mended, "counters")[0].0, "fine", "{mended:?}");
}

#[test]
fn doctor_reports_keys_without_a_place_that_recount_lists_again() {
    let db = Database::new();
    let config = db.file("keyed.toml");
    std::fs::write(&config, "[queues.q]\nhandler = 'log'\nkind = 'keyed'\n").unwrap();
    let config = config.display().to_string();
    let with_config = |args: &[&str]| run(&db, &[args, &["--config", &config]].concat());
    for key in ["a", "b"] {
        with_config(&["push", "q", key, "--key", key]).ok();
    }
    let counters = || findings(&with_config(&["doctor", "--json"]), "counters");
    assert_eq!(counters(), [("fine".to_owned(), "right, queues: 1".to_owned())]);
    assert!(helper(&db, "recount::lose_places").output().unwrap().status.success());
    let differences = "keys that fetches do not find: 2; \
                       scopes (queue, tenants, keys) with a wrong count of running items: 1";
    let problem = ("problem".to_owned(), format!("queue \"q\": {differences}"));
    assert_eq!(counters(), std::slice::from_ref(&problem));
    // And while it is used.
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    daemon.wait_for_event("ready");
    assert_eq!(counters(), [problem]);
    let dry = with_config(&["recount", "q", "--dry-run"]);
    assert_eq!((dry.code, dry.stdout), (Some(1), format!("the counters of q are wrong: {differences}\n")));
    let json = with_config(&["recount", "q", "--dry-run", "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["index"], serde_json::json!({ "lost_keys": 2, "wrong_scopes": 1 }));
    let corrected = format!("corrected the counters of q: {differences}\n");
    assert_eq!(with_config(&["recount", "q"]).ok(), corrected);
    assert_eq!(with_config(&["recount", "q"]).ok(), "the counters of q are right\n");
    assert_eq!(counters()[0].0, "fine");
}
