//! To a cluster and back, with both engines in one process. Only where `KVQUEUE_TEST_CLUSTER_FILE` names a cluster.

use super::{checksum, counts, migrate};
use crate::support::{Database, Ran, helper, run};

/// An embedded database whose queues lie behind the same prefix as the cluster's.
fn embedded_next_to(cluster: &Database) -> Database {
    let mut db = Database::at(String::new(), cluster.prefix.clone());
    db.url = format!("embedded:{}", db.file("data").display());
    db
}

/// The version that a cluster has come to.
fn version(cluster: &Database) -> String {
    let said = run(cluster, &["doctor"]).ok();
    let (_, version) = said.split_once("read version ").unwrap();
    version.chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn a_queue_is_migrated_to_a_cluster_and_back() {
    let cluster = Database::new();
    if cluster.prefix.is_empty() {
        return;
    }
    let (from, back) = (embedded_next_to(&cluster), embedded_next_to(&cluster));
    run(&from, &["push", "q", "one", "two", "three"]).ok();
    run(&from, &["push", "q", "--delay", "1h", "later"]).ok();
    let ahead = helper(&from, "migrate::clusters::runs_ahead").arg(version(&cluster)).output();
    Ran::from(ahead.unwrap()).ok();
    let refused = migrate(&from, &cluster, &[]).failed(1);
    assert!(refused.contains("--advance-versions"), "{refused}");
    assert!(refused.contains("fdbcli --exec 'advanceversion "), "{refused}");
    let moved = migrate(&from, &cluster, &["--advance-versions"]).ok();
    assert_eq!(counts(&cluster, "q"), counts(&from, "q"));
    run(&cluster, &["push", "q", "four"]).ok();
    assert_eq!(run(&cluster, &["peek", "q", "-k", "9"]).ok(), "one\ntwo\nthree\nfour\n");
    assert_eq!(run(&cluster, &["pop", "q"]).ok(), "one\n");
    let returned = migrate(&cluster, &back, &[]).ok();
    assert_ne!(checksum(&moved), checksum(&returned), "one item went, one came");
    run(&back, &["push", "q", "five"]).ok();
    assert_eq!(run(&back, &["peek", "q", "-k", "9"]).ok(), "two\nthree\nfour\nfive\n");
    assert_eq!(counts(&back, "q")["waiting"], 1);
}
