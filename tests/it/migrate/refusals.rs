//! The errors of migrations that refuse to go on, and that they have changed nothing.

use super::{counts, migrate};
use crate::support::{Database, Ran, kvqueue, run};

/// The output, without the databases' paths.
fn said(ran: Ran, code: i32, from: &Database, to: &Database) -> String {
    let said = ran.failed(code);
    let place = |db: &Database| db.directory.path().display().to_string();
    said.replace(&place(from), "FROM").replace(&place(to), "TO").trim_end().to_owned()
}

fn refused(from: &Database, to: &Database, options: &[&str], code: i32) -> String {
    said(migrate(from, to, options), code, from, to)
}

fn pushed() -> Database {
    let db = Database::embedded();
    run(&db, &["push", "q", "one"]).ok();
    db
}

#[test]
fn a_queue_that_cannot_be_migrated_is_refused() {
    let (from, to) = (Database::embedded(), Database::embedded());
    insta::assert_snapshot!(refused(&from, &to, &[], 69), @"kvqueue: there is no database at embedded:FROM/data: its directory holds none");
    assert!(!from.file("data").exists(), "nothing is made by looking for it");
    let from = pushed();
    insta::assert_snapshot!(refused(&from, &from, &[], 2), @"kvqueue: embedded:FROM/data is the database that queues are to be moved from and to; name another one with --to");
    insta::assert_snapshot!(refused(&from, &to, &["--queue", "absent"], 65), @r#"kvqueue: there is no queue "absent" at the source; `kvqueue list` says which there are"#);
    insta::assert_snapshot!(refused(&from, &to, &["--queue", ""], 2), @"kvqueue: queue name is empty, give it 1 to 255 bytes");
    let usage = kvqueue(&from, &["migrate"]).output().unwrap();
    assert!(said(Ran::from(usage), 2, &from, &to).contains("--to <URL>"));
}

#[test]
fn migrating_an_empty_source_reports_no_queues() {
    let (from, to) = (pushed(), Database::embedded());
    run(&from, &["delete", "q", "--frozen", "--yes"]).ok();
    let nothing = migrate(&from, &to, &[]);
    assert_eq!(nothing.stderr, "there are no queues at the source\n");
    assert_eq!(nothing.ok(), "");
}

#[test]
fn a_target_with_a_queue_of_the_same_name_is_refused() {
    let (from, to) = (pushed(), pushed());
    insta::assert_snapshot!(refused(&from, &to, &[], 65), @r#"kvqueue: there is a queue "q" at the target already, which did not come from this source; give one of them another name, or delete it there with `kvqueue delete`"#);
    assert_eq!(counts(&to, "q")["ready"], 1);
    // Nothing was paused for it.
    run(&from, &["pop", "q"]).ok();
    run(&to, &["delete", "q", "--frozen", "--yes"]).ok();
    run(&from, &["push", "q", "two"]).ok();
    migrate(&from, &to, &[]).ok();
    assert_eq!(run(&to, &["pop", "q"]).ok(), "two\n");
}

#[test]
fn a_queue_that_was_migrated_before_is_refused() {
    let (from, to, third) = (pushed(), Database::embedded(), Database::embedded());
    migrate(&from, &to, &[]).ok();
    insta::assert_snapshot!(refused(&from, &third, &[], 65), @r#"kvqueue: queue "q" was moved away from the source before, and this target does not have it: it went elsewhere, or was deleted here since. To copy once more what the source still has, add --again"#);
    // Another source's queue does not go over it, and it does not go back over what it left.
    insta::assert_snapshot!(refused(&pushed(), &to, &[], 65), @r#"kvqueue: there is a queue "q" at the target already, which did not come from this source; give one of them another name, or delete it there with `kvqueue delete`"#);
    insta::assert_snapshot!(refused(&to, &from, &[], 65), @r#"kvqueue: queue "q" was moved away from the target, and what was left behind is still there; delete it there with `kvqueue delete --frozen`"#);
    migrate(&from, &third, &["--again"]).ok();
    assert_eq!(run(&third, &["pop", "q"]).ok(), "one\n");
    run(&from, &["delete", "q", "--frozen", "--yes"]).ok();
    migrate(&to, &from, &[]).ok();
    assert_eq!(run(&from, &["pop", "q"]).ok(), "one\n");
}

#[test]
fn a_queue_in_another_migration_is_refused() {
    let (from, to, third) = (pushed(), Database::embedded(), Database::embedded());
    let killed =
        super::killed_in(super::migration(&from, &to, &[]), "comparing", 1, std::time::Duration::ZERO);
    assert!(killed.is_none());
    insta::assert_snapshot!(refused(&pushed(), &to, &[], 65), @r#"kvqueue: queue "q" is being moved to the target from somewhere else; let that end, or delete what has come with `kvqueue delete --frozen` there"#);
    insta::assert_snapshot!(refused(&to, &third, &[], 65), @r#"kvqueue: queue "q" is being moved to the source, and not all of it is there; let that end first"#);
    insta::assert_snapshot!(refused(&pushed(), &from, &[], 65), @r#"kvqueue: queue "q" is being moved away from the target; let that end first"#);
    migrate(&from, &to, &[]).ok();
    assert_eq!(run(&to, &["pop", "q"]).ok(), "one\n");
}

#[test]
fn json_has_one_object_for_each_queue() {
    let (from, to) = (pushed(), Database::embedded());
    let moved = migrate(&from, &to, &["--json"]).ok();
    let moved: serde_json::Value = serde_json::from_str(&moved).unwrap();
    assert_eq!((&moved["queue"], &moved["moved"], &moved["items"]), (&"q".into(), &true.into(), &1.into()));
    assert_eq!(moved["xxh3"].as_str().unwrap().len(), 32);
    assert_eq!(moved["run"].as_str().unwrap().len(), 36);
}
