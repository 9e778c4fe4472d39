//! `kvqueue dead`, and what `kvqueue len` knows of other states than ready.

use serde_json::Value;

use crate::support::{Background, Database, helper, run, run_script};

/// A database whose queue `q` has three dead letters; and their ids.
fn buried() -> (Database, Vec<String>) {
    let db = Database::new();
    Background::start(helper(&db, "dead::buries")).end().ok();
    let ids = objects(&run(&db, &["dead", "list", "q", "--json"]).ok());
    (db, ids.iter().map(|object| object["id"].as_str().unwrap().to_owned()).collect())
}

fn objects(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Ids differ from run to run.
fn without(text: &str, ids: &[String]) -> String {
    ids.iter().enumerate().fold(text.to_owned(), |text, (n, id)| text.replace(id, &format!("[id {}]", n + 1)))
}

#[test]
fn dead_list_prints_a_table_or_objects() {
    let (db, ids) = buried();
    assert_eq!(ids.len(), 3);
    let table = without(&run(&db, &["dead", "list", "q"]).ok(), &ids);
    for part in ["[id 1]", "2027-01-15T08:00:00.010Z", "no such address", "it is ", "gone"] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    assert!(!table.contains("no text"), "a reason has one line in a table:\n{table}");

    let listed = objects(&run(&db, &["dead", "list", "q", "--json"]).ok());
    assert_eq!(listed[1]["reason"], "it is\nno text");
    assert_eq!((&listed[0]["attempts"], &listed[0]["crashes"]), (&1.into(), &0.into()));
    assert!(listed.iter().all(|object| object.get("payload").is_none()));
    assert_eq!(run(&db, &["dead", "list", "other"]).ok(), "");
}

#[test]
fn dead_list_without_letters_says_how_to_see_items_that_wait() {
    let db = Database::new();
    run(&db, &["push", "q", "x", "--delay", "1h", "--create"]).ok();
    let listed = run(&db, &["dead", "list", "q"]);
    let note = "no dead letters; 1 waiting for a retry or their time: kvqueue peek q --state retrying";
    assert!(listed.code == Some(0) && listed.stderr.contains(note), "{listed:?}");
}

#[test]
fn dead_list_continues_after_the_last_id() {
    let (db, ids) = buried();
    let list = |args: &[&str]| {
        let ran = run(&db, &[&["dead", "list", "q", "--json"], args].concat());
        let listed = objects(&ran.stdout)
            .iter()
            .map(|object| object["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>();
        (listed, without(&ran.stderr, &ids))
    };
    let (page, note) = list(&["-n", "2"]);
    assert_eq!(
        (page.as_slice(), note.as_str()),
        (&ids[..2], "there are more; see them with --after [id 2]\n")
    );
    let (page, note) = list(&["-n", "2", "--after", &ids[1]]);
    assert_eq!((page.as_slice(), note.as_str()), (&ids[2..], ""));
}

#[test]
fn dead_show_prints_all_fields() {
    let (db, ids) = buried();
    insta::assert_snapshot!(without(&run(&db, &["dead", "show", "q", &ids[0]]).ok(), &ids), @r"
    id           [id 1]
    died         2027-01-15T08:00:00.010Z
    reason       no such address
    attempts     1
    failure      attempt 1 at 2027-01-15T08:00:00.010Z: no such address
    attribute    to=ann
    unique key   order 1
    payload      5 bytes

    first
    ");
    let shown = objects(&run(&db, &["dead", "show", "q", &ids[0], "--json"]).ok()).remove(0);
    assert_eq!(
        (&shown["payload"], &shown["unique"], &shown["attributes"]["to"]),
        (&"first".into(), &"order 1".into(), &"ann".into())
    );
    assert_eq!(shown["failures"][0]["reason"], "no such address");
    let shown = objects(&run(&db, &["dead", "show", "q", &ids[1], "--json"]).ok()).remove(0);
    assert_eq!(shown["payload_base64"], "/w==");
    let none = "000000000000000000000000";
    insta::assert_snapshot!(run(&db, &["dead", "show", "q", none]).failed(1), @r#"kvqueue: queue "q" has no dead letter 000000000000000000000000; `kvqueue item show` says where the item is"#);
    insta::assert_snapshot!(run(&db, &["dead", "show", "q", "x"]).failed(2), @r#"
    error: invalid value 'x' for '<ID>': item id "x" is neither a stamp of 24 hexadecimal digits (with -N in partition N) nor an x and an even number of them

    For more information, try '--help'.
    "#);
}

#[test]
fn requeue_makes_dead_letters_ready() {
    let (db, ids) = buried();
    assert_eq!(
        without(&run(&db, &["requeue", "q", &ids[2], &ids[0]]).ok(), &ids),
        "requeued [id 3], which was dead\nrequeued [id 1], which was dead\n"
    );
    assert_eq!(run(&db, &["peek", "q", "-k", "5"]).ok(), "first\nthird\n");
    let again = run(&db, &["requeue", "q", &ids[0], &ids[1]]);
    assert_eq!(
        (again.code, without(&again.stdout, &ids)),
        (Some(1), "requeued [id 2], which was dead\n".into())
    );
    insta::assert_snapshot!(without(&again.stderr, &ids), @r"
    kvqueue: [id 1] is not requeued: it is ready already; there is nothing to do
    kvqueue: items not requeued: 1 of 2
    ");
    assert_eq!(run(&db, &["dead", "list", "q"]).ok(), "");
}

#[test]
fn an_unreadable_dead_letter_is_named_and_blocks_no_others() {
    let (db, ids) = buried();
    Background::start(helper(&db, "dead::damages")).end().ok();
    let list = objects(&run(&db, &["dead", "list", "q", "--json"]).ok());
    assert!(list[0]["reason"].as_str().unwrap().contains("cannot read"), "{list:?}");
    insta::assert_snapshot!(run(&db, &["requeue", "q", "--dead"]).failed(1), @"kvqueue: items not requeued: 1, since they cannot be read");
    assert_eq!(run(&db, &["len", "q"]).ok(), "2\n");
    let shown = run(&db, &["dead", "show", "q", &ids[0]]);
    assert!(shown.stdout.contains(&ids[0]) && shown.stdout.contains("cannot be read"), "{}", shown.stdout);
    let refused = without(&shown.failed(1), &ids);
    assert!(refused.contains("kvqueue: cannot show the payload of dead letter [id 1]: "), "{refused}");
    run(&db, &["dead", "purge", "q", &ids[0], "--yes"]).ok();
    assert_eq!(run(&db, &["dead", "list", "q"]).ok(), "");
}

#[test]
fn an_export_skips_an_unreadable_dead_letter_and_fails() {
    let (db, ids) = buried();
    Background::start(helper(&db, "dead::damages")).end().ok();
    let ran = run(&db, &["export", "q"]);
    let lines = objects(&ran.stdout);
    // The first and the last line are those of the file itself.
    assert_eq!(lines.len(), 2 + 2);
    assert_eq!(lines[1]["id"].as_str().unwrap(), ids[1]);
    let said = without(&ran.failed(1), &ids);
    assert!(said.contains("kvqueue: dead letter [id 1] is not exported: "), "{said}");
    assert!(
        said.trim_end()
            .ends_with("kvqueue: items not exported, since they cannot be read: 1; the others are exported"),
        "{said}"
    );
}

#[test]
fn an_export_skips_an_unreadable_ready_item_and_fails() {
    let db = Database::new();
    for payload in ["first", "second", "third", "fourth"] {
        run(&db, &["push", "q", payload, "--attr", "a=b"]).ok();
    }
    Background::start(helper(&db, "dead::damage_ready")).end().ok();
    let ran = run(&db, &["export", "q"]);
    let lines = objects(&ran.stdout);
    let payloads: Vec<_> = lines.iter().filter_map(|line| line["payload"].as_str()).collect();
    assert_eq!(payloads, ["first", "third", "fourth"], "{}", ran.stdout);
    let said = ran.failed(1);
    assert!(said.starts_with("kvqueue: item ") && said.contains(" is not exported: "), "{said}");
    assert!(said.trim_end().ends_with("cannot be read: 1; the others are exported"), "{said}");
}

#[test]
fn dead_list_of_a_missing_queue_reports_it() {
    let db = Database::new();
    run(&db, &["push", "q", "x"]).ok();
    assert_eq!(run(&db, &["dead", "list", "q"]).stderr, "");
    let ran = run(&db, &["dead", "list", "nosuch"]);
    insta::assert_snapshot!(ran.stderr, @r#"kvqueue: there is no queue "nosuch"; `kvqueue list` shows which there are"#);
    assert_eq!(ran.ok(), "");
}

#[test]
fn a_dead_letter_is_not_requeued_while_the_unique_key_is_taken() {
    let (db, ids) = buried();
    Background::start(helper(&db, "dead::buries")).end().ok();
    let second = objects(&run(&db, &["dead", "list", "q", "--json", "--after", &ids[2]]).ok()).remove(0);
    let second = second["id"].as_str().unwrap();
    run(&db, &["requeue", "q", &ids[0]]).ok();
    let refused = run(&db, &["requeue", "q", second]).failed(1);
    assert!(
        refused.contains(&format!("{second} is not requeued: item {} has its unique key", ids[0])),
        "{refused}"
    );
    let ran = run(&db, &["requeue", "q", "--dead", "--json"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (
            Some(1),
            "{\"done\":\"requeued\",\"items\":4,\"more\":false,\"queue\":\"q\",\"refused\":1,\"unreadable\":0}\n"
        )
    );
    insta::assert_snapshot!(ran.stderr, @"kvqueue: items not requeued: 1, since other items have their unique keys");
    run(&db, &["pop", "q"]).ok();
    run(&db, &["requeue", "q", second]).ok();
}

#[test]
fn all_dead_letters_are_requeued_or_purged() {
    let (db, _) = buried();
    assert_eq!(run(&db, &["requeue", "q", "--dead"]).ok(), "requeued 3 items\n");
    assert_eq!(
        run(&db, &["requeue", "q", "--dead", "--json"]).ok(),
        "{\"done\":\"requeued\",\"items\":0,\"more\":false,\"queue\":\"q\",\"refused\":0,\"unreadable\":0}\n"
    );
    assert_eq!(run(&db, &["len", "q"]).ok(), "3\n");
    let (db, _) = buried();
    assert_eq!(run(&db, &["dead", "purge", "q", "--all", "--yes"]).ok(), "purged 3 items\n");
    assert_eq!(run(&db, &["dead", "list", "q"]).ok(), "");
}

#[test]
fn dead_purge_needs_confirmation() {
    let (db, ids) = buried();
    insta::assert_snapshot!(run(&db, &["dead", "purge", "q", "--all"]).failed(2), @r#"kvqueue: this deletes dead letters of queue "q" for good; repeat it with --yes"#);
    let purged = objects(&run(&db, &["dead", "purge", "q", &ids[1], "--yes", "--json"]).ok());
    assert_eq!(purged, [serde_json::json!({ "id": ids[1], "done": "purged", "state_before": "dead" })]);
    assert_eq!(run(&db, &["dead", "list", "q", "--json"]).ok().lines().count(), 2);
    // Ids or all, and one of them.
    assert!(run(&db, &["dead", "purge", "q", "--yes"]).failed(2).contains("<ID>"));
    assert!(
        run(&db, &["dead", "purge", "q", "--all", "--yes", &ids[0]])
            .failed(2)
            .contains("cannot be used with")
    );
}

#[test]
fn len_counts_every_state() {
    let (db, _) = buried();
    run(&db, &["push", "q", "a", "b"]).ok();
    assert_eq!(run(&db, &["len", "q"]).ok(), "2\n");
    let len = run(&db, &["len", "q", "--json"]).ok();
    assert_eq!(
        len,
        "{\"dead\":3,\"done\":0,\"paused\":null,\"pushed\":5,\"queue\":\"q\",\"ready\":2,\"running\":0,\"waiting\":0}\n"
    );
}

#[test]
fn fail_on_dead_sets_the_exit_code() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let until_empty = ["--until-empty", "--fail-on-dead"];
    let code = |script| -> i32 {
        run_script(&db, script, "retry.max-attempts = 1", &until_empty)
            .output()
            .unwrap()
            .status
            .code()
            .unwrap()
    };
    assert_eq!(code("exit 1"), 65);
    assert_eq!(code("exit 1"), 0, "nothing died in this run");
    run(&db, &["push", "q", "two"]).ok();
    assert_eq!(code("exit 0"), 0);
}

#[test]
fn dead_show_distinguishes_failures_before_a_retry() {
    let db = Database::new();
    let config = db.file("dying.toml");
    let settings = "[queues.q]\nhandler = 'exec'\nhandler-config.command = ['false']\nretry.max-attempts = 2\nretry.base = '1ms'\n";
    std::fs::write(&config, settings).unwrap();
    let work_off = || run(&db, &["run", "--until-empty", "--config", config.to_str().unwrap()]).ok();
    run(&db, &["push", "q", "one"]).ok();
    work_off();
    let letters = objects(&run(&db, &["dead", "list", "q", "--json"]).ok());
    let id = letters[0]["id"].as_str().unwrap();
    run(&db, &["requeue", "q", id]).ok();
    work_off();
    let shown = run(&db, &["dead", "show", "q", id]).ok();
    let attempts: Vec<_> =
        shown.lines().filter_map(|line| line.strip_prefix("failure      attempt ")).collect();
    let begin = ["1, before it was retried, at ", "2, before it was retried, at ", "1 at ", "2 at "];
    assert_eq!(attempts.len(), begin.len(), "{shown}");
    assert!(attempts.iter().zip(begin).all(|(line, begin)| line.starts_with(begin)), "{shown}");
    let letters = objects(&run(&db, &["dead", "list", "q", "--json"]).ok());
    let before: Vec<_> =
        letters[0]["failures"].as_array().unwrap().iter().map(|it| it["before_retry"].is_boolean()).collect();
    assert_eq!(before, [true, true, false, false]);
}
