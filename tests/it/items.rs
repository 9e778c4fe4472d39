//! `kvqueue pop`, `peek`, `len`, `list`, `delete`.

use crate::support::{Database, run};

#[test]
fn peek_keeps_items_and_pop_removes_them() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b", "c"]).ok();
    assert_eq!(run(&db, &["peek", "q"]).ok(), "a\n");
    assert_eq!(run(&db, &["peek", "q", "-k", "2"]).ok(), "a\nb\n");
    assert_eq!(run(&db, &["pop", "q"]).ok(), "a\n");
    assert_eq!(run(&db, &["pop", "q", "-k", "5"]).ok(), "b\nc\n");
    assert_eq!(run(&db, &["pop", "q"]).ok(), "");
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn pop_takes_more_than_one_transaction_holds() {
    let db = Database::new();
    let numbers: Vec<_> = (1..=700).map(|number| number.to_string()).collect();
    let numbers: Vec<_> = numbers.iter().map(String::as_str).collect();
    run(&db, &[&["push", "q"], &numbers[..]].concat()).ok();
    assert_eq!(run(&db, &["pop", "q", "-k", "600"]).ok(), numbers[..600].join("\n") + "\n");
    assert_eq!(run(&db, &["len", "q"]).ok(), "100\n");
}

#[test]
fn json_has_one_object_per_line() {
    let db = Database::new();
    run(&db, &["push", "q", "a"]).ok();
    let len: serde_json::Value = serde_json::from_str(&run(&db, &["len", "q", "--json"]).ok()).unwrap();
    assert_eq!((&len["ready"], &len["queue"]), (&1.into(), &"q".into()));
    let peeked = run(&db, &["peek", "q", "--json"]).ok();
    let object: serde_json::Value = serde_json::from_str(&peeked).unwrap();
    let popped: serde_json::Value = serde_json::from_str(&run(&db, &["pop", "q", "--json"]).ok()).unwrap();
    assert_eq!(object["id"].as_str().unwrap().len(), 24);
    assert_eq!(popped, serde_json::json!({"id": object["id"], "payload": "a"}));
    assert_eq!((&object["payload"], &object["state"]), (&popped["payload"], &"ready".into()));
}

#[test]
fn delete_needs_confirmation_and_keeps_other_queues() {
    let db = Database::new();
    run(&db, &["push", "a", "x"]).ok();
    run(&db, &["push", "ab", "y"]).ok();
    assert_eq!(run(&db, &["list"]).ok(), "a\nab\n");
    insta::assert_snapshot!(run(&db, &["delete", "a"]).failed(2), @r#"kvqueue: this deletes queue "a", with its items and schedules, for good; repeat it with --yes"#);
    assert_eq!(
        run(&db, &["delete", "a", "--yes"]).ok(),
        "deleted a: 1 ready, 0 waiting, 0 running, 0 dead\n"
    );
    assert_eq!(run(&db, &["list"]).ok(), "ab\n");
    assert_eq!(run(&db, &["len", "a"]).ok(), "0\n");
}

#[test]
fn single_items_of_any_waiting_state_are_deleted() {
    let db = Database::new();
    run(&db, &["push", "q", "ready", "stays"]).ok();
    run(&db, &["push", "q", "later", "--delay", "1h"]).ok();
    let id = |state: &str| {
        let peeked = run(&db, &["peek", "q", "--state", state, "--json"]).ok();
        let object: serde_json::Value = serde_json::from_str(peeked.lines().next().unwrap()).unwrap();
        object["id"].as_str().unwrap().to_owned()
    };
    let (ready, later) = (id("ready"), id("scheduled"));
    let delete =
        |yes: &[&str]| run(&db, &[&["delete", "q", "--item", &ready, "--item", &later], yes].concat());
    insta::assert_snapshot!(delete(&[]).failed(2), @r#"kvqueue: this deletes items of queue "q" for good; repeat it with --yes"#);
    assert_eq!(
        delete(&["--yes"]).ok(),
        format!("deleted {ready}, which was ready\ndeleted {later}, which was scheduled\n")
    );
    let again = delete(&["--yes"]);
    insta::assert_snapshot!(again.failed(1).replace(&ready, "[ready]").replace(&later, "[later]"), @r"
    kvqueue: [ready] is not deleted: there is no such item; it has ended, or was never in this queue
    kvqueue: [later] is not deleted: there is no such item; it has ended, or was never in this queue
    kvqueue: items not deleted: 2 of 2
    ");
    assert_eq!(run(&db, &["pop", "q", "-k", "9"]).ok(), "stays\n");
    // An id that is missing deletes nothing.
    run(&db, &["delete", "q", "--item", "--yes"]).failed(2);
}

#[test]
fn an_invalid_queue_name_is_a_usage_error() {
    let db = Database::new();
    run(&db, &["push", "q", "item"]).ok();
    insta::assert_snapshot!(run(&db, &["len", ""]).failed(2), @"kvqueue: queue name is empty, give it 1 to 255 bytes");
    insta::assert_snapshot!(run(&db, &["pop", "q", "-k", "0"]).failed(2), @r"
        error: invalid value '0' for '-k <K>': write a whole number of 1 or more

        For more information, try '--help'.
        ");
}

#[test]
fn pop_of_an_empty_queue_reports_it() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let pop = |args: &[&str]| {
        let ran = run(&db, &[&["pop", "q"], args].concat());
        (ran.code, ran.stdout, ran.stderr)
    };
    assert_eq!(pop(&[]), (Some(0), "one\n".to_owned(), String::new()));
    assert_eq!(pop(&[]), (Some(0), String::new(), "nothing to pop\n".to_owned()));
    assert_eq!(pop(&["-q"]), (Some(0), String::new(), String::new()));
}

#[test]
fn move_all_reports_the_items_left() {
    let db = Database::new();
    run(&db, &["push", "q", "later", "too", "--delay", "1h"]).ok();
    assert_eq!(run(&db, &["move", "q", "other", "--all"]).ok(), "moved 0 items to other; left: 2 waiting\n");
    run(&db, &["push", "q", "one"]).ok();
    assert_eq!(run(&db, &["move", "q", "other", "-n", "1"]).ok(), "moved 1 item to other\n");
}
