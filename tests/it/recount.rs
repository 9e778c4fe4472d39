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
