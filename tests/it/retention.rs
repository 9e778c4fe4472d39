//! Dead letters that a daemon removes after `dead-retention`, with the real program.

use serde_json::Value;

use crate::support::{Database, Served, kvqueue, run, serve, wait_until};

/// A queue whose items all die at once.
fn queue(name: &str, settings: &str) -> String {
    format!(
        "[queues.{name}]\nhandler = 'exec'\nlease = '1s'\nretry.max-attempts = 1\nhandler-config.command = ['false']\n{settings}\n"
    )
}

fn dead(db: &Database, queue: &str) -> Value {
    let counts: Value = serde_json::from_str(&run(db, &["len", queue, "--json"]).ok()).unwrap();
    counts["dead"].clone()
}

fn metrics(served: &Served) -> String {
    String::from_utf8(served.at.get("/metrics").body).unwrap()
}

fn stop(served: Served) {
    served.daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(served.daemon.end().code, Some(0));
}

#[test]
fn a_daemon_removes_old_dead_letters_and_says_when_the_next_goes() {
    let db = Database::new();
    let config = |retention: &str| {
        let keeps = queue("keeps", "dead-retention = '1h'");
        format!("{}{keeps}", queue("q", &format!("dead-retention = '{retention}'")))
    };
    let served = serve(&db, &config("0s"));
    for name in ["q", "keeps"] {
        run(&db, &["push", name, "--unique", "u", "a"]).ok();
        wait_until("the item is a dead letter", || dead(&db, name) == 1);
    }
    stop(served);
    let mut served = serve(&db, &config("1s"));
    served.daemon.wait_for_event("dead_letters_removed");
    assert_eq!((dead(&db, "q"), dead(&db, "keeps")), (0.into(), 1.into()));
    wait_until("the metrics", || {
        let metrics = metrics(&served);
        let gauge = "kvqueue_queue_dead_removal_timestamp_seconds{queue=\"keeps\"} ";
        metrics.contains("kvqueue_sweep_items_total{queue=\"q\",kind=\"removed\"} 1\n")
            && metrics.contains(gauge)
            && !metrics.contains(&gauge.replace("keeps", "q"))
    });
    // One that dies while the daemon runs goes too.
    run(&db, &["push", "q", "b"]).ok();
    wait_until("it was removed", || {
        metrics(&served).contains("kvqueue_sweep_items_total{queue=\"q\",kind=\"removed\"} 2\n")
    });
    let path = db.file("kvqueue.toml");
    std::fs::write(&path, config("1s")).unwrap();
    let doctor = kvqueue(&db, &["doctor", "--config", path.to_str().unwrap()]).output().unwrap();
    let found = String::from_utf8(doctor.stdout).unwrap();
    let named = found.lines().find(|line| line.contains("will be removed within three days"));
    assert!(named.is_some_and(|line| line.contains("\"keeps\" (1, the first at ")), "{found}");
    stop(served);
}

#[test]
fn without_a_retention_a_daemon_keeps_dead_letters() {
    let db = Database::new();
    let config = queue("q", "dead-retention = '0s'") + &queue("other", "dead-retention = '1s'");
    let served = serve(&db, &config);
    for name in ["q", "other"] {
        run(&db, &["push", name, "a"]).ok();
        wait_until("the item has died", || {
            metrics(&served).contains(&format!("{{queue=\"{name}\",outcome=\"dead\"}} 1\n"))
        });
    }
    wait_until("the letter of the other queue is removed", || dead(&db, "other") == 0);
    assert_eq!(dead(&db, "q"), 1);
    stop(served);
}
